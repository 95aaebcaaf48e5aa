package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage/machine/queue"
)

const (
	standardPage = 100
	largestPage  = 1000
)

// GetQueue returns a queue with its settings and counts (QUE-10).
func (s *Service) GetQueue(ctx context.Context, req *runlogv1.GetQueueRequest) (*runlogv1.GetQueueResponse, error) {
	name, err := known(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	q, err := s.find(name)
	return &runlogv1.GetQueueResponse{Queue: q, Applied: rpc.Applied(s.node.Store().Applied())}, err
}

// ListQueues pages through queues in the order of their names (QUE-10).
func (s *Service) ListQueues(ctx context.Context, req *runlogv1.ListQueuesRequest) (*runlogv1.ListQueuesResponse, error) {
	size, err := rpc.PageSize(req.PageSize, standardPage, largestPage)
	if err != nil {
		return nil, err
	}
	within := queue.Name{Tenant: req.TenantId, Project: req.ProjectId, Environment: req.EnvironmentId}
	var bad violations
	if bad.filter(within); len(bad.Violations) > 0 {
		return nil, bad.Err()
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	tokens := rpc.NewTokenDomain("list of queues", s.node.Store().Incarnation(), req.TenantId, req.ProjectId, req.EnvironmentId)
	behind, err := nameIn(&tokens, req.PageToken)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.ListQueuesResponse{Applied: rpc.Applied(s.node.Store().Applied())}
	list, more, err := s.list(ctx, within, behind, size)
	if err != nil {
		return nil, err
	}
	for _, q := range list {
		resp.Queues = append(resp.Queues, s.wireQueue(q))
	}
	if more {
		n := list[len(list)-1].Name
		resp.NextPageToken = tokens.Seal(rpc.TokenQueues, []byte(strings.Join([]string{n.Tenant, n.Project, n.Environment, n.Queue}, "\x00")))
	}
	return resp, nil
}

// list returns the next queues of the tenants that the caller sees.
func (s *Service) list(ctx context.Context, within, behind queue.Name, size int) (list []*queue.Queue, more bool, err error) {
	tenant, among := rpc.ShownTenants(ctx, within.Tenant)
	if len(among) == 0 {
		within.Tenant = tenant
		return queue.List(s.node.Store(), within, behind, size)
	}
	for i, name := range among { // They are sorted.
		if name < behind.Tenant {
			continue
		}
		within.Tenant = name
		var page []*queue.Queue
		if page, more, err = queue.List(s.node.Store(), within, behind, size-len(list)); err != nil {
			return nil, false, err
		}
		if list = append(list, page...); more || len(list) == size && i+1 < len(among) {
			return list, true, nil
		}
	}
	return list, false, nil
}

// badToken refuses a page token.
func badToken(of string) error {
	return rpc.Invalid("pageToken", "is not a token of "+of+": pass on nextPageToken as you got it, with the same filter"+rpc.StartAgain)
}

// nameIn returns the name in a page token; zero: the first page.
func nameIn(tokens *rpc.TokenDomain, token string) (n queue.Name, err error) {
	if token == "" {
		return n, nil
	}
	body, ok := tokens.OpenAs(rpc.TokenQueues, token)
	parts := strings.Split(string(body), "\x00")
	if !ok || len(parts) != 4 {
		return n, tokens.Refused("pageToken", token, badToken("this list of queues"))
	}
	return queue.Name{Tenant: parts[0], Project: parts[1], Environment: parts[2], Queue: parts[3]}, nil
}

// ListQueuedRuns pages through the runs of a queue (QUE-10).
func (s *Service) ListQueuedRuns(ctx context.Context, req *runlogv1.ListQueuedRunsRequest) (*runlogv1.ListQueuedRunsResponse, error) {
	size, err := rpc.PageSize(req.PageSize, standardPage, largestPage)
	if err != nil {
		return nil, err
	}
	states, err := statesOf(req.State)
	if err != nil {
		return nil, err
	}
	name, err := known(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	tokens := rpc.NewTokenDomain("runs of a queue", s.node.Store().Incarnation(), name.Tenant, name.Project, name.Environment, name.Queue, fmt.Sprint(states))
	var place []byte
	if req.PageToken != "" {
		var ok bool
		if place, ok = tokens.OpenAs(rpc.TokenQueuedRuns, req.PageToken); !ok {
			return nil, tokens.Refused("pageToken", req.PageToken, badToken("this list of runs"))
		}
	}
	if _, err := s.find(name); err != nil {
		return nil, err
	}
	resp := &runlogv1.ListQueuedRunsResponse{Applied: rpc.Applied(s.node.Store().Applied())}
	list, next, err := queue.ListRuns(s.node.Store(), name, s.now(), states, place, size)
	if errors.Is(err, queue.ErrToken) {
		return nil, badToken("this list of runs")
	}
	for _, r := range list {
		resp.Runs = append(resp.Runs, wireQueued(r))
	}
	if len(next) > 0 {
		resp.NextPageToken = tokens.Seal(rpc.TokenQueuedRuns, next)
	}
	return resp, err
}

// statesOf converts the states of a filter, each once.
func statesOf(list []runlogv1.QueuedRunState_Value) (states []queue.State, err error) {
	for _, m := range list {
		if m < runlogv1.QueuedRunState_READY || m > runlogv1.QueuedRunState_EXHAUSTED {
			return nil, rpc.Invalid("state", "has "+contract.Quote(m.String())+": send READY, DELAYED, LEASED, RUNNING or EXHAUSTED")
		}
		states = append(states, queue.State(m))
	}
	slices.Sort(states)
	return slices.Compact(states), nil
}

func wireQueued(r *queue.Run) *runlogv1.QueuedRun {
	return &runlogv1.QueuedRun{
		RunId: r.RunID, State: wireState(r.State), Priority: r.Priority, EnqueuedAt: wire.Timestamp(r.EnqueuedAt),
		NotBefore: wire.Timestamp(r.NotBefore), StartAttempts: r.StartAttempts, Worker: r.Worker, LeaseExpireTime: wire.Timestamp(r.ExpiresAt),
	}
}
