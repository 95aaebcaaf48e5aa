package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/window"
	"runlog/storage/machine/subscription"
)

// TestSlowBesideFastBUS6: a subscription that is so slow that the newest events are no longer in
// memory when it comes to them gets all of them, and a fast one does not wait for it.
func TestSlowBesideFastBUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		slow := b.make("t1", "slow", "pull", func(c *subscription.Settings) { c.MaxInFlight = 2 })
		fast := b.make("t1", "fast", "pull", func(c *subscription.Settings) { c.MaxInFlight = 1000 })
		c, other := b.consumer(slow), b.consumer(fast)
		const runs, each = 50, 8
		var late, early []window.Place
		for i := range each {
			for n := range runs {
				b.append(fmt.Sprint("t1_", n), types[0], 1)
			}
			time.Sleep(20 * time.Millisecond) // Under load the router waits between two passes.
			early = append(early, b.drain(other)...)
			if len(early) != (i+1)*runs {
				b.t.Fatalf("%d events came in time, want %d", len(early), (i+1)*runs)
			}
			list := b.take(c)
			c.Ack(refs(list))
			late = append(late, list...)
		}
		late = append(late, b.drain(c)...)
		if len(late) != runs*each {
			b.t.Errorf("%d events came late, want %d", len(late), runs*each)
		}
	})
}

// TestMailWhileBusyBUS3BUS8: while a subscription works, calls of consumers, changes and the ends
// of callers come. All of it is done in the order in which it came, and every caller has its
// answer.
func TestMailWhileBusyBUS3BUS8(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		const calls = 200
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxInFlight = calls })
		c := b.consumer(s)
		for i := range calls {
			b.append(fmt.Sprint("t1_", i), types[0], 1)
		}
		time.Sleep(20 * time.Millisecond)
		list := b.take(c)
		if len(list) != calls {
			b.t.Fatalf("%d events", len(list))
		}
		release := make(chan struct{})
		b.mu.Lock()
		b.asked = func() { <-release } // Its settings are being taken over.
		b.mu.Unlock()
		b.pause(s, true)
		b.pause(s, false)
		synctest.Wait()
		var tasks sync.WaitGroup
		acked := make(chan int, calls)
		for _, p := range list {
			tasks.Go(func() { acked <- c.Ack(refs([]window.Place{p})) })
			tasks.Go(func() { b.status(s) })
		}
		b.append("t1_more", types[0], 1)
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		b.d.Refresh(ctx)
		synctest.Wait()
		if len(acked) != 0 {
			b.t.Errorf("%d calls were answered before", len(acked))
		}
		close(release)
		tasks.Wait()
		close(acked)
		n := 0
		for one := range acked {
			n += one
		}
		if n != calls {
			b.t.Errorf("%d of %d acknowledgements count", n, calls)
		}
		b.want(c, window.Place{RunID: "t1_more", Seq: 1})
	})
}

// TestFilterUnderLoadBUS2: while events of two types come, the filter changes. Each event is judged
// by the filter of its place in the log, whether the subscription is near or far behind.
func TestFilterUnderLoadBUS2(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		run(t, 1, func(b *bed) {
			s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxInFlight, c.Types = 4, types[:1] })
			c := b.consumer(s)
			var want, got []window.Place
			for change := range 8 {
				for i := range 30 {
					p := window.Place{RunID: fmt.Sprintf("t1_%d_%d", change, i), Seq: 1}
					eventType := types[i%2]
					b.append(p.RunID, eventType, 1)
					if slices.Contains(s.settings.Types, eventType) {
						want = append(want, p)
					}
				}
				if !behind && change%2 == 0 {
					synctest.Wait()
					got = append(got, b.drain(c)...)
				}
				s.settings.Types = [][]string{types[1:2], types[:1], types[:2]}[change%3]
				b.execute(subscription.Update(b.row(s), &s.settings))
			}
			time.Sleep(20 * time.Millisecond)
			got = append(got, b.drain(c)...)
			if !slices.Equal(got, want) {
				b.t.Errorf("behind: %t; %d events came, want %d: %v; want %v", behind, len(got), len(want), got, want)
			}
		})
	}
}

// TestSameOwnerAcrossTermsBUS6: the leadership ends and begins while a sink has events and a
// consumer waits. The next term has its own subscribers: nothing of the one before reaches them.
func TestSameOwnerAcrossTermsBUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		k := &slow{}
		b.sink = func() delivery.Sink { return k }
		s := b.make("t1", "s", "slow:s", nil)
		b.append("t1_a", types[0], 2)
		synctest.Wait()
		b.lead()
		synctest.Wait()
		if len(k.done) != 2 || k.closed != 1 {
			b.t.Fatalf("sent %d times, closed %d times", len(k.done), k.closed)
		}
		k.done[0](nil) // An answer to the term before.
		synctest.Wait()
		if st := b.status(s); st.InFlight != 1 || st.Acknowledged != 0 || len(k.done) != 2 {
			b.t.Errorf("%+v, sent %d times", st, len(k.done))
		}
		k.done[1](nil)
		synctest.Wait()
		if st := b.status(s); st.Acknowledged != 1 || len(k.done) != 3 {
			b.t.Errorf("%+v, sent %d times", st, len(k.done))
		}
	})
}

// TestBeginsAgainBUS1: a term that cannot begin is tried again a second later. It knows of all that
// was made and stored meanwhile.
func TestBeginsAgainBUS1(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		before := b.make("t1", "before", "pull", nil)
		b.node.set(func(n *node) { n.unconfirmed = 2 })
		b.lead()
		synctest.Wait()
		after := b.make("t1", "after", "pull", nil)
		b.append("t1_a", types[0], 1)
		began := time.Now()
		for _, s := range []*sub{before, after} {
			c := b.consumer(s)
			b.want(c, window.Place{RunID: "t1_a", Seq: 1})
		}
		if took := time.Since(began); took < time.Second {
			b.t.Errorf("it began after %s", took)
		}
	})
}
