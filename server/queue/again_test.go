package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// alone is a node without Raft, which never leads: the ticker rests.
type alone struct {
	Node
	local  *storagetest.Local
	before func() // Called once, before the next command is applied; nil: nothing is.
}

func (n *alone) Store() *storage.Store { return n.local.Store }
func (n *alone) Leading() bool         { return false }

func (n *alone) WaitLeading(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (n *alone) Execute(_ context.Context, cmd storage.Command) (storage.Outcome, error) {
	if f := n.before; f != nil {
		n.before = nil
		f()
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(cmd)
	applied := n.local.Applied()
	outcomes, err := n.local.Store.Apply(applied.Index+1, 1, p.Seal(time.Now().UnixNano()))
	if err != nil {
		return storage.Outcome{}, err
	}
	return outcomes[0], outcomes[0].Err
}

// newAlone returns a node and its service, which end with stop.
func newAlone(t *testing.T) (n *alone, s *Service, stop func()) {
	t.Helper()
	local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All(), FeatureLevel: machine.FeatureLevel})
	if err != nil {
		t.Fatal(err)
	}
	n = &alone{local: local}
	stopping, end := context.WithCancel(t.Context())
	s = New(Options{
		Node: n, Snapshots: folds{}, Rules: func(id string) contract.Options { return contract.Options{RunID: id} }, Clock: time.Now, MaxWaiting: 1,
		Registry: prometheus.NewRegistry(), Stopping: stopping,
	})
	return n, s, func() {
		t.Helper()
		end()
		if err := errors.Join(s.Close(), local.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestReleaseDecidesAgainQUE7: a release was decided for a first attempt of several. It is proposed
// when the operator has just allowed one alone. The run fails, and nothing is left of the first
// decision. The same the other way round.
func TestReleaseDecidesAgainQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for _, x := range []struct {
			before, after uint32 // maxStartAttempts
			state         runlogv1.QueuedRunState_Value
			events        uint64
		}{{5, 1, runlogv1.QueuedRunState_ENDED, 2}, {1, 5, runlogv1.QueuedRunState_DELAYED, 1}} {
			n, s, stop := newAlone(t)
			name := queue.Name{Tenant: "tenant", Project: "project", Environment: "prod", Queue: "default"}
			execute := func(ops ...storage.Operation) storage.Outcome {
				t.Helper()
				o, err := s.execute(t.Context(), ops...)
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
			put := func(attempts uint32) {
				op, err := queue.Put(name, queue.Change{MaxStartAttempts: proto.Uint32(attempts)})
				if err != nil {
					t.Fatal(err)
				}
				execute(op)
			}
			put(x.before)
			event, err1 := storage.AppendOperation(&storage.Append{RunID: "run", Events: []contract.Event{storagetest.Event("run", 0)}})
			request, err2 := queue.Request(&queue.RunRequest{Name: name, RunID: "run"})
			lease, err3 := queue.Lease(&queue.LeaseRequest{Worker: "w", Max: 1})
			if err1 != nil || err2 != nil || err3 != nil {
				t.Fatal(err1, err2, err3)
			}
			execute(event, request)
			got, err := queue.DecodeLease(execute(lease).Answers[0].Reply)
			if err != nil || len(got.List) != 1 {
				t.Fatalf("leases %v, %v", got, err)
			}
			n.before = func() { put(x.after) }
			resp, err := s.ReleaseLease(auth.With(t.Context(), auth.Local), &runlogv1.ReleaseLeaseRequest{
				RunId: "run", Fence: got.List[0].Fence, Outcome: runlogv1.LeaseOutcome_FAILED, RetryAfter: durationpb.New(time.Hour),
			})
			if err != nil || resp.State != x.state || resp.Idempotent {
				t.Errorf("from %d to %d attempts: %v, %v", x.before, x.after, resp, err)
			}
			if run, err := n.local.Store.Run("run"); err != nil || run.LastSeq != x.events {
				t.Errorf("from %d to %d attempts: run %+v, %v", x.before, x.after, run, err)
			}
			stop()
		}
	})
}

// TestEndAssignsAgainIDM10QUE10: a producer takes the key of a run's end after the authority has
// assigned the attempt, and before the command is applied. Nothing of the command is stored, and
// the end gets the next attempt.
func TestEndAssignsAgainIDM10QUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, s, stop := newAlone(t)
		defer stop()
		add := func(events ...contract.Event) storage.Operation {
			t.Helper()
			op, err := storage.AppendOperation(&storage.Append{RunID: "run", Events: events})
			if err != nil {
				t.Fatal(err)
			}
			return op
		}
		execute := func(ops ...storage.Operation) {
			t.Helper()
			if _, err := s.execute(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		name := queue.Name{Tenant: "tenant", Project: "project", Environment: "prod", Queue: "default"}
		request, err := queue.Request(&queue.RunRequest{Name: name, RunID: "run"})
		if err != nil {
			t.Fatal(err)
		}
		execute(add(storagetest.Event("run", 0)), request)
		n.before = func() {
			end, taking := storagetest.Event("run", 1), storagetest.Event("run", 2)
			end.Type, end.StepID = contract.RunCancelled, ""
			end.SetAttempt(1)
			taking.Contract, taking.KeyDerived, taking.IdempotencyKey = contract.Line11, false, end.IdempotencyKey
			execute(add(taking))
		}
		resp, err := s.CancelQueued(auth.With(t.Context(), auth.Local), &runlogv1.CancelQueuedRequest{RunId: "run"})
		if err != nil || resp.RunSeq != 3 {
			t.Fatalf("cancelled %v, %v", resp, err)
		}
		events, err := n.local.Events("run", 2)
		if err != nil || len(events) != 1 || events[0].Type != contract.RunCancelled || events[0].LogicalAttemptID != 2 {
			t.Errorf("events %v, %v", events, err)
		}
	})
}
