package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// TestHeldRunAfterChangeOfLeaderBUS4: dead letters hold their run under the next leader too, and
// one that has failed again is not redriven any more.
func TestHeldRunAfterChangeOfLeaderBUS4(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxAttempts, c.OnDeadLetter = 1, subscription.HoldRun })
		first := window.Place{RunID: "t1_a", Seq: 1}
		b.append("t1_a", types[0], 2)
		c := b.consumer(s)
		for range 2 {
			b.want(c, first)
			c.Nack(refs([]window.Place{first}), -1)
			b.flush(s, 2)
			b.lead()
			c = b.consumer(s)
			b.want(c)
			b.redrive(s)
			b.d.Refresh(context.Background())
		}
		b.want(c, first)
		c.Ack(refs([]window.Place{first}))
		b.want(c, window.Place{RunID: "t1_a", Seq: 2})
	})
}

// TestSettlementBehindSeekBUS6: a settlement that was made before a seek, and arrives after it,
// moves no cursor.
func TestSettlementBehindSeekBUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", nil)
		first := window.Place{RunID: "t1_a", Seq: 1}
		b.append("t1_a", types[0], 1)
		c := b.consumer(s)
		b.want(c, first)
		c.Ack(refs([]window.Place{first}))
		b.node.set(func(n *node) {
			n.before = func() { b.execute(subscription.Seek(s.name, subscription.Start{})) }
		})
		b.flush(s, 1)
		b.d.Refresh(context.Background())
		b.want(c, first)
	})
}

// TestSettlementAgainBUS6: a settlement that fails is made again soon.
func TestSettlementAgainBUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", nil)
		first := window.Place{RunID: "t1_a", Seq: 1}
		b.append("t1_a", types[0], 1)
		c := b.consumer(s)
		b.want(c, first)
		c.Ack(refs([]window.Place{first}))
		b.node.set(func(n *node) { n.refuse = true })
		time.Sleep(time.Second)
		b.node.set(func(n *node) {
			if n.refuse {
				b.t.Error("no settlement was made")
			}
		})
		if row := b.row(s); row.Acknowledged != 1 || row.Position == 0 {
			b.t.Errorf("%d acknowledged, position %d", row.Acknowledged, row.Position)
		}
	})
}

// TestAcknowledgementWakesOthersBUS8: a consumer that waits gets the next event of a run once
// another one has acknowledged the event before.
func TestAcknowledgementWakesOthersBUS8(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", nil)
		first := window.Place{RunID: "t1_a", Seq: 1}
		b.append("t1_a", types[0], 2)
		c, other := b.consumer(s), b.consumer(s)
		b.want(c, first)
		got := make(chan []delivery.Delivery)
		go func() {
			list, _ := other.Take(b.t.Context(), 1, nil)
			got <- list
		}()
		synctest.Wait()
		before := time.Now()
		c.Ack(refs([]window.Place{first}))
		if list := <-got; len(list) != 1 || list[0].Record.RunSeq != 2 || !time.Now().Equal(before) {
			b.t.Errorf("%d events, after %v", len(list), time.Since(before))
		}
	})
}

// TestAnswerAfterSeekBUS2: the answer of a sink to an event that was sent before a seek settles
// nothing after it.
func TestAnswerAfterSeekBUS2(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		k := &slow{}
		b.sink = func() delivery.Sink { return k }
		s := b.make("t1", "s", "slow:s", nil)
		b.append("t1_a", types[0], 1)
		synctest.Wait()
		b.execute(subscription.Seek(s.name, subscription.Start{}))
		b.d.Refresh(context.Background())
		synctest.Wait()
		if len(k.done) != 2 {
			b.t.Fatalf("sent %d times", len(k.done))
		}
		k.done[0](nil)
		if st := b.status(s); st.InFlight != 1 || st.Acknowledged != 0 {
			b.t.Errorf("%+v", st)
		}
		k.done[1](nil)
		if st := b.status(s); st.InFlight != 0 || st.Acknowledged != 1 {
			b.t.Errorf("%+v", st)
		}
	})
}

