package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

const (
	// maxWait is the longest that LeaseRuns waits for a run (QUE-6).
	maxWait = time.Minute
	// maxAnswer bounds the runs of one answer, in bytes. Clients take 4 MiB, and labels may be
	// added to a run that waits. The leases of an answer that does not arrive are lost.
	maxAnswer = 2 << 20
)

// LeaseRuns leases the next runs of queues to a worker (QUE-6).
func (s *Service) LeaseRuns(ctx context.Context, req *runlogv1.LeaseRunsRequest) (*runlogv1.LeaseRunsResponse, error) {
	r, wait, err := parseLease(ctx, req)
	if err != nil {
		return nil, err
	}
	if s.node.Store().Applied().Held {
		return nil, rpc.Held("no run is leased")
	}
	leases, err := s.leaseOrWait(ctx, r, wait)
	if err != nil {
		return nil, err
	}
	return s.wireLeases(leases)
}

// lease proposes a Lease, if there is a run to lease. A call that has ended takes none: its leases
// would reach no worker, and their runs would wait until they expire.
//
// The look at the store only avoids proposals that would lease nothing. The machine decides, in log
// order: which runs are leased, until when, and with which fence. A leader
// that was deposed after its look cannot have its Lease committed. So a run has one lease at a
// time, whatever this node believes.
func (s *Service) lease(ctx context.Context, r *queue.LeaseRequest) ([]queue.Held, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if has, err := s.leasable(r.Within); err != nil || !has {
		return nil, err
	}
	turn := *r
	turn.After = s.turns.after(r.Within)
	op, err := queue.Lease(&turn)
	if err != nil {
		return nil, err
	}
	outcome, err := s.execute(ctx, op)
	if err != nil {
		return nil, err
	}
	got, err := queue.DecodeLease(outcome.Answers[0].Reply)
	if err == nil && len(got.List) > 0 {
		s.turns.took(r.Within, got.Last)
	}
	s.metrics.leases.Add(float64(len(got.List)))
	s.metrics.expired.Add(float64(got.Expired))
	return got.List, err
}

// leasable reports whether a Lease may find a run. A timer that is due counts, because a Lease
// handles timers first, and the run of the timer may become ready.
func (s *Service) leasable(within queue.Name) (bool, error) {
	has, err := queue.HasLeasable(s.node.Store(), within)
	if err != nil || has {
		return has, err
	}
	due, is, err := queue.NextTimer(s.node.Store())
	return is && due <= s.now(), err
}

// wireLeases makes the answer with leases.
func (s *Service) wireLeases(leases []queue.Held) (*runlogv1.LeaseRunsResponse, error) {
	resp := &runlogv1.LeaseRunsResponse{}
	for i := range leases {
		m, err := s.wireLease(&leases[i])
		if err != nil {
			return nil, err
		}
		resp.Leases = append(resp.Leases, m)
	}
	return resp, nil
}

func (s *Service) wireLease(l *queue.Held) (*runlogv1.Lease, error) {
	m := &runlogv1.Lease{
		RunId: l.RunID, Fence: l.Fence, ExpireTime: wire.Timestamp(l.ExpiresAt),
		StartAttempt: l.StartAttempt, Queue: l.Name.Queue,
	}
	if known := s.recent.get(l.RunID); known != nil && l.AsRequested {
		m.Run, m.Context = known.run, known.context
		return m, nil
	}
	r, first, err := s.node.Store().First(l.RunID)
	if err != nil {
		return nil, err
	}
	if m.Context, err = contextOf(first); err != nil {
		return nil, err
	}
	if r.LastSeq == 1 {
		m.Run = wire.QueuedRun(r)
		return m, nil
	}
	m.Run, err = s.folded(l.RunID)
	return m, err
}

// contextOf returns the context of a request, which is in the first event of its run: RunQueued.
func contextOf(first *storage.Record) (*structpb.Struct, error) {
	if first == nil {
		return nil, nil
	}
	payload := &structpb.Struct{}
	if err := protojson.Unmarshal(first.Payload, payload); err != nil {
		return nil, fmt.Errorf("server: payload of the first event of run %q: %w", first.RunID, err)
	}
	return payload.Fields[contextField].GetStructValue(), nil
}

// parseLease checks every field of a request, and returns how long it waits.
func parseLease(ctx context.Context, req *runlogv1.LeaseRunsRequest) (*queue.LeaseRequest, time.Duration, error) {
	var bad violations
	r := &queue.LeaseRequest{
		Within: queue.Name{Tenant: req.TenantId, Project: req.ProjectId, Environment: req.EnvironmentId, Queue: req.Queue},
		Worker: req.Worker, Max: int(max(1, min(req.Max, queue.MaxLeases+1))), MaxBytes: maxAnswer,
	}
	if req.TenantId == "" {
		tenant, fault := rpc.TenantOf(auth.From(ctx))
		r.Within.Tenant = tenant
		bad.Add("tenantId", fault)
	}
	bad.filter(r.Within)
	if bad.Add("worker", contract.TextFault(req.Worker)); req.Worker == "" {
		bad.Add("worker", "is required: name the worker, for the people who look for the run")
	}
	if r.Max > queue.MaxLeases {
		bad.Add("max", fmt.Sprintf("is %d: send 1 to %d, or leave it out for 1", req.Max, queue.MaxLeases))
	}
	wait := bad.Duration("wait", req.Wait, 0, maxWait, 0)
	r.TTL = bad.Duration("ttl", req.Ttl, shortest, longest, 0)
	if err := bad.Err(); err != nil {
		return nil, 0, err
	}
	if req.TenantId != "" {
		if err := rpc.CheckProducer(ctx, "tenantId", req.TenantId); err != nil {
			return nil, 0, err
		}
	}
	return r, wait, nil
}

// filter checks the begin of the names of queues.
func (v *violations) filter(n queue.Name) {
	empty := ""
	for _, f := range [...]struct {
		field, value string
		faultOf      func(string) string
	}{
		{"tenantId", n.Tenant, contract.StoredScopeFault}, {"projectId", n.Project, contract.StoredScopeFault},
		{"environmentId", n.Environment, contract.StoredScopeFault}, {"queue", n.Queue, contract.StoredNameFault},
	} {
		switch {
		case f.value == "" && empty == "":
			empty = f.field
		case f.value != "" && empty != "":
			v.Add(f.field, "is set, but "+empty+" is not: a filter has no gaps")
		}
		if f.value != "" {
			v.Add(f.field, f.faultOf(f.value))
		}
	}
}

// turns remembers with which queue the last lease of each filter ended, so that queues take turns
// (QUE-6). Another leader begins with the first queue.
type turns struct {
	mu   sync.Mutex
	last map[queue.Name]queue.Name // by filter
}

// maxTurns bounds what is remembered. Beyond it everything is forgotten.
const maxTurns = 1000

func (t *turns) after(within queue.Name) queue.Name {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[within]
}

func (t *turns) took(within, last queue.Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || len(t.last) >= maxTurns {
		t.last = map[queue.Name]queue.Name{}
	}
	t.last[within] = last
}
