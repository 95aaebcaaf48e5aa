package delivery_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/window"
	"runlog/storage/machine/subscription"
)

// consumer joins a subscription.
func (b *bed) consumer(s *sub) *delivery.Consumer {
	b.t.Helper()
	b.d.Refresh(context.Background())
	c, err := b.d.Consume(b.t.Context(), s.name)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// take takes what there is now.
func (b *bed) take(c *delivery.Consumer) (list []window.Place) {
	b.t.Helper()
	for {
		synctest.Wait()
		alive := make(chan time.Time)
		close(alive)
		got, err := c.Take(b.t.Context(), 100, alive)
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range got {
			list = append(list, window.Place{RunID: got[i].Run.RunID, Seq: got[i].Record.RunSeq})
		}
		if len(got) == 0 {
			return list
		}
	}
}

func (b *bed) want(c *delivery.Consumer, want ...window.Place) {
	b.t.Helper()
	if got := b.take(c); !slices.Equal(got, want) {
		b.t.Fatalf("taken: %v; want %v", got, want)
	}
}

func (b *bed) flush(s *sub, times int) {
	b.t.Helper()
	for range times {
		if err := b.d.Flush(context.Background(), s.name); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bed) pause(s *sub, is bool) {
	b.t.Helper()
	b.execute(subscription.Pause(s.name, is))
}

// TestUpdatedFilterBUS2BUS6: events of a type that an update has added are delivered.
func TestUpdatedFilterBUS2BUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.Types = types[:1] })
		c := b.consumer(s)
		b.append("t1_a", types[0], 1)
		b.want(c, window.Place{RunID: "t1_a", Seq: 1})
		s.settings.Types = types[1:2]
		b.execute(subscription.Update(b.row(s), &s.settings))
		b.d.Refresh(context.Background())
		synctest.Wait()
		b.append("t1_b", types[1], 1)
		b.append("t1_b", types[0], 1)
		b.want(c, window.Place{RunID: "t1_b", Seq: 1})
	})
}

// TestSeekDuringRefreshBUS2BUS6: no seek is missed that comes while an operation before it is taken
// over.
func TestSeekDuringRefreshBUS2BUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		other := b.make("t1", "other", "pull", nil)
		s := b.make("t1", "s", "pull", nil)
		c := b.consumer(s)
		first := window.Place{RunID: "t1_a", Seq: 1}
		b.append("t1_a", types[0], 1)
		for range 20 { // Which of two subscriptions comes first is random.
			b.want(c, first)
			c.Ack(refs([]window.Place{first}))
			b.flush(s, 1)
			b.mu.Lock()
			b.asked = func() { b.execute(subscription.Seek(s.name, subscription.Start{})) }
			b.mu.Unlock()
			b.execute(subscription.Pause(other.name, !b.row(other).Paused))
			b.execute(subscription.Pause(s.name, true))
			b.execute(subscription.Pause(s.name, false))
			b.d.Refresh(context.Background())
			synctest.Wait()
		}
	})
}

// TestSeekToWhereItIsBUS2: a seek to where the cursor is has the events behind it come again, those
// that were acknowledged since included.
func TestSeekToWhereItIsBUS2(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", nil)
		c := b.consumer(s)
		b.append("t1_a", types[0], 1)
		b.append("t1_b", types[0], 1)
		both := []window.Place{{RunID: "t1_a", Seq: 1}, {RunID: "t1_b", Seq: 1}}
		b.want(c, both...)
		c.Ack(refs(both[1:]))
		b.execute(subscription.Seek(s.name, subscription.Start{}))
		b.d.Refresh(context.Background())
		b.want(c, both...)
	})
}

