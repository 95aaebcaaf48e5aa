package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// TestLateNackBUS3BUS8: a consumer that refuses a delivery too late takes it from no other one,
// which has it meanwhile.
func TestLateNackBUS3BUS8(t *testing.T) {
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
		if n := first.Nack(refs([]window.Place{p}), 0); n != 0 {
			t.Errorf("%d late refusals count", n)
		}
		b.want(first)
		if n := second.Nack(refs([]window.Place{p}), 0); n != 1 {
			t.Errorf("%d refusals of the one that has it count", n)
		}
		b.want(first, p)
		first.Leave() // As a call of Pull does: any other call may refuse the delivery.
		if n := second.Nack(refs([]window.Place{p}), 0); n != 1 {
			t.Errorf("%d refusals of what a call has pulled count", n)
		}
	})
}

// TestCallerLeavesFlushBUS6: a caller that leaves while its settlement is on its way has no effect
// on what is under way: it is not handed out again.
func TestCallerLeavesFlushBUS6(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		t := b.t
		s := b.make("t1", "s", "pull", nil)
		c := b.consumer(s)
		first, second := window.Place{RunID: "t1_a", Seq: 1}, window.Place{RunID: "t1_b", Seq: 1}
		b.append("t1_a", types[0], 1)
		b.append("t1_b", types[0], 1)
		b.want(c, first, second)
		b.flush(s, 3)
		c.Ack(refs([]window.Place{first}))
		b.node.set(func(n *node) { n.before = func() { time.Sleep(100 * time.Millisecond) } })
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := b.d.Flush(ctx, s.name); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		if took := time.Since(began); took > 60*time.Millisecond {
			t.Errorf("the caller has waited for %v", took)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		b.d.Refresh(context.Background())
		b.want(c)
		if n := c.Ack(refs([]window.Place{second})); n != 1 {
			t.Errorf("%d acknowledgements count", n)
		}
		b.flush(s, 3)
		if row := b.row(s); row.Acknowledged != 2 || row.OwedRuns != 0 {
			t.Errorf("%+v", row)
		}
	})
}

// TestBusySinkBUS4: an endpoint that asks for the next attempt at once, while it is down for five
// seconds, gets no event so often that it becomes a dead letter.
func TestBusySinkBUS4(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 7 * time.Second} {
		run(t, 1, func(b *bed) {
			s := b.make("t1", "s", "sink:s", func(c *subscription.Settings) {
				c.MaxAttempts, c.RetryInitial, c.RetryMax = 12, 200*time.Millisecond, 5*time.Minute
			})
			began, tried, taken := time.Now(), []time.Duration(nil), false
			s.answer = func(storage.Record) error {
				tried = append(tried, time.Since(began))
				if time.Since(began) < 5*time.Second {
					return &attempt.BusyError{After: after, Err: errors.New("503")}
				}
				taken = true
				return nil
			}
			b.append("t1_a", types[0], 1)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			b.flush(s, 2)
			if row := b.row(s); row.DeadLetters != 0 || !taken {
				b.t.Errorf("Retry-After %v: %d dead letters, taken: %t, tried at %v", after, row.DeadLetters, taken, tried)
			}
			if len(tried) > 1 && tried[1]-tried[0] < after {
				b.t.Errorf("Retry-After %v: tried at %v", after, tried)
			}
		})
	}
}

// TestLatePauseBUS2: many answers say that the endpoint is gone, and an operator resumes the
// subscription after the first of them has paused it. None of the others pauses it again, not even
// one that comes after the resume: its attempt began before it.
func TestLatePauseBUS2(t *testing.T) {
	t.Parallel()
	orders := uint64(100) // of goroutines
	if testing.Short() {
		orders = 20
	}
	for seed := range orders {
		run(t, seed, latePause)
	}
}

func latePause(b *bed) {
	s := b.make("t1", "s", "sink:s", func(c *subscription.Settings) { c.MaxAttempts = 100 })
	var gone atomic.Bool
	gone.Store(true)
	s.answer = func(r storage.Record) error {
		if gone.Load() {
			time.Sleep(10 * time.Millisecond) // All are under way.
			if r.RunID == "t1_7" {
				time.Sleep(500 * time.Millisecond)
			}
			return &attempt.GoneError{Err: errors.New("410")}
		}
		return nil
	}
	// The first command takes long.
	b.node.set(func(n *node) { n.before = func() { time.Sleep(100 * time.Millisecond) } })
	for i := range 8 {
		b.append(fmt.Sprint("t1_", i), types[0], 1)
	}
	for range 1000 {
		if time.Sleep(time.Millisecond); b.row(s).Paused {
			break
		}
	}
	if !b.row(s).Paused {
		b.t.Fatal("the subscription is not paused")
	}
	gone.Store(false)
	b.pause(s, false)
	time.Sleep(30 * time.Second)
	b.flush(s, 3)
	if row := b.row(s); row.Paused || row.Acknowledged != 8 {
		b.t.Errorf("after the resume: %+v", row)
	}
}
