package queue

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// leader is a Node whose leadership a test steers.
type leader struct {
	Node
	store *storage.Store
	// asked is called when the service asks whether the node leads; nil: nothing is.
	asked func()

	mu      sync.Mutex
	changed chan struct{}
}

func (l *leader) Store() *storage.Store             { return l.store }
func (l *leader) WaitLeading(context.Context) error { return nil }

func (l *leader) Leading() bool {
	if l.asked != nil {
		l.asked()
	}
	return true
}

func (l *leader) LeaderChange() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// testService is a service without a ticker.
func testService(t *testing.T) (*Service, *leader) {
	t.Helper()
	local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All(), FeatureLevel: machine.FeatureLevel})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &leader{store: local.Store, changed: make(chan struct{})}
	s := &Service{node: l, waiters: newWaiters(100), opts: Options{
		Node: l, Clock: time.Now, Registry: prometheus.NewRegistry(), Stopping: t.Context(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}}
	s.metrics = newMetrics(s)
	return s, l
}

// TestWokenAndCancelledQUE6: a call that ends while it is woken is not counted as one that will
// lease. Otherwise the next run of its queue would wake nobody.
func TestWokenAndCancelledQUE6(t *testing.T) {
	t.Parallel()
	s, l := testService(t)
	name := queue.Name{Tenant: "t", Project: "p", Environment: "e", Queue: "q"}
	l.asked = func() { s.waiters.offer(name, 1) }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Each call is woken and has ended at the same time: the runtime chooses what it sees first.
	for range 50 {
		_, _ = s.leaseWithin(ctx, &queue.LeaseRequest{Worker: "w", Max: 1}, time.Minute)
	}
	l.asked = nil
	if len(s.waiters.woken) != 0 || s.waiters.count() != 0 {
		t.Fatalf("calls that count as woken, and are gone: %v; %d calls wait", s.waiters.woken, s.waiters.count())
	}
}
