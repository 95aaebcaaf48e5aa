package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage/machine/subscription"
)

// fill makes subscriptions that hold all the memory of windows, and hand out nothing.
func (b *bed) fill(n int) (list []*sub) {
	b.t.Helper()
	for i := range n {
		list = append(list, b.make("t1", fmt.Sprint("slow", i), "pull", func(c *subscription.Settings) { c.MaxInFlight = 1000 }))
	}
	b.d.Refresh(context.Background())
	for i := range 8 {
		for run := range 4 {
			b.append(fmt.Sprint("t1_", run), types[i%len(types)], 100)
		}
	}
	time.Sleep(20 * time.Millisecond) // Under load the tail waits between two reads.
	synctest.Wait()
	if !b.memory.Spent() {
		b.t.Fatal("there is memory left")
	}
	return list
}

// others takes what a consumer gets in addition to one event that it never settles, and
// acknowledges it, for a time.
func (b *bed) others(s *sub, during time.Duration) (got int) {
	b.t.Helper()
	c := b.consumer(s)
	held := b.take(c)
	if len(held) == 0 {
		b.t.Fatal("there is no event")
	}
	c.Ack(refs(held[1:]))
	got = len(held) - 1
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for list := b.take(c); len(list) > 0; list = b.take(c) {
			c.Ack(refs(list))
			got += len(list)
		}
	}
	return got
}

// TestMemoryOfSlowSubscriptionsBUS9: subscriptions that are paused, or whose consumers are slow,
// keep none of the memory that another one needs. The events that they dropped come later.
func TestMemoryOfSlowSubscriptionsBUS9(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		slow := b.fill(50)
		for _, s := range slow[:25] {
			b.pause(s, true)
		}
		healthy := b.make("t1", "healthy", "pull", func(c *subscription.Settings) { c.MaxInFlight = 1000 })
		total := len(b.node.events["t1_0"]) * 3 // One event of the other run is never settled.
		if got := b.others(healthy, pullTimeout-100*time.Millisecond); got < total {
			b.t.Errorf("%d events of other runs; want %d", got, total)
		}
		for _, s := range []*sub{slow[0], slow[30]} {
			b.pause(s, false)
			if got := b.others(s, pullTimeout-100*time.Millisecond); got < total {
				b.t.Errorf("%v: %d events of other runs; want %d", s.name, got, total)
			}
		}
	})
}

// TestMemoryFreesBUS9: a subscription that has waited for memory continues once others need less,
// whether or not its own deliveries are settled.
func TestMemoryFreesBUS9(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		slow := b.fill(8)
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxInFlight = 1000 })
		c := b.consumer(s)
		if held := b.take(c); len(held) != 1 {
			b.t.Fatalf("%d events without memory; want the one that every subscription may have", len(held))
		}
		for _, other := range slow {
			b.execute(subscription.Delete(other.name))
		}
		time.Sleep(time.Second)
		if more := b.take(c); len(more) == 0 {
			b.t.Error("no other event while the first one is under way")
		}
	})
}

// TestPausedHoldsNoMemoryBUS9: a subscription that is paused keeps nothing in memory, and still
// knows that it lags.
func TestPausedHoldsNoMemoryBUS9(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		paused, fresh := b.make("t1", "s", "pull", nil), b.make("t1", "fresh", "pull", nil)
		b.pause(fresh, true)
		b.d.Refresh(context.Background())
		b.append("t1_a", types[0], 3)
		synctest.Wait()
		b.pause(paused, true)
		b.d.Refresh(context.Background())
		time.Sleep(time.Second)
		b.append("t1_b", types[0], 3)
		synctest.Wait()
		if b.memory.Used() != 0 {
			b.t.Errorf("%d bytes", b.memory.Used())
		}
		for _, s := range []*sub{paused, fresh} {
			if st := b.status(s); st.Waiting != 6 || st.OldestAt == 0 {
				b.t.Errorf("%v: %+v", s.name, st)
			}
			b.pause(s, false)
			c := b.consumer(s)
			b.want(c, window.Place{RunID: "t1_a", Seq: 1}, window.Place{RunID: "t1_b", Seq: 1})
			c.Close()
		}
	})
}
