package queue

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// leader is a Node whose leadership a test steers.
type leader struct {
	Node
	local *storagetest.Local
	// execute answers for Execute.
	execute func(storage.Command) (storage.Outcome, error)
	// asked is called when the service asks whether the node leads; nil: nothing is.
	asked func()

	mu      sync.Mutex
	changed chan struct{}
}

func (l *leader) Store() *storage.Store             { return l.local.Store }
func (l *leader) WaitLeading(context.Context) error { return nil }

func (l *leader) Leading() bool {
	if l.asked != nil {
		l.asked()
	}
	return true
}

func (l *leader) Execute(_ context.Context, cmd storage.Command) (storage.Outcome, error) {
	return l.execute(cmd)
}

// apply executes a command at a time.
func (l *leader) apply(t *testing.T, at time.Time, ops ...storage.Operation) {
	t.Helper()
	cmd, err := storage.EncodeCommand(ops...)
	if err != nil {
		t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(cmd)
	outcomes, err := l.Store().Apply(l.Store().Applied().Index+1, 1, p.Seal(at.UnixNano()))
	if err != nil || outcomes[0].Err != nil {
		t.Fatal(err, outcomes)
	}
}

// request enters a run into a queue.
func (l *leader) request(t *testing.T, at time.Time, runID string, notBefore int64) {
	t.Helper()
	create := storage.Creation{
		Scope:    storage.Scope{TenantID: testQueue.Tenant, ProjectID: testQueue.Project, EnvironmentID: testQueue.Environment},
		Metadata: storage.Metadata{PlanRef: &storage.PlanRef{PlanID: "plan", PlanVersion: "1"}},
	}
	made, errMade := storage.AppendOperation(&storage.Append{RunID: runID, Create: &create})
	enter, errEnter := queue.Request(&queue.RunRequest{Key: sha256.Sum256([]byte(runID)), Name: testQueue, RunID: runID, NotBefore: notBefore})
	if err := errors.Join(errMade, errEnter); err != nil {
		t.Fatal(err)
	}
	l.apply(t, at, made, enter)
}

var testQueue = queue.Name{Tenant: "t", Project: "p", Environment: "e", Queue: "q"}

func (l *leader) LeaderChange() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// folds folds each run from its first event.
type folds struct{}

func (folds) Snapshot(v *storage.View) (*run.Snapshot, error) {
	return run.FoldView(context.Background(), v, run.Empty(v.Run), math.MaxUint64)
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
	l := &leader{local: local, changed: make(chan struct{})}
	s := &Service{node: l, waiters: newWaiters(100), opts: Options{
		Node: l, Snapshots: folds{}, Clock: time.Now, Registry: prometheus.NewRegistry(), Stopping: t.Context(),
		Rules: func(string) contract.Options { return contract.Options{} }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}}
	s.metrics = newMetrics(s)
	return s, l
}

// TestWokenAndCancelledQUE6: a call that ends while it is woken is not counted as one that will
// lease. Otherwise the next run of its queue would wake no call.
func TestWokenAndCancelledQUE6(t *testing.T) {
	t.Parallel()
	s, l := testService(t)
	l.asked = func() { s.waiters.offer(testQueue, 1) }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Each call is woken and has ended at the same time: the runtime chooses what it sees first.
	for range 50 {
		_, _ = s.leaseOrWait(ctx, &queue.LeaseRequest{Worker: "w", Max: 1}, time.Minute)
	}
	l.asked = nil
	if len(s.waiters.woken) != 0 || s.waiters.count() != 0 {
		t.Fatalf("calls that count as woken, and are gone: %v; %d calls wait", s.waiters.woken, s.waiters.count())
	}
}

// TestNoLeaseForEndedCallQUE6: a call that has ended takes no run, which no worker would have
// until the lease expires.
func TestNoLeaseForEndedCallQUE6(t *testing.T) {
	t.Parallel()
	s, l := testService(t)
	l.request(t, time.Now(), "run", 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.execute = func(storage.Command) (storage.Outcome, error) {
		t.Error("a lease was proposed")
		return storage.Outcome{}, ctx.Err()
	}
	if got, err := s.leaseOrWait(ctx, &queue.LeaseRequest{Worker: "w", Max: 1}, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("leases %v, %v", got, err)
	}
}