// TestUnknownOutcomeBUS6: a settlement that is recorded while its answer gets lost counts once.
func TestUnknownOutcomeBUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxInFlight = 1 })
		c := b.consumer(s)
		b.append("t1_a", types[0], 1)
		b.want(c, window.Place{RunID: "t1_a", Seq: 1})
		for _, runID := range []string{"t1_b", "t1_c"} { // The window is full before the second.
			b.append(runID, types[0], 1)
			synctest.Wait()
		}
		b.flush(s, 2)
		if row := b.row(s); row.OwedRuns != 2 {
			t.Fatalf("%d runs owe; %+v", row.OwedRuns, b.status(s))
		}
		c.Ack(refs([]window.Place{{RunID: "t1_a", Seq: 1}}))
		b.node.set(func(n *node) { n.lose = true })
		if err := b.d.Flush(context.Background(), s.name); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		b.d.Refresh(context.Background())
		b.flush(s, 2)
		if row, st := b.row(s), b.status(s); row.Acknowledged != 1 || st.Acknowledged != 1 {
			t.Errorf("%+v, %+v", row, st)
		}
		b.want(c, window.Place{RunID: "t1_b", Seq: 1})
	})
}

// TestSettlementOfLeadershipBeforeBUS6: a settlement that was on its way when the leadership ended,
// and is recorded in the next one, is taken over.
func TestSettlementOfLeadershipBeforeBUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		s := b.make("t1", "s", "pull", nil)
		c := b.consumer(s)
		b.append("t1_a", types[0], 1)
		b.append("t1_b", types[0], 2)
		row, end := b.row(s), b.applied()
		op, err := subscription.Settle([]subscription.Settlement{{
			Number: row.Number, Version: row.Version, Position: end, Acknowledged: 2, Owed: []subscription.OwedRun{{RunID: "t1_b", NextSeq: 2}},
		}})
		b.execute(op, err)
		b.d.Refresh(context.Background())
		last := window.Place{RunID: "t1_b", Seq: 2}
		b.want(c, last)
		c.Ack(refs([]window.Place{last}))
		b.flush(s, 2)
		if row := b.row(s); row.OwedRuns != 0 || row.Position < end || row.Acknowledged != 3 {
			t.Errorf("%d runs owe, position %d, %d acknowledged", row.OwedRuns, row.Position, row.Acknowledged)
		}
	})
}

func (b *bed) status(s *sub) delivery.Status {
	b.t.Helper()
	st, ok := b.d.Status(s.name)
	if !ok {
		b.t.Fatalf("%v is not delivered", s.name)
	}
	return st
}

// slow is a sink that answers when the test says so.
type slow struct {
	done   []func(error)
	closed int
}

func (k *slow) Send(_ context.Context, _ *cloudevent.Event, done func(error)) {
	k.done = append(k.done, done)
}

func (k *slow) Close() error {
	k.closed++
	return nil
}

// TestAnswerAfterDeletionBUS9: an answer of a sink that comes after its subscription was deleted
// changes nothing. The bed looks at the memory.
func TestAnswerAfterDeletionBUS9(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		k := &slow{}
		b.sink = func() delivery.Sink { return k }
		s := b.make("t1", "s", "slow:s", nil)
		b.append("t1_a", types[0], 2)
		synctest.Wait()
		b.execute(subscription.Delete(s.name))
		b.d.Refresh(context.Background())
		synctest.Wait()
		if len(k.done) != 1 || k.closed != 1 {
			t.Fatalf("%d events, closed %d times", len(k.done), k.closed)
		}
		k.done[0](nil)
	})
}

// TestPauseIsNoFailureBUS4: an attempt that ends because the sink was closed is none that has
// failed.
func TestPauseIsNoFailureBUS4(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		k := &slow{}
		b.sink = func() delivery.Sink { return k }
		s := b.make("t1", "s", "slow:s", func(c *subscription.Settings) { c.MaxAttempts = 1 })
		b.append("t1_a", types[0], 1)
		synctest.Wait()
		b.pause(s, true)
		b.d.Refresh(context.Background())
		k.done[0](attempt.ErrClosed)
		b.pause(s, false)
		b.d.Refresh(context.Background())
		synctest.Wait()
		if st := b.status(s); len(k.done) != 2 || st.Letters != 0 || st.InFlight != 1 {
			t.Errorf("%d attempts; %+v", len(k.done), st)
		}
	})
}

