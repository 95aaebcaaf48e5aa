package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// idleBytes is the most that an idle subscription may take in the leader's memory.
const idleBytes = 4 << 10

// many is how many idle subscriptions there are.
func many() int {
	if testing.Short() {
		return subscription.MaxSubscriptions / 10
	}
	return subscription.MaxSubscriptions
}

// executeMany applies many operations, some with each command.
func (b *bed) executeMany(n int, operation func(i int) (storage.Operation, error)) {
	b.t.Helper()
	for i := 0; i < n; {
		var ops []storage.Operation
		for ; i < n && len(ops) < 1000; i++ {
			op, err := operation(i)
			if err != nil {
				b.t.Fatal(err)
			}
			ops = append(ops, op)
		}
		cmd, err := storage.EncodeCommand(ops...)
		if err == nil {
			_, err = b.node.apply(cmd)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	b.d.Refresh(context.Background())
	synctest.Wait()
}

// idle is one of many subscriptions of a tenant. Every second one has a sink.
func idle(i int) (subscription.Name, *subscription.Settings) {
	s := &subscription.Settings{
		Delivery: []byte("pull"), RetryInitial: time.Second, RetryMax: time.Second, MaxAttempts: 4, MaxInFlight: 64,
		OnDeadLetter: subscription.Continue, Types: types[1:2],
	}
	if i%2 == 0 {
		s.Delivery = []byte("sink:idle")
	}
	return subscription.Name{Tenant: "idle", ID: fmt.Sprint(i)}, s
}

func (b *bed) makeIdle() {
	b.t.Helper()
	b.executeMany(many(), func(i int) (storage.Operation, error) {
		name, settings := idle(i)
		return subscription.Create(name, settings, subscription.Start{}, false)
	})
}

// commands is how many commands were executed.
func (b *bed) commands() int {
	b.node.mu.Lock()
	defer b.node.mu.Unlock()
	return b.node.commands
}

// heap returns what is in use, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// goroutines returns how many goroutines of deliveries there are. It leaves out those that wait for
// nothing but to end.
func goroutines() (n int) {
	synctest.Wait()
	stacks := make([]byte, 1<<24)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "runlog/server/subscriptions/") && !strings.Contains(stack, "testing.tRunner") {
			n++
		}
	}
	return n
}

// TestManyIdleBUS9: subscriptions that do not match cost an event nothing, and while they are idle
// they have no goroutine, few bytes and few commands. After a change of the leadership the events
// of others are delivered again. It runs alone, because it counts goroutines and memory.
func TestManyIdleBUS9(t *testing.T) {
	run(t, 1, func(b *bed) {
		s := b.make("t1", "s", "pull", nil)
		c := b.consumer(s)
		before := goroutines()
		b.makeIdle()
		if n := goroutines(); n > before {
			t.Errorf("%d goroutines; there were %d before", n, before)
		}
		for _, tt := range []struct {
			tenant, eventType string
			consulted         int
			decoded           bool
		}{
			{"t1", types[0], 1, true}, {"idle", types[0], 0, true}, {"none", types[0], 0, false}, {"idle", types[1], many(), true},
		} {
			if n, decoded := b.d.Consulted(tt.tenant, tt.eventType); n != tt.consulted || decoded != tt.decoded {
				t.Errorf("%+v: %d subscriptions are consulted, decoded: %t", tt, n, decoded)
			}
		}
		first := window.Place{RunID: "t1_a", Seq: 1}
		b.append("t1_a", types[0], 1)
		b.append("idle_a", types[0], 1)
		b.want(c, first)
		c.Ack(refs([]window.Place{first}))
		// The cursors of idle subscriptions move at a bounded pace.
		commands := b.commands()
		const minutes = 10
		for range minutes {
			b.append("idle_a", types[0], 1)
			time.Sleep(time.Minute)
		}
		const idleShare, settleIdle, settleItems = 5 * time.Millisecond, 10 * time.Second, 500
		rounds := minutes*int(time.Minute/max(settleIdle, time.Duration(many())*idleShare)) + 2
		if n := b.commands() - commands - minutes; n > rounds*(many()/settleItems+1) {
			t.Errorf("%d commands in %d minutes without events", n, minutes)
		}
		c.Close()
		b.checkIdleBytes()
		synctest.Wait()
		if n := goroutines(); n > before {
			t.Errorf("%d goroutines after another leadership; there were %d before", n, before)
		}
		b.append("t1_a", types[0], 1)
		b.want(b.consumer(s), window.Place{RunID: "t1_a", Seq: 2})
	})
}

