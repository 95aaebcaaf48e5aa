package queue

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

const (
	// longestDelay is maxYears as a duration.
	longestDelay = maxYears * 366 * 24 * time.Hour
	// maxAttempts bounds how often a run is leased.
	maxAttempts = 1000
)

// PutQueue changes the settings of a queue, or makes it (QUE-3, QUE-10).
func (s *Service) PutQueue(ctx context.Context, req *runlogv1.PutQueueRequest) (*runlogv1.PutQueueResponse, error) {
	var bad violations
	name := bad.queueName(req, true)
	change := bad.settings(req.Settings)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if err := rpc.CheckProducer(ctx, "tenantId", req.TenantId); err != nil {
		return nil, err
	}
	op, err := queue.Put(name, change)
	if err != nil {
		return nil, err
	}
	q, err := s.change(ctx, name, op)
	return &runlogv1.PutQueueResponse{Queue: q}, err
}

// PauseQueue stops the leases of a queue.
func (s *Service) PauseQueue(ctx context.Context, req *runlogv1.PauseQueueRequest) (*runlogv1.PauseQueueResponse, error) {
	q, err := s.pause(ctx, req, true)
	return &runlogv1.PauseQueueResponse{Queue: q}, err
}

// ResumeQueue ends a pause.
func (s *Service) ResumeQueue(ctx context.Context, req *runlogv1.ResumeQueueRequest) (*runlogv1.ResumeQueueResponse, error) {
	q, err := s.pause(ctx, req, false)
	return &runlogv1.ResumeQueueResponse{Queue: q}, err
}

// named is a request that names a queue.
type named interface {
	GetTenantId() string
	GetProjectId() string
	GetEnvironmentId() string
	GetQueue() string
}

// known checks the name of a queue. A queue of a tenant that the caller does not see is not found.
func known(ctx context.Context, req named) (queue.Name, error) {
	var bad violations
	name := bad.queueName(req, false)
	if err := bad.Err(); err != nil {
		return name, err
	}
	if !auth.From(ctx).Sees(name.Tenant) {
		return name, notFound(name)
	}
	return name, nil
}

func (s *Service) pause(ctx context.Context, req named, paused bool) (*runlogv1.Queue, error) {
	name, err := known(ctx, req)
	if err != nil {
		return nil, err
	}
	op, err := queue.Pause(name, paused)
	if err != nil {
		return nil, err
	}
	return s.change(ctx, name, op)
}

// change executes an operation, and returns the queue after it.
func (s *Service) change(ctx context.Context, name queue.Name, op storage.Operation) (*runlogv1.Queue, error) {
	if _, err := s.execute(ctx, op); err != nil {
		return nil, refusal(err)
	}
	return s.find(name)
}

func (s *Service) find(name queue.Name) (*runlogv1.Queue, error) {
	q, err := queue.Find(s.node.Store(), name)
	if err != nil {
		return nil, err
	}
	if q == nil {
		return nil, notFound(name)
	}
	return s.wireQueue(q), nil
}

// settings checks the settings of a request.
func (v *violations) settings(m *runlogv1.QueueSettings) (c queue.Change) {
	if m == nil {
		return c
	}
	c.MaxRunning, c.MaxQueued, c.Paused, c.MaxStartAttempts = m.MaxRunning, m.MaxQueued, m.Paused, m.MaxStartAttempts
	if n := m.MaxStartAttempts; n != nil && (*n < 1 || *n > maxAttempts) {
		v.Add("settings.maxStartAttempts", fmt.Sprintf("is %d: send 1 to %d", *n, maxAttempts))
	}
	onFull, ok := map[runlogv1.OnFull_Value]queue.OnFull{
		runlogv1.OnFull_REJECT: queue.OnFullReject, runlogv1.OnFull_QUEUE: queue.OnFullQueue, runlogv1.OnFull_DELAY: queue.OnFullDelay,
	}[m.OnFull]
	switch {
	case ok:
		c.OnFull = &onFull
	case m.OnFull != runlogv1.OnFull_VALUE_UNSPECIFIED:
		v.Add("settings.onFull", "is not REJECT, QUEUE or DELAY")
	}
	for _, f := range [...]struct {
		field       string
		given       *durationpb.Duration
		least, most time.Duration
		to          **time.Duration
	}{
		{"settings.delay", m.Delay, 0, longestDelay, &c.Delay},
		{"settings.leaseTtl", m.LeaseTtl, shortest, longest, &c.LeaseTTL},
		{"settings.agingPeriod", m.AgingPeriod, shortest, longestDelay, &c.AgingPeriod},
		{"settings.drainTimeout", m.DrainTimeout, 0, longestDelay, &c.DrainTimeout},
	} {
		if f.given != nil {
			d := v.Duration(f.field, f.given, f.least, f.most, 0)
			*f.to = &d
		}
	}
	return c
}

func (s *Service) wireQueue(q *queue.Queue) *runlogv1.Queue {
	settings := &q.Settings
	onFull := map[queue.OnFull]runlogv1.OnFull_Value{
		queue.OnFullReject: runlogv1.OnFull_REJECT, queue.OnFullQueue: runlogv1.OnFull_QUEUE, queue.OnFullDelay: runlogv1.OnFull_DELAY,
	}[settings.OnFull]
	var drainTimeout *durationpb.Duration
	if settings.DrainTimeout > 0 {
		drainTimeout = durationpb.New(settings.DrainTimeout)
	}
	return &runlogv1.Queue{
		TenantId: q.Name.Tenant, ProjectId: q.Name.Project, EnvironmentId: q.Name.Environment, Queue: q.Name.Queue,
		Settings: &runlogv1.QueueSettings{
			MaxRunning: &settings.MaxRunning, MaxQueued: &settings.MaxQueued, OnFull: onFull, Delay: durationpb.New(settings.Delay),
			LeaseTtl: durationpb.New(settings.LeaseTTL), MaxStartAttempts: &settings.MaxStartAttempts, AgingPeriod: durationpb.New(settings.AgingPeriod),
			Paused: &settings.Paused, DrainTimeout: drainTimeout,
		},
		CreatedAt: wire.Timestamp(q.CreatedAt), Depth: q.Depth(), Ready: q.Ready, Delayed: q.Delayed, Leased: q.Leased, Running: q.Running,
		ReadyByPriority: q.ReadyBy[:], OldestAt: wire.Timestamp(q.OldestAt),
		RequestsTotal: q.Requests, StartsTotal: q.Starts, EndsTotal: q.Ends,
		HeldReason: rpc.HeldReason(s.node.Store()),
	}
}
