package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/subscriptions/sink/attempt"
	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// TestUnrecordedBUS6: a leader that cannot record acknowledgements hands out no more events after a
// second. So the next leader repeats a second of acknowledgements at most, however long this one
// continues.
func TestUnrecordedBUS6(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"sink:s", "pull"} {
		for _, sameLeader := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,%t", how, sameLeader), func(t *testing.T) {
				t.Parallel()
				run(t, 1, func(b *bed) { b.unrecorded(how, sameLeader) })
			})
		}
	}
}

func (b *bed) unrecorded(how string, sameLeader bool) {
	close(b.healthy)
	s := b.make("t1", "s", how, nil)
	// Some event is always under way, so that a cursor takes two settlements to pass it.
	s.answer = func(storage.Record) error {
		time.Sleep(25 * time.Millisecond)
		return nil
	}
	ctx, end := context.WithCancel(b.t.Context())
	defer end()
	if how == "pull" {
		s.consume(ctx)
	}
	const every, runs = 10 * time.Millisecond, 50
	appended := 0
	appendFor := func(d time.Duration) {
		for range d / every {
			b.append(fmt.Sprint("t1_", appended%runs), types[0], 1)
			appended++
			time.Sleep(every)
		}
	}
	appendFor(3 * time.Second)
	b.node.set(func(n *node) { n.cut = true })
	appendFor(5 * time.Second)
	most := int(time.Second/every) + int(s.settings.MaxInFlight)
	if n := s.taken(); n < int(2*time.Second/every) || n > int(3*time.Second/every)+most {
		b.t.Errorf("%d events were acknowledged of the %d before the last record and of the second behind it", n, 3*time.Second/every)
	}
	b.node.set(func(n *node) { n.cut = false })
	if sameLeader {
		most = 0
	} else {
		b.lossy = true // What comes again is counted below.
		b.node.lead(false)
		synctest.Wait()
		b.node.lead(true)
	}
	appendFor(5 * time.Second)
	time.Sleep(time.Second)
	synctest.Wait()
	if n := s.taken(); n != appended {
		b.t.Errorf("%d of %d events were acknowledged", n, appended)
	}
	if s.repeats > most {
		b.t.Errorf("%d events were acknowledged twice, want at most %d", s.repeats, most)
	}
}

// taken returns how many events were acknowledged.
func (s *sub) taken() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.got {
		if !f.acked.IsZero() {
			n++
		}
	}
	return n
}

// slowly lets each command of the dispatcher take a time.
func (b *bed) slowly(d time.Duration) {
	var before func()
	before = func() {
		time.Sleep(d)
		b.node.set(func(n *node) { n.before = before })
	}
	b.node.set(func(n *node) { n.before = before })
}

// longestWait appends an event every so often, each to one of some runs, and returns how long
// nothing was acknowledged.
func (b *bed) longestWait(s *sub, events, runs int, every time.Duration) (longest time.Duration) {
	last, at := 0, time.Now()
	for i := range events {
		b.append(fmt.Sprint("t1_", i%runs), types[0], 1)
		time.Sleep(every)
		if n := s.taken(); n != last {
			last, at = n, time.Now()
		}
		longest = max(longest, time.Since(at))
	}
	return longest
}

// TestSlowCommitsBUS6: with commits that take most of a second, deliveries stop and go.
func TestSlowCommitsBUS6(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"sink:s", "pull"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			run(t, 1, func(b *bed) {
				close(b.healthy)
				s := b.make("t1", "s", how, func(c *subscription.Settings) { c.MaxInFlight = 1000 })
				s.answer = func(storage.Record) error {
					time.Sleep(150 * time.Millisecond)
					return nil
				}
				ctx, end := context.WithCancel(b.t.Context())
				defer end()
				if how == "pull" {
					s.consume(ctx)
				}
				b.slowly(550 * time.Millisecond)
				if wait := b.longestWait(s, 300, 300, 200*time.Millisecond); wait > 3*time.Second {
					t.Errorf("nothing was handed out for %v; the row was settled %d times", wait, b.row(s).CursorVersion)
				}
			})
		})
	}
}

// TestIdleSettlementsBUS9: the cursors of thousands of idle subscriptions keep no other one from
// recording its acknowledgements.
func TestIdleSettlementsBUS9(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		close(b.healthy)
		idle := 4000
		if testing.Short() {
			idle = 1000
		}
		for i := range idle {
			b.execute(subscription.Create(subscription.Name{Tenant: "t2", ID: fmt.Sprint(i)}, &subscription.Settings{
				Delivery: []byte("pull"), RetryInitial: time.Second, RetryMax: time.Second, MaxAttempts: 4, MaxInFlight: 8,
				OnDeadLetter: subscription.Continue,
			}, subscription.Start{}, false))
		}
		s := b.make("t1", "s", "pull", func(c *subscription.Settings) { c.MaxInFlight = 1000 })
		ctx, end := context.WithCancel(b.t.Context())
		defer end()
		s.consume(ctx)
		time.Sleep(2 * time.Second)
		b.slowly(150 * time.Millisecond)
		if wait := b.longestWait(s, 2000, 50, 20*time.Millisecond); wait > 300*time.Millisecond {
			t.Errorf("a busy subscription got nothing for %v", wait)
		}
	})
}

// TestParkedBehindUnderWayBUS4: a dead letter is recorded also if an event before it, which came
// while the settlement before was committed, stays under way.
func TestParkedBehindUnderWayBUS4(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		close(b.healthy)
		s := b.make("t1", "s", "sink:s", nil)
		release := make(chan struct{})
		s.answer = func(r storage.Record) error {
			switch r.RunID {
			case "t1_slow":
				<-release
			case "t1_bad":
				return &attempt.PermanentError{Err: errRefused}
			}
			return nil
		}
		b.node.set(func(n *node) {
			n.before = func() {
				b.append("t1_slow", types[0], 1)
				b.append("t1_bad", types[0], 1)
			}
		})
		b.append("t1_a", types[0], 1)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		close(release)
		if row := b.row(s); row.DeadLetters != 1 {
			t.Errorf("%d dead letters are recorded", row.DeadLetters)
		}
	})
}
