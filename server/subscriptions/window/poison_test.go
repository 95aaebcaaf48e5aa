package window_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// sinkOf is a window of runs with one event each, and a sink that answers by run.
type sinkOf struct {
	*testing.T
	*window.Window
	now    int64
	tried  map[string]int
	taken  []string // runs whose event the sink has taken
	most   int      // under way
	under  []window.Place
	answer func(runID string) error
}

func newSink(t *testing.T, s window.Settings, runs []string, answer func(string) error) *sinkOf {
	s.Memory = &window.Memory{One: 1 << 20, All: 1 << 20}
	s.MaxLanes, s.MaxLetters = 1<<20, 1<<20
	s.RandomBackoff = func(most time.Duration) time.Duration { return most }
	x := &sinkOf{T: t, Window: window.New(s, stored{}, 0), tried: map[string]int{}, answer: answer}
	for i, id := range runs {
		x.Push(storage.Position(i+1), eventOf(id, storage.Position(i+1)))
	}
	return x
}

// take begins the attempts that may begin, and answers those that answer decides at once: an error
// that is errHangs keeps them under way.
func (x *sinkOf) take() {
	for x.Ready() {
		list, err := x.Take(x.now, 256)
		if err != nil {
			x.Fatal(err)
		}
		for _, d := range list {
			x.tried[d.Run.RunID]++
			x.under = append(x.under, window.Place{RunID: d.Run.RunID, Seq: d.Record.RunSeq})
		}
		x.most = max(x.most, len(x.under))
		x.settleAll()
	}
}

func (x *sinkOf) settleAll() {
	for _, p := range slices.Clone(x.under) {
		if err := x.answer(p.RunID); !errors.Is(err, errHangs) {
			x.settle(p, err)
		}
	}
}

func (x *sinkOf) settle(p window.Place, err error) {
	x.under = slices.DeleteFunc(x.under, func(other window.Place) bool { return other == p })
	if err != nil {
		x.Fail(p, err.Error(), false, -1, x.now)
		return
	}
	x.Ack(p)
	x.taken = append(x.taken, p.RunID)
}

// pass lets the time pass to the next timer, or to a time before that.
func (x *sinkOf) pass(to int64) {
	next := x.Next()
	if next != 0 && next <= x.now {
		x.Fatalf("at %d, the next timer is %d", x.now, next)
	}
	if next == 0 || next > to {
		next = to
	}
	x.now = next
	x.Tick(x.now)
}

var (
	errAnswer = errors.New("500")
	errHangs  = errors.New("no answer yet")
)

func named(name string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(name, "_", i))
	}
	return list
}

// TestPoisonRunsBUS9: more runs than may be in flight fail forever, at a sink that takes the
// events of all others. These come, wherever they are in the log, and long before the first dead
// letter.
func TestPoisonRunsBUS9(t *testing.T) {
	t.Parallel()
	poison, well := named("poison", 71), named("well", 20)
	between := slices.Clone(poison)
	for i, id := range well {
		between = slices.Insert(between, 50+2*i, id)
	}
	for name, runs := range map[string][]string{
		"behind": slices.Concat(poison, well), "between": between, "amid": slices.Concat(poison[:66], well, poison[66:]),
	} {
		x := newSink(t, window.Settings{
			MaxInFlight: 64, MaxAttempts: 1000, RetryInitial: 200 * time.Millisecond, RetryMax: 5 * time.Minute,
		}, runs, func(id string) error {
			if id[0] == 'p' {
				return errAnswer
			}
			return nil
		})
		for x.now < int64(12*time.Second) && len(x.taken) < len(well) {
			x.take()
			x.pass(int64(12 * time.Second))
		}
		if len(x.taken) < len(well) {
			t.Errorf("%s: %d of %d events are delivered within 12 s", name, len(x.taken), len(well))
		}
	}
}

// TestProbesAreFewBUS9: while a sink is down, few events are tried in addition to those that may be
// in flight, one at a time.
func TestProbesAreFewBUS9(t *testing.T) {
	t.Parallel()
	const most = 64
	x := newSink(t, window.Settings{
		MaxInFlight: most, MaxAttempts: 1000, RetryInitial: 200 * time.Millisecond, RetryMax: 5 * time.Minute,
	}, named("run", 2000), func(string) error { return errAnswer })
	for x.now < int64(time.Hour) {
		before := len(x.tried)
		x.take()
		if n := len(x.tried) - before; before > 0 && n > 1 {
			t.Fatalf("%d more events are tried at once", n)
		}
		x.pass(int64(time.Hour))
	}
	// Six minutes of probes an attempt of those that are in flight: 10 s after each other.
	if n := len(x.tried) - most; n < 100 || n > 400 {
		t.Errorf("%d probes in an hour", n)
	}
	x.answer = func(string) error { return nil }
	for len(x.taken) < 2000 && x.now < int64(2*time.Hour) {
		x.pass(int64(2 * time.Hour))
		x.take()
	}
	if len(x.taken) < 2000 {
		t.Errorf("%d events are taken after the outage", len(x.taken))
	}
}

// TestSlowRetriesLeaveRoomBUS9: runs that fail after a long time, such as the timeout of a webhook,
// keep half of what may be in flight free for others, or every second turn of one.
func TestSlowRetriesLeaveRoomBUS9(t *testing.T) {
	t.Parallel()
	const slow, quick, every, end = 10_000, 10, 100, 200_000 // Milliseconds.
	for most, want := range map[int]int{1: 8, 2: 500, 5: 1000, 64: 1500} {
		x := newSink(t, window.Settings{
			MaxInFlight: most, MaxAttempts: 1000, RetryInitial: time.Second, RetryMax: time.Second,
		}, named("poison", 3*most), nil)
		began := map[window.Place]int64{}
		x.answer = func(id string) error {
			p := window.Place{RunID: id, Seq: 1}
			at, is := began[p]
			took := int64(slow)
			if id[0] == 'w' {
				took = quick
			}
			switch {
			case !is:
				began[p] = x.now
				return errHangs
			case x.now-at < took*int64(time.Millisecond):
				return errHangs
			}
			delete(began, p)
			if id[0] == 'w' {
				return nil
			}
			return errAnswer
		}
		for ms := int64(0); ms < end; ms += quick {
			if x.now = ms * int64(time.Millisecond); ms%every == 0 {
				x.Push(storage.Position(1000+ms), eventOf(fmt.Sprint("well_", ms), storage.Position(1000+ms)))
			}
			x.Tick(x.now)
			x.settleAll()
			x.take()
		}
		if x.most > most || len(x.taken) < want {
			t.Errorf("%d in flight at most: %d were, and %d of %d others are delivered, want %d", most, x.most, len(x.taken), end/every, want)
		}
	}
}