// TestClockGoesBackBUS4BUS8: retries and deadlines do not wait for a time of day that was set back.
func TestClockGoesBackBUS4BUS8(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		k := &slow{}
		b.sink = func() delivery.Sink { return k }
		b.make("t1", "sink", "slow:s", nil)
		c := b.consumer(b.make("t1", "s", "pull", nil))
		b.append("t1_a", types[0], 1)
		b.want(c, window.Place{RunID: "t1_a", Seq: 1})
		k.done[0](errors.New("the sink fails"))
		b.skew.Store(-int64(3 * time.Hour))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(k.done) != 2 {
			b.t.Errorf("%d attempts at the sink, want 2", len(k.done))
		}
		b.want(c, window.Place{RunID: "t1_a", Seq: 1})
	})
}

// TestNothingToRecordBUS9: while nothing happens, nothing is recorded, whatever waits.
func TestNothingToRecordBUS9(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxAttempts, c.OnDeadLetter = 1, subscription.HoldRun })
		b.make("t2", "idle", "pull", nil)
		c := b.consumer(s)
		b.append("t1_a", types[0], 2)
		b.append("t1_b", types[0], 1)
		b.want(c, window.Place{RunID: "t1_a", Seq: 1}, window.Place{RunID: "t1_b", Seq: 1})
		c.Nack(refs([]window.Place{{RunID: "t1_a", Seq: 1}}), -1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if row, st := b.row(s), b.status(s); row.DeadLetters != 2 || row.OwedRuns != 1 || st.Held != 1 {
			t.Fatalf("%+v, %+v", row, st)
		}
		b.node.set(func(n *node) { n.commands = 0 })
		time.Sleep(10 * time.Minute)
		b.node.set(func(n *node) {
			if n.commands > 0 {
				t.Errorf("%d commands", n.commands)
			}
		})
	})
}

// TestPoisonRunBUS3: a run whose event fails holds up no other, however few may be under way.
func TestPoisonRunBUS3(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxInFlight = 1 })
		c := b.consumer(s)
		for _, runID := range []string{"t1_a", "t1_b", "t1_c", "t1_d"} {
			b.append(runID, types[0], 2)
		}
		for _, runID := range []string{"t1_a", "t1_b", "t1_c"} {
			b.want(c, window.Place{RunID: runID, Seq: 1})
			c.Nack(refs([]window.Place{{RunID: runID, Seq: 1}}), time.Hour)
		}
		b.want(c, window.Place{RunID: "t1_d", Seq: 1})
		// A late acknowledgement still counts.
		if c.Ack(refs([]window.Place{{RunID: "t1_a", Seq: 1}})) != 1 {
			t.Error("a late acknowledgement was not taken")
		}
		c.Ack(refs([]window.Place{{RunID: "t1_d", Seq: 1}}))
		b.want(c, window.Place{RunID: "t1_a", Seq: 2})
	})
}

// TestLateCloseOfConsumerBUS8: a consumer that ends has no effect on what another one was given
// meanwhile.
func TestLateCloseOfConsumerBUS8(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.RetryInitial, c.RetryMax = 0, 0 })
		first, second := b.consumer(s), b.consumer(s)
		p := window.Place{RunID: "t1_a", Seq: 1}
		b.append("t1_a", types[0], 1)
		b.want(first, p)
		time.Sleep(pullTimeout + time.Millisecond)
		b.want(second, p)
		first.Close()
		b.want(second)
		if st := b.status(s); st.InFlight != 1 {
			t.Errorf("%+v", st)
		}
		b.append("t1_b", types[0], 1)
		b.want(second, window.Place{RunID: "t1_b", Seq: 1})
		second.Close() // This one has them.
		if st := b.status(s); st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestEndOfConsumersBUS8: a consumer hears why its subscription has ended.
