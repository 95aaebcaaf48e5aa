package raft

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/testbed/bubble"
)

// TestCloseAnswers proves D13: when a node closes, every proposal in flight gets an answer, stored
// or not, and Close returns at once. hashicorp/raft alone drops its queues.
func TestCloseAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for range 10 {
			b := newBed(t).start()
			node, data := b.node, seal(t, request("run", 0, 1))
			closed := make(chan struct{})
			var proposer, callers sync.WaitGroup
			var proposed, told atomic.Int64
			underWay := make(chan struct{})
			proposer.Go(func() {
				for {
					f, err := propose(node, data)
					if err == nil {
						if proposed.Add(1) == 50 {
							close(underWay) // and continues
						}
						callers.Go(func() {
							<-f
							told.Add(1)
						})
					}
					select {
					case <-closed:
						return
					default:
					}
					if err != nil || proposed.Load()%100 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
			<-underWay
			b.node = nil
			closeInTime(t, node)
			close(closed)
			proposer.Wait()
			synctest.Wait()
			if told.Load() < proposed.Load() {
				t.Fatalf("%d of %d proposals were answered", told.Load(), proposed.Load())
			}
			callers.Wait()
			if node.Leading() {
				t.Error("a closed node says that it leads")
			}
			if err := node.ConfirmLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
				t.Errorf("a closed node confirms that it leads: %v", err)
			}
		}
	})
}

func closeInTime(t *testing.T, n *Node) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(bubble.Limit):
		t.Fatal("Close does not return")
	}
}

// TestCloseEarly shows that a node closes at any moment of its start (D13). Its disk is slow, so
// that these moments are apart.
func TestCloseEarly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		const slow = time.Millisecond
		b.opts.FS = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(errorfs.Op) error {
			time.Sleep(slow)
			return nil
		}))
		for n := range 20 {
			if err := b.tryStart(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(n) * 3 * slow)
			closeInTime(t, b.node)
			if err := b.store.Close(); err != nil {
				t.Fatal(err)
			}
			b.node, b.store = nil, nil
		}
	})
}

// TestCloseOfALeader: a node that closes before it has heard that it leads no more still ends
// (D10).
func TestCloseOfALeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		n, store := b.node, b.store
		b.node, b.store = nil, nil
		defer store.Close()
		var closed atomic.Bool
		var announcer sync.WaitGroup
		announcer.Go(func() {
			for i := 1; !closed.Load(); i++ {
				n.setLeading(true, 1)
				runtime.Gosched()
				if i%1000 == 0 {
					time.Sleep(time.Microsecond) // without a pause, fake time would stand still
				}
			}
		})
		closeInTime(t, n)
		closed.Store(true)
		announcer.Wait()
	})
}
