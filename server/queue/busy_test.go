package queue

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// lease requests runs, and leases each for the last time.
func (l *leader) lease(t *testing.T, at time.Time, runIDs ...string) {
	t.Helper()
	once := uint32(1)
	put, errPut := queue.Put(testQueue, queue.Change{MaxStartAttempts: &once})
	lease, errLease := queue.Lease(&queue.LeaseRequest{Worker: "w", Max: len(runIDs)})
	if err := errors.Join(errPut, errLease); err != nil {
		t.Fatal(err)
	}
	l.apply(t, at, put)
	for _, id := range runIDs {
		l.request(t, at, id, 0)
	}
	l.apply(t, at, lease)
}

// append appends events of a run with one step, and returns the last runSeq.
func (l *leader) append(t *testing.T, at time.Time, runID string, types ...string) uint64 {
	t.Helper()
	r, err := l.Store().Run(runID)
	if err != nil {
		t.Fatal(err)
	}
	a := storage.Append{RunID: runID}
	for _, eventType := range types {
		n := int(r.LastSeq) + len(a.Events)
		e := storagetest.Event(runID, n)
		e.Type, e.IdempotencyKey, e.KeyDerived = eventType, fmt.Sprint(n), false
		e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanVersion = testQueue.Tenant, testQueue.Project, testQueue.Environment, "1"
		if e.StepID = ""; contract.ScopeOf(eventType) == contract.ScopeStep {
			e.StepID = "step"
		}
		if eventType == contract.SignalAccepted {
			e.Payload = []byte(`{"signalId":"stop","signalType":"CANCEL"}`)
		}
		a.Events = append(a.Events, e)
	}
	op, err := storage.AppendOperation(&a)
	if err != nil {
		t.Fatal(err)
	}
	l.apply(t, at, op)
	return r.LastSeq + uint64(len(types))
}

// busy has the service execute commands, and lets each run whose id has a prefix get another event
// as soon as the service has read it.
func (l *leader) busy(t *testing.T, s *Service, prefix string) {
	var applying sync.Mutex
	l.execute = func(cmd storage.Command) (storage.Outcome, error) {
		applying.Lock()
		defer applying.Unlock()
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(cmd)
		outcomes, err := l.Store().Apply(l.Store().Applied().Index+1, 1, p.Seal(time.Now().UnixNano()))
		if err != nil {
			return storage.Outcome{}, err
		}
		return outcomes[0], outcomes[0].Err
	}
	s.opts.Snapshots = foldsThen(func(runID string) {
		if strings.HasPrefix(runID, prefix) {
			applying.Lock()
			defer applying.Unlock()
			l.append(t, time.Now(), runID, "Noted")
		}
	})
}

// foldsThen folds a run, and then does something.
type foldsThen func(runID string)

func (then foldsThen) Snapshot(v *storage.View) (*run.Snapshot, error) {
	s, err := folds{}.Snapshot(v)
	then(v.Run.RunID)
	return s, err
}

// busyRuns are the names of runs that come before another one.
func busyRuns(n int, other string) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("busy-%02d", i))
	}
	return append(ids, other)
}
