package delivery

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
	"runlog/testbed/bubble"
)

// broken is a source that cannot read.
type broken struct{}

var errBroken = errors.New("the disk is broken")

// Load is window.Source's.
func (broken) Load(string, uint64, storage.Position, int) ([]*window.Event, bool, error) {
	return nil, false, errBroken
}

// Letter is window.Source's.
func (broken) Letter(string, uint64) (*window.Event, error) { return nil, errBroken }

// TestReadFailsAmongEventsBUS8: if a read fails, a consumer gets the events that were taken before.
// They do not wait for their deadline.
func TestReadFailsAmongEventsBUS8(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
	s := routed(t, term)
	settings := s.settings
	settings.AckTimeout, settings.MaxInFlight, settings.MaxLanes = time.Second, 9, 9
	settings.Memory = &window.Memory{One: 1 << 20, All: 1 << 20}
	s.settings = settings
	s.window = window.New(settings, broken{}, 9)
	e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
	e.Record.RunSeq, e.Record.Position = 1, 10
	s.window.Push(10, e)
	s.window.Owe("other", 1, 0) // It is read.
	c := &Consumer{s: s, wake: make(chan struct{}, 1)}
	s.consumers = map[*Consumer]struct{}{c: {}}
	list, err := s.take(c, 9)
	if err != nil || len(list) != 1 || list[0].Record.RunSeq != 1 {
		t.Errorf("%d events, %v; want the one that was taken", len(list), err)
	}
	if _, err := s.take(c, 9); !errors.Is(err, errBroken) {
		t.Errorf("the next call: %v", err)
	}
}

// TestReloadAgainBUS1: a term whose first reload has failed tries it again. Otherwise it would not
// know of a subscription that was made while it began.
func TestReloadAgainBUS1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		term := openTerm(t)
		var end context.CancelFunc
		term.ctx, end = context.WithCancel(t.Context())
		name := subscription.Name{Tenant: "t", ID: "s"}
		op, err := subscription.Create(name, &subscription.Settings{Delivery: []byte("sink"), MaxInFlight: 1, MaxAttempts: 1}, subscription.Start{}, false)
		applyOne(t, term.store, op, err)
		term.stale = errBroken
		done := make(chan struct{})
		go func() {
			defer close(done)
			term.refresh()
		}()
		time.Sleep(2 * retryRead)
		synctest.Wait()
		if term.find(name) == nil {
			t.Error("the term does not know of the subscription")
		}
		end()
		<-done
		term.end(ErrNotLeader)
	})
}
