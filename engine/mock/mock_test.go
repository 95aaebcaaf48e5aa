package mock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"runlog/engine"
	"runlog/engine/mock"
	runlogv1 "runlog/proto/runlog/v1"
)

func start(t *testing.T, m *mock.Engine, run string) string {
	t.Helper()
	ref, err := m.Start(t.Context(), engine.StartRequest{Run: &runlogv1.Run{RunId: run}})
	return fmt.Sprint(ref, " ", err, " ", m.Begun(run))
}

// TestIdempotentENG6: a run is begun once, however often and from wherever it is started.
func TestIdempotentENG6(t *testing.T) {
	t.Parallel()
	m := mock.New()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			run := fmt.Sprint("run-", i%10)
			if ref, err := m.Start(t.Context(), engine.StartRequest{Run: &runlogv1.Run{RunId: run}}); ref != mock.RefOf(run) || err != nil {
				t.Errorf("%s has the reference %q: %v", run, ref, err)
			}
		})
	}
	all.Wait()
	for i := range 10 {
		if n := m.Begun(fmt.Sprint("run-", i)); n != 1 {
			t.Errorf("run-%d was begun %d times", i, n)
		}
	}
	if n := len(m.Requests()); n != 100 || m.Begun("run-10") != 0 {
		t.Errorf("%d requests", n)
	}
}

// TestFaultsENG6 shows each fault, in the order in which they were asked for.
func TestFaultsENG6(t *testing.T) {
	t.Parallel()
	m := mock.New()
	m.Fail(1, errors.New("busy"), "a")
	m.LoseAnswers(2)
	got := []string{start(t, m, "b"), start(t, m, "a"), start(t, m, "a"), start(t, m, "a"), start(t, m, "b")}
	m.Forget("a")
	got = append(got, start(t, m, "a"))
	want := []string{
		" " + mock.ErrNoAnswer.Error() + " 1", " busy 0", " " + mock.ErrNoAnswer.Error() + " 1", "mock/a <nil> 1", "mock/b <nil> 1",
		"mock/a <nil> 2", // It was forgotten.
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestHangENG6: a start that hangs ends with its context, without effect, or goes on when it is
// freed.
func TestHangENG6(t *testing.T) {
	t.Parallel()
	m := mock.New()
	free := m.Hang("a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := m.Start(ctx, engine.StartRequest{Run: &runlogv1.Run{RunId: "a"}})
		done <- err
	}()
	if got := start(t, m, "b"); got != "mock/b <nil> 1" {
		t.Errorf("another run: %s", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || m.Begun("a") != 0 {
		t.Errorf("the start has returned %v, and the run was begun %d times", err, m.Begun("a"))
	}
	free()
	if got := start(t, m, "a"); got != "mock/a <nil> 1" {
		t.Errorf("after it was freed: %s", got)
	}
}
