package delivery_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"runlog/proto/contract"
	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
	"runlog/testbed/seed"
)

var types = [...]string{contract.StepStarted, contract.StepCompleted, contract.StepFailed}

// storySeed repeats the draws of a test that has failed. The order in which goroutines draw is not
// repeated.
var storySeed = flag.Uint64("delivery.seed", 0, "the seed of TestDeliversAllBUS1BUS3BUS6, as the name of its subtest; 0: draw some")

// TestDeliversAllBUS1BUS3BUS6 appends events while consumers and sinks fail, subscriptions change
// and the leadership does. Each event comes in the order of its run, what was acknowledged more
// than a second before a change comes never again, and in the end every event was acknowledged.
func TestDeliversAllBUS1BUS3BUS6(t *testing.T) {
	t.Parallel()
	seeds := []uint64{*storySeed}
	if *storySeed == 0 {
		seeds = nil
		draws := seed.Rand(t)
		for range storagetest.Draws(3) {
			seeds = append(seeds, 1+draws.Uint64N(math.MaxUint32))
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			run(t, seed, func(b *bed) { b.story(120) })
		})
	}
}

func (b *bed) story(steps int) {
	few := func(c *subscription.Settings) { c.MaxInFlight = 2 }
	list := []*sub{
		b.make("t1", "pull", "pull", nil), b.make("t2", "hold", "pull", func(c *subscription.Settings) { c.OnDeadLetter = subscription.HoldRun }),
		b.make("", "all", "flaky:all", few), b.make("t1", "sink", "flaky:sink", func(c *subscription.Settings) { c.Types = types[:2] }),
		b.make("t2", "good", "sink:good", nil),
	}
	ctx, cancel := context.WithCancel(context.Background())
	ends := []context.CancelFunc{cancel}
	join := func(s *sub) {
		if string(s.settings.Delivery) == "pull" {
			one, end := context.WithCancel(ctx)
			ends = append(ends, end)
			s.consume(one)
		}
	}
	for _, s := range list {
		join(s)
	}
	b.lossy = b.int(2) == 0 // Then acknowledgements may get lost at any time.
	b.node.set(func(n *node) { n.faults = b.lossy })
	for range steps {
		b.sleep(200 * time.Millisecond)
		switch s := list[b.int(len(list))]; b.int(12) {
		default:
			runID := fmt.Sprintf("t%d_%d", 1+b.int(2), b.int(5))
			b.append(runID, types[b.int(len(types))], 1+b.int(4)*b.int(25))
		case 0:
			join(s)
		case 1:
			if len(ends) > 1 {
				ends[len(ends)-1]()
				ends = ends[:len(ends)-1]
			}
		case 2:
			b.changeSome(s)
		case 3:
			b.lead()
		}
	}
	b.heal(list, join)
	b.checkAll(list)
	cancel()
}

// lead ends the leadership and begins another one.
func (b *bed) lead() {
	b.node.lead(false)
	b.mu.Lock()
	b.shocks = append(b.shocks, time.Now())
	b.mu.Unlock()
	b.sleep(100 * time.Millisecond)
	b.node.lead(true)
}

// changeSome changes a subscription.
func (b *bed) changeSome(s *sub) {
	row := b.row(s)
	switch b.int(6) {
	case 0, 1:
		b.change(s, func() (storage.Operation, error) { return subscription.Pause(s.name, !row.Paused) })
	case 2:
		s.mu.Lock()
		s.settings.MaxInFlight = uint32(1 + b.int(9))
		s.settings.Types = [][]string{nil, types[:1], types[:2], types[1:]}[b.int(4)]
		settings := s.settings
		s.filters = append(s.filters, filter{settings.Types, math.MaxUint64})
		s.mu.Unlock()
		b.change(s, func() (storage.Operation, error) { return subscription.Update(b.row(s), &settings) })
		b.d.Refresh(context.Background())
		s.mu.Lock()
		s.filters[len(s.filters)-1].from = b.applied()
		s.mu.Unlock()
	case 3:
		start := subscription.Start{Now: b.int(2) == 0, Position: row.Position / 2}
		s.mu.Lock()
		s.began = math.MaxUint64 // It is not known what is due meanwhile.
		for _, f := range s.got {
			f.since, f.again = false, true
		}
		s.mu.Unlock()
		b.change(s, func() (storage.Operation, error) { return subscription.Seek(s.name, start) })
		s.mu.Lock()
		s.began, s.moved = b.row(s).Began, time.Now()
		s.mu.Unlock()
	case 4:
		b.redrive(s)
	case 5:
		b.change(s, func() (storage.Operation, error) {
			b.eachLetter(s, func(f *fate) { f.since = true })
			return subscription.Discard(s.name, subscription.Which{All: true})
		})
	}
}

func (b *bed) redrive(s *sub) {
	b.change(s, func() (storage.Operation, error) {
		b.eachLetter(s, func(f *fate) { f.letter = true })
		return subscription.Redrive(s.name, subscription.Which{All: true})
	})
}

func (b *bed) eachLetter(s *sub, do func(*fate)) {
	letters, _, err := subscription.DeadLetters(b.node.Store(), b.row(s).Number, "", subscription.Place{}, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range letters {
		do(s.fate(window.Place{RunID: l.RunID, Seq: l.RunSeq}))
	}
}

// heal has everything work, and waits until all must be delivered.
func (b *bed) heal(list []*sub, join func(*sub)) {
	close(b.healthy)
	b.node.set(func(n *node) { n.faults = false })
	for range 3 {
		for _, s := range list {
			b.change(s, func() (storage.Operation, error) { return subscription.Pause(s.name, false) })
			b.redrive(s)
			join(s)
		}
		time.Sleep(time.Minute)
	}
}

// checkAll checks that every event was delivered and nothing is left.
func (b *bed) checkAll(list []*sub) {
	synctest.Wait()
	for _, s := range list {
		st, ok := b.d.Status(s.name)
		if !ok || st.Waiting+st.InFlight+st.Retrying+st.Held > 0 || st.Letters > 0 {
			b.t.Errorf("%v in the end: %+v, %t", s.name, st, ok)
		}
		if row := b.row(s); row.OwedRuns+row.DeadLetters > 0 {
			b.t.Errorf("%v in the end: %+v", s.name, row)
		}
		s.mu.Lock()
		for runID, events := range b.node.events {
			for i := range events {
				p := window.Place{RunID: runID, Seq: uint64(i) + 1}
				if f := s.fate(p); s.required(p) && !f.since {
					b.t.Errorf("BUS-6: %v never had %v: %+v, at %d, began %d", s.name, p, *f, b.node.at[runID][i], s.began)
				}
			}
		}
		s.mu.Unlock()
	}
}