func TestEndOfConsumersBUS8(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		for _, end := range []struct {
			do   func(*sub)
			want error
		}{
			{func(s *sub) { b.execute(subscription.Delete(s.name)) }, delivery.ErrDeleted},
			{func(s *sub) {
				settings := s.settings
				settings.Delivery = []byte("sink:s")
				b.execute(subscription.Update(b.row(s), &settings))
			}, delivery.ErrNotPull},
			{func(*sub) { b.node.lead(false) }, delivery.ErrNotLeader},
		} {
			s := b.make("t1", end.want.Error(), "pull", nil)
			c := b.consumer(s)
			got := make(chan error)
			go func() {
				_, err := c.Take(t.Context(), 1, nil)
				got <- err
			}()
			synctest.Wait()
			end.do(s)
			if err := <-got; !errors.Is(err, end.want) {
				t.Errorf("the consumer ends with %v; want %v", err, end.want)
			}
			if _, err := c.Take(t.Context(), 1, nil); !errors.Is(err, end.want) {
				t.Errorf("later: %v; want %v", err, end.want)
			}
			c.Close()
		}
	})
}

// TestUpdateHoldsForLaterEventsBUS2: events that are stored after an update are judged by the new
// filter, also before the dispatcher has taken the update over.
func TestUpdateHoldsForLaterEventsBUS2(t *testing.T) {
	t.Parallel()
	for _, attached := range []bool{true, false} {
		run(t, 1, func(b *bed) {
			s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.Types, c.MaxInFlight = types[:1], 100 })
			c := b.consumer(s)
			b.append("t1_a", types[0], 1)
			b.want(c, window.Place{RunID: "t1_a", Seq: 1})
			if !attached {
				b.append("t1_b", types[0], 250) // The window is full.
				synctest.Wait()
			}
			// A settlement is under way: nothing is taken over meanwhile.
			c.Ack(refs([]window.Place{{RunID: "t1_a", Seq: 1}}))
			b.node.set(func(n *node) { n.before = func() { time.Sleep(time.Minute) } })
			time.Sleep(time.Second)
			s.settings.Types = types[1:2]
			b.execute(subscription.Update(b.row(s), &s.settings))
			b.append("t1_c", types[0], 1)
			b.append("t1_d", types[1], 1)
			synctest.Wait()
			got := b.drain(c)
			time.Sleep(2 * time.Minute)
			got = append(got, b.drain(c)...)
			late := window.Place{RunID: "t1_d", Seq: 1}
			if slices.Contains(got, window.Place{RunID: "t1_c", Seq: 1}) || !slices.Contains(got, late) {
				t.Errorf("attached: %t; taken: %v; want %v, and nothing of t1_c", attached, got, late)
			}
		})
	}
}

// drain acknowledges all there is now.
func (b *bed) drain(c *delivery.Consumer) (got []window.Place) {
	b.t.Helper()
	for list := b.take(c); len(list) > 0; list = b.take(c) {
		c.Ack(refs(list))
		got = append(got, list...)
	}
	return got
}

// TestUnusedBUS4BUS8: what a consumer gives back when it leaves is no failed attempt, and another
// one gets it. The one that leaves gets nothing more.
func TestUnusedBUS4BUS8(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxAttempts = 1 })
		first, second := b.consumer(s), b.consumer(s)
		p, begun := window.Place{RunID: "t1_a", Seq: 1}, window.Place{RunID: "t1_b", Seq: 1}
		b.append(p.RunID, types[0], 1)
		b.append(begun.RunID, types[0], 1)
		b.want(first, p, begun)
		first.Unused(refs([]window.Place{p}))
		if _, err := first.Take(b.t.Context(), 1, nil); !errors.Is(err, delivery.ErrLeft) {
			b.t.Errorf("the consumer that leaves: %v", err)
		}
		b.want(second, p)
		second.Ack(refs([]window.Place{p}))
		first.Close()
		if st := b.status(s); st.Letters != 1 || st.InFlight != 0 || st.Acknowledged != 1 {
			b.t.Errorf("%+v", st)
		}
	})
}