// TestLeadershipBeginsAmongEventsBUS6: a dispatcher that begins while the log has events behind and
// before its cursors delivers each once, also to a subscription that is far behind.
func TestLeadershipBeginsAmongEventsBUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		near, far := b.make("t1", "near", "pull", nil), b.make("t1", "far", "pull", nil)
		b.execute(subscription.Pause(far.name, true))
		c := b.consumer(near)
		b.append("t1_a", types[0], 1)
		b.want(c, window.Place{RunID: "t1_a", Seq: 1})
		c.Ack(refs([]window.Place{{RunID: "t1_a", Seq: 1}}))
		b.flush(near, 2)
		b.node.lead(false)
		synctest.Wait()
		b.append("t1_b", types[0], 1)
		b.node.set(func(n *node) { n.index += 20_000 }) // Raft's own entries.
		b.append("t1_c", types[0], 1)
		b.node.lead(true)
		synctest.Wait()
		b.want(b.consumer(near), window.Place{RunID: "t1_b", Seq: 1}, window.Place{RunID: "t1_c", Seq: 1})
		b.execute(subscription.Pause(far.name, false))
		b.want(b.consumer(far), window.Place{RunID: "t1_a", Seq: 1}, window.Place{RunID: "t1_b", Seq: 1}, window.Place{RunID: "t1_c", Seq: 1})
		b.append("t1_d", types[0], 1)
		b.want(b.consumer(far), window.Place{RunID: "t1_d", Seq: 1})
	})
}

// TestManyLettersBUS6: dead letters that come at the same time are recorded at once, in commands of
// bounded size.
func TestManyLettersBUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		const runs = 1500
		s := b.make("t1", "s", "sink:s", func(c *subscription.Settings) { c.MaxInFlight = runs })
		fail := make(chan struct{})
		s.answer = func(storage.Record) error {
			<-fail
			return &attempt.PermanentError{Err: errors.New(strings.Repeat("e", 1000))}
		}
		b.d.Refresh(context.Background())
		for i := range runs {
			b.append(fmt.Sprint("t1_", i), types[0], 1)
		}
		time.Sleep(50 * time.Millisecond) // Under load the tail waits between two reads.
		synctest.Wait()
		b.node.set(func(n *node) { n.commands, n.largest = 0, 0 })
		close(fail)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		b.flush(s, 2) // The cursor passes over an event with the second one.
		row := b.row(s)
		b.node.set(func(n *node) {
			if row.DeadLetters != runs || n.commands < 3 || n.largest > 600<<10 {
				t.Errorf("%d dead letters, in %d commands of at most %d bytes", row.DeadLetters, n.commands, n.largest)
			}
		})
	})
}

// TestCallerLeavesBUS2: a caller that has no time left does not wait for a settlement that is on
// its way. What it asked for happens later.
func TestCallerLeavesBUS2(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", nil)
		first, second := window.Place{RunID: "t1_a", Seq: 1}, window.Place{RunID: "t1_a", Seq: 2}
		b.append("t1_a", types[0], 2)
		c := b.consumer(s)
		b.want(c, first)
		c.Ack(refs([]window.Place{first}))
		b.node.set(func(n *node) { n.before = func() { time.Sleep(time.Minute) } })
		time.Sleep(time.Second) // A settlement is under way.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		if err := b.d.Flush(ctx, s.name); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		b.pause(s, true)
		b.d.Refresh(ctx)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the caller has waited for %v", took)
		}
		time.Sleep(2 * time.Minute)
		b.want(c)
		b.pause(s, false)
		b.d.Refresh(context.Background())
		b.want(c, second)
		if row := b.row(s); row.Acknowledged != 1 {
			t.Errorf("%+v", row)
		}
	})
}

// TestSettlementAtLimitBUS4BUS9: a settlement that a limit refuses is tried again ever more rarely.
// A change of the subscription ends the wait.
func TestSettlementAtLimitBUS4BUS9(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxAttempts, c.MaxInFlight = 2, 10 })
		first, second, third := window.Place{RunID: "t1_a", Seq: 1}, window.Place{RunID: "t1_b", Seq: 1}, window.Place{RunID: "t1_c", Seq: 1}
		b.append("t1_a", types[0], 1)
		b.append("t1_b", types[0], 1)
		c := b.consumer(s)
		b.want(c, first, second)
		c.Nack(refs([]window.Place{second}), time.Hour)
		b.flush(s, 2)
		b.node.set(func(n *node) { n.commands, n.limit = 0, true })
		b.append("t1_c", types[0], 1)
		b.want(c, third)
		c.Nack(refs([]window.Place{third}), 0)
		time.Sleep(time.Millisecond)
		b.want(c, third)
		c.Nack(refs([]window.Place{third}), -1)
		time.Sleep(10 * time.Minute)
		b.node.set(func(n *node) {
			if n.commands > 60 {
				t.Errorf("%d commands in ten minutes", n.commands)
			}
			n.limit = false
		})
		b.pause(s, true)
		time.Sleep(time.Second)
		if row := b.row(s); row.DeadLetters != 1 || row.OwedRuns != 2 {
			t.Errorf("after a change: %+v", row)
		}
	})
}