// checkIdleBytes ends the leadership, begins another one, and checks how much memory it takes.
func (b *bed) checkIdleBytes() {
	b.t.Helper()
	b.node.lead(false)
	synctest.Wait()
	without := heap()
	b.node.lead(true)
	synctest.Wait()
	each := (heap() - without) / int64(many())
	b.t.Logf("%d bytes for each idle subscription", each)
	if each > idleBytes {
		b.t.Errorf("an idle subscription takes %d bytes, more than %d", each, idleBytes)
	}
}

// stuckSink takes events and does not answer until it is closed.
type stuckSink struct {
	attempts *attempt.Group
	has      *atomic.Int64
}

func (k stuckSink) Send(ctx context.Context, _ *cloudevent.Event, done func(error)) {
	k.has.Add(1)
	k.attempts.Go(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, func(err error) { k.has.Add(-1); done(err) })
}

func (k stuckSink) Close() error {
	k.attempts.Close()
	return nil
}

// TestManyDeletedBUS2: a subscription that is deleted while its sink or its consumer has an event
// leaves nothing behind. Another one may have its name.
func TestManyDeletedBUS2(t *testing.T) {
	run(t, 1, func(b *bed) {
		before := goroutines()
		var has atomic.Int64
		b.sink = func() delivery.Sink {
			return stuckSink{attempt.NewGroup(attempt.Options{Timeout: time.Hour, Late: func() error { return errRefused }}), &has}
		}
		b.makeIdle()
		var consumers []*delivery.Consumer
		for i := 1; i < many(); i += many() / 10 {
			name, _ := idle(i)
			c, err := b.d.Consume(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			consumers = append(consumers, c)
		}
		b.append("idle_a", types[1], 1)
		synctest.Wait()
		for _, c := range consumers {
			if got, err := c.Take(t.Context(), 1, nil); len(got) != 1 {
				t.Fatalf("taken: %v, %v", got, err)
			}
		}
		if n := int(has.Load()); n != many()/2 {
			t.Fatalf("the sinks have %d events, want %d", n, many()/2)
		}
		b.executeMany(many(), func(i int) (storage.Operation, error) {
			name, _ := idle(i)
			return subscription.Delete(name)
		})
		for _, c := range consumers {
			if _, err := c.Take(t.Context(), 1, nil); !errors.Is(err, delivery.ErrDeleted) {
				t.Errorf("a consumer of a deleted subscription: %v", err)
			}
			if n := c.Ack(refs([]window.Place{{RunID: "idle_a", Seq: 1}})); n != 0 {
				t.Errorf("%d events of a deleted subscription are acknowledged", n)
			}
			c.Close()
		}
		if n := has.Load(); n != 0 {
			t.Errorf("the sinks have %d events of deleted subscriptions", n)
		}
		if n := goroutines(); n > before {
			t.Errorf("%d goroutines; there were %d before", n, before)
		}
		if n, decoded := b.d.Consulted("idle", types[1]); n != 0 || decoded {
			t.Errorf("%d deleted subscriptions are consulted, decoded: %t", n, decoded)
		}
		b.d.Each(func(name subscription.Name, _ delivery.Status) bool {
			t.Errorf("%v is delivered", name)
			return false
		})
		rows, _, err := subscription.List(b.node.Store(), "", subscription.Name{}, 10)
		if err != nil || len(rows) > 0 {
			t.Errorf("rows %v, %v", rows, err)
		}
		s := b.make("idle", "1", "pull", nil)
		b.want(b.consumer(s), window.Place{RunID: "idle_a", Seq: 1})
	})
}
