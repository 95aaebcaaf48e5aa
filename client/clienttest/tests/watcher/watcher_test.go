package watcher_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	"runlog/client/watcher"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

func runOf(id string) *events.Run {
	return &events.Run{ID: id, Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
}

// write appends one event of each kind in names, which are names of steps.
func write(t *testing.T, c *client.Client, run *events.Run, steps ...string) (position string) {
	t.Helper()
	for _, step := range steps {
		e, err := run.StepCompleted(step, events.Attempt{Logical: 1, Engine: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: run.ID, Events: []*runlogv1.EventWrite{e}})
		if err != nil {
			t.Fatal(err)
		}
		position = res.GetPosition()
	}
	return position
}

// TestSnapshots (WATCH-3): they rise, also when the server restarts, and do not change.
func TestSnapshots(t *testing.T) {
	bubble.Test(t, testSnapshots)
}

func testSnapshots(t *testing.T) {
	srv := clienttest.Start(t, clienttest.InBubble())
	c := srv.Client(client.Options{MinBackoff: 10 * time.Millisecond})
	run := runOf("run-1")
	write(t, c, run, "a")
	ctx := t.Context()
	var seen []watcher.Snapshot
	err := watcher.Each(watcher.Snapshots(ctx, c, run.ID, ""), func(s watcher.Snapshot) error {
		seen = append(seen, s)
		switch s.LastSeq() {
		case 1:
			write(t, c, run, "b")
		case 2:
			srv.Restart()
			write(t, c, run, "c")
		case 3:
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	if len(seen) < 3 || !slices.IsSortedFunc(seen, func(a, b watcher.Snapshot) int { return int(a.LastSeq()) - int(b.LastSeq()) }) {
		t.Errorf("%d snapshots", len(seen))
	}
	first := seen[0]
	step, ok := first.Step("a")
	if first.RunID() != run.ID || first.LastSeq() != 1 || first.Stale() || first.Digest() == "" || !ok ||
		step.ID() != "a" || step.Status() != runlogv1.StepStatus_SUCCESS || step.LogicalAttempt() != 1 || step.Message().GetStepId() != "a" {
		t.Errorf("the first snapshot is %v", first.Message())
	}
	if _, ok := first.Step("b"); ok {
		t.Error("the first snapshot has a later step")
	}
	first.Message().Status = runlogv1.RunStatus_FAILED
	if first.Status() == runlogv1.RunStatus_FAILED {
		t.Error("a snapshot can be changed")
	}
	n := 0
	for range seen[len(seen)-1].Steps() {
		n++
	}
	if n != 3 {
		t.Errorf("%d steps at the end", n)
	}
	// A watch resumed with the token of the first has what came after it.
	for s, err := range watcher.Snapshots(ctx, c, run.ID, first.ResumeToken()) {
		if err != nil || s.LastSeq() != 3 {
			t.Errorf("resumed: %d, %v", s.LastSeq(), err)
		}
		break
	}
}

var errEnough = errors.New("enough")

// TestEvents (WATCH-3): the events of a run come once and in order, also when the server restarts.
func TestEvents(t *testing.T) {
	bubble.Test(t, testEvents)
}

func testEvents(t *testing.T) {
	srv := clienttest.Start(t, clienttest.InBubble())
	c := srv.Client(client.Options{MinBackoff: 10 * time.Millisecond})
	run := runOf("run-1")
	write(t, c, run, "a", "b")
	ctx := t.Context()
	var steps []string
	token := ""
	for e, err := range watcher.Events(ctx, c, run.ID, 1, "") {
		if err != nil {
			t.Fatal(err)
		}
		if steps = append(steps, e.GetStepId()); len(steps) == 1 {
			srv.Restart()
			write(t, c, run, "c")
			continue
		}
		token = e.ResumeToken
		break
	}
	if !slices.Equal(steps, []string{"b", "c"}) {
		t.Errorf("saw %v", steps)
	}
	write(t, c, run, "d")
	for e, err := range watcher.Events(ctx, c, run.ID, 0, token) {
		if err != nil || e.GetStepId() != "d" {
			t.Errorf("resumed: %v, %v", e, err)
		}
		break
	}
	if err := watcher.Each(watcher.Events(ctx, c, "bad\x00id", 0, ""), func(watcher.Event) error { return nil }); err == nil {
		t.Error("an id that no run can have was watched")
	}
}

// TestSelect (WATCH-2): selected events of many runs come once, in the order of the commits.
func TestSelect(t *testing.T) {
	bubble.Test(t, testSelect)
}

func testSelect(t *testing.T) {
	srv := clienttest.Start(t, clienttest.InBubble())
	c := srv.Client(client.Options{MinBackoff: 10 * time.Millisecond})
	position := write(t, c, runOf("order-0"), "before")
	for i := range 3 {
		write(t, c, runOf(fmt.Sprint("order-", i)), "a")
		write(t, c, runOf(fmt.Sprint("other-", i)), "a")
	}
	ctx := t.Context()
	var runs []string
	filter := watcher.Filter{Tenant: "acme", RunPrefix: "order-", Types: []string{"StepCompleted"}, AfterPosition: position}
	for e, err := range watcher.Select(ctx, c, filter) {
		if err != nil {
			t.Fatal(err)
		}
		if runs = append(runs, e.GetRunId()); len(runs) == 2 {
			srv.Restart()
		}
		if len(runs) == 3 {
			filter.Resume = e.ResumeToken
			break
		}
	}
	if !slices.Equal(runs, []string{"order-0", "order-1", "order-2"}) {
		t.Errorf("saw %v", runs)
	}
	write(t, c, runOf("order-9"), "later")
	for e, err := range watcher.Select(ctx, c, filter) {
		if err != nil || e.GetRunId() != "order-9" {
			t.Errorf("resumed: %v, %v", e, err)
		}
		break
	}
}