// TestAckBeforeSeekBUS2BUS8: an acknowledgement of a delivery before a seek does not count, whether
// or not the event is under way again. One that another leader has handed out does.
func TestAckBeforeSeekBUS2BUS8(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		s := b.make("t1", "s", "pull", nil)
		b.append("t1_a", types[0], 1)
		c := b.consumer(s)
		one := func() []delivery.Ref {
			t.Helper()
			list, err := c.Take(t.Context(), 1, nil)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return []delivery.Ref{list[0].Ref()}
		}
		old := one()
		if old[0].String() != "1-t1_a" {
			t.Errorf("deliveryId %s", old[0])
		}
		for _, again := range []bool{false, true} {
			b.execute(subscription.Seek(s.name, subscription.Start{}))
			b.d.Refresh(context.Background())
			if again {
				old = append(old, one()...)
			}
			if n := c.Ack(old[:1]) + c.Nack(old[:1], 0); n != 0 {
				t.Errorf("under way again: %t; %d deliveries before the seek were settled", again, n)
			}
		}
		b.lead()
		c = b.consumer(s)
		synctest.Wait() // It has read the event.
		if n := c.Ack(old[:1]); n != 0 {
			t.Errorf("under the next leader: %d deliveries before the seek were settled", n)
		}
		if n := c.Ack(old[1:]); n != 1 {
			t.Errorf("under the next leader: %d deliveries after the seek were settled", n)
		}
		b.want(c)
	})
}

// TestRef: a deliveryId is read as it was written, and nothing else is one.
func TestRef(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]delivery.Ref{
		"1-run":     {Place: window.Place{RunID: "run", Seq: 1}},
		"12.7-a-b.": {Place: window.Place{RunID: "a-b.", Seq: 12}, Sought: 7},
	} {
		if got, err := delivery.ParseRef(id); err != nil || got != want || got.String() != id {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
	for _, id := range []string{"", "1", "0-run", "1-", "x-run", "1.-run", "1.x-run", ".1-run", "-1-run"} {
		if got, err := delivery.ParseRef(id); err == nil {
			t.Errorf("%q: %+v", id, got)
		}
	}
}

// TestParkedAgainBUS4: an event that is parked again, after the cursor was moved back, is one dead
// letter.
func TestParkedAgainBUS4(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxAttempts = 1 })
		c := b.consumer(s)
		b.append("t1_a", types[0], 1)
		first := window.Place{RunID: "t1_a", Seq: 1}
		for range 2 {
			b.want(c, first)
			c.Nack(refs([]window.Place{first}), -1)
			time.Sleep(time.Second)
			synctest.Wait()
			b.execute(subscription.Seek(s.name, subscription.Start{}))
		}
		b.want(c, first)
		c.Nack(refs([]window.Place{first}), -1)
		time.Sleep(time.Second)
		synctest.Wait()
		if row, st := b.row(s), b.status(s); row.DeadLetters != 1 || st.Letters != 1 {
			b.t.Errorf("%d dead letters, and %d in the status", row.DeadLetters, st.Letters)
		}
	})
}

// TestRedriveAfterFilterBUS5: a dead letter that is redriven is delivered, also if the filter has
// changed since it was parked. It is not dropped.
func TestRedriveAfterFilterBUS5(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxAttempts = 1 })
		c := b.consumer(s)
		b.append("t1_a", types[0], 1)
		first := window.Place{RunID: "t1_a", Seq: 1}
		b.want(c, first)
		c.Nack(refs([]window.Place{first}), -1)
		b.flush(s, 3)
		row := b.row(s)
		settings := row.Settings
		settings.Types = []string{"Another"}
		b.execute(subscription.Update(row, &settings))
		b.execute(subscription.Redrive(s.name, subscription.Which{All: true}))
		b.d.Refresh(context.Background())
		b.want(c, first)
		b.flush(s, 3)
		if n := b.row(s).DeadLetters; n != 1 {
			t.Errorf("%d dead letters before the acknowledgement, want 1", n)
		}
		c.Ack(refs([]window.Place{first}))
		b.flush(s, 3)
		if n := b.row(s).DeadLetters; n != 0 {
			t.Errorf("%d dead letters after the acknowledgement, want 0", n)
		}
	})
}
