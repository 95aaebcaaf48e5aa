package bubble_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"runlog/testbed/bubble"
)

// recorder is the test of a case that fails on purpose.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// TestRun: a case that fails is named, ends itself alone, and is cleaned up after.
func TestRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		var happened []string
		note := func(what string) { happened = append(happened, what) }
		bubble.Run(r, "one", func(t testing.TB) {
			t.Cleanup(func() { note("first") })
			t.Cleanup(func() { note("second") })
			t.Error("wrong")
			t.Fatalf("bad %d", 1)
			note("after the end")
		})
		bubble.Run(r, "two", func(t testing.TB) {
			if t.Failed() || !strings.HasSuffix(t.Name(), "/two") {
				note("a case that is another's")
			}
			note("two")
		})
		if got, want := fmt.Sprint(happened), "[second first two]"; got != want {
			t.Errorf("happened %s, want %s", got, want)
		}
		if got, want := fmt.Sprint(r.errors), "[one: wrong one: bad 1]"; got != want {
			t.Errorf("errors %s, want %s", got, want)
		}
	})
}

// TestUntil: time passes between two questions, and a test that begins is in 2030.
func TestUntil(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		if began.UTC().Format(time.DateOnly) != "2030-01-01" {
			t.Errorf("it is %v", began)
		}
		var later atomic.Bool
		go func() {
			time.Sleep(time.Minute)
			later.Store(true)
		}()
		bubble.Until(t, "a minute is over", later.Load)
		if took := time.Since(began); took < time.Minute || took > time.Minute+50*time.Millisecond {
			t.Errorf("%v went by", took)
		}
	})
}

// TestLeaks: a goroutine that a test leaves fails it. The first line says where it was started and
// what to do, and its stack is shown.
func TestLeaks(t *testing.T) {
	defer func() {
		if p := fmt.Sprint(recover()); !regexp.MustCompile(`^deadlock.*end each.*1 left, the first.*bubble_test\.go:\d+\n`).MatchString(p) || !strings.Contains(p, "leave(") {
			t.Errorf("panic %s", p)
		}
	}()
	bubble.Test(t, func(*testing.T) {
		go leave(make(chan struct{}))
		synctest.Wait()
	})
}

func leave(forever chan struct{}) { <-forever }
