package await_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runlog/testbed/await"
)

// late is a test whose binary has no time left.
type late struct {
	*testing.T
	said string
}

func (*late) Deadline() (time.Time, bool) { return time.Now(), true }

func (l *late) Fatalf(format string, args ...any) {
	l.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestAwait: each wait ends with its event.
func TestAwait(t *testing.T) {
	c := make(chan int, 1)
	go func() { c <- 7 }()
	if got := await.Receive(t, "a number", c); got != 7 {
		t.Errorf("received %d", got)
	}
	changes, n := make(chan struct{}), 0
	go func() {
		for range 3 {
			changes <- struct{}{}
		}
	}()
	await.Until(t, "three changes", func(ctx context.Context) error {
		select {
		case <-changes:
			n++
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, func() bool { return n == 3 })
	var asked atomic.Int32
	await.Poll(t, "the third question", func() bool { return asked.Add(1) == 3 })
}

// TestAwaitSaysWhatItAwaits: at the end of the binary's time, a test says what it was waiting for.
func TestAwaitSaysWhatItAwaits(t *testing.T) {
	broken := errors.New("broken")
	for want, wait := range map[string]func(t testing.TB){
		"a word": func(t testing.TB) { await.Receive(t, "a word", make(chan int)) },
		"a file": func(t testing.TB) { await.Poll(t, "a file", func() bool { return false }) },
		"a change": func(t testing.TB) {
			await.Until(t, "a change", func(context.Context) error { return broken }, func() bool { return false })
		},
	} {
		l, ended := &late{T: t}, make(chan struct{})
		go func() {
			defer close(ended)
			wait(l)
		}()
		<-ended
		if !strings.Contains(l.said, "still waiting for "+want) {
			t.Errorf("%s: said %q", want, l.said)
		}
	}
}
