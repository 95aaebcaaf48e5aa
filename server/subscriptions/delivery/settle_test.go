package delivery

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
	"runlog/testbed/bubble"
)

// unwilling is a node that refuses all commands.
type unwilling struct {
	Node
	commands int
}

// Execute is Node's.
func (n *unwilling) Execute(context.Context, storage.Command) (storage.Outcome, error) {
	n.commands++
	return storage.Outcome{}, errBroken
}

// TestSettlesBusyBUS6: a settlement of many busy subscriptions waits for a step of some of them at
// a time, and not for one after the other. What was not recorded is recorded later.
func TestSettlesBusyBUS6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		term, r := openTerm(t)
		node := &unwilling{Node: term.opts.Node}
		term.opts.Node = node
		const many, busy = 100, 4 * time.Millisecond
		var list []*subscriber
		var stop atomic.Bool
		for i := range many {
			row := &subscription.Subscription{Name: subscription.Name{ID: fmt.Sprint("s", i)}, Number: uint64(i + 1)}
			row.Settings.MaxInFlight, row.Settings.MaxAttempts = 10, 1
			s := r.newSubscriber(row, []placed{{0, filterOf(row)}})
			s.newer = nil
			s.begin(&stored{State: &subscription.State{Subscription: *row}})
			r.join(s)
			list = append(list, s)
			s.call(func() {
				e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
				e.Record.RunSeq, e.Record.Position = 1, 1
				s.window.Push(1, e)
				if _, err := s.window.Take(term.now(), 1); err != nil {
					t.Fatal(err)
				}
				s.window.Ack(window.Place{RunID: "run", Seq: 1})
			})
		}
		work := func(s *subscriber) func() {
			var do func()
			do = func() {
				if time.Sleep(busy); !stop.Load() {
					s.post(do)
				}
			}
			return do
		}
		for _, s := range list {
			s.post(work(s))
		}
		began := time.Now()
		_, _, err := term.flushSome(t.Context(), list)
		took := time.Since(began)
		stop.Store(true)
		// The room of a command is for 32 at a time. Those with little to say leave it to others.
		if most := 10 * busy; err == nil || took > most {
			t.Errorf("it took %s, want %s at most; %v", took, most, err)
		}
		if node.commands != 1 {
			t.Errorf("%d commands", node.commands)
		}
		for i, s := range list {
			s.call(func() {
				if s.settling {
					t.Errorf("subscription %d waits for an answer", i)
				}
			})
		}
	})
}
