package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/replica/batch"
	"runlog/server/rpc/decode"
	"runlog/storage"
)

// batchParallel is how many requests of one BatchAppend are encoded and waited for at a time.
const batchParallel = 64

// AppendEvents stores events of one run, all or none (APP-3).
func (e *eventService) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	resp, err := e.appendEvents(ctx, req)
	return resp, statusOf(err)
}

func (e *eventService) appendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	return atLeader(ctx, e.s, leaderRoute[*runlogv1.AppendEventsResponse]{
		here: func() (*runlogv1.AppendEventsResponse, error) { return e.appendHere(ctx, req) },
		there: func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) (*runlogv1.AppendEventsResponse, error) {
			return runlogv1.NewEventServiceClient(conn).AppendEvents(ctx, req, opts...)
		},
	})
}

// appendHere appends at this node, which leads.
func (e *eventService) appendHere(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	a, err := e.s.parseAppend(req)
	if err != nil {
		return nil, err
	}
	outcome, results, err := e.s.append(ctx, &a)
	if err != nil {
		return nil, err
	}
	return &runlogv1.AppendEventsResponse{
		Results:  results,
		LastSeq:  outcome.LastSeq,
		Position: formatPosition(outcome.Position),
	}, nil
}

// BatchAppend appends to several runs, atomic per run, and answers per run (APP-3). Requests of one
// run are appended in their order.
func (e *eventService) BatchAppend(ctx context.Context, req *runlogv1.BatchAppendRequest) (*runlogv1.BatchAppendResponse, error) {
	events := 0
	for _, r := range req.Requests {
		events += len(r.GetEvents())
	}
	if err := decode.CheckBatch(len(req.Requests), events); err != nil {
		return nil, encodeError(err)
	}
	out := &runlogv1.BatchAppendResponse{Outcomes: make([]*runlogv1.BatchAppendOutcome, len(req.Requests))}
	byRun := map[string][]int{}
	var order []string
	for i, r := range req.Requests {
		if byRun[r.GetRunId()] == nil {
			order = append(order, r.GetRunId())
		}
		byRun[r.GetRunId()] = append(byRun[r.GetRunId()], i)
	}
	budget := min(trailerBudget, batchBudget/len(req.Requests))
	slots := make(chan struct{}, batchParallel)
	var done sync.WaitGroup
	for _, run := range order {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			for _, i := range byRun[run] {
				out.Outcomes[i] = e.batchOne(ctx, req.Requests[i], budget)
			}
		})
	}
	done.Wait()
	return out, nil
}

func (e *eventService) batchOne(ctx context.Context, req *runlogv1.AppendEventsRequest, budget int) *runlogv1.BatchAppendOutcome {
	resp, err := e.appendEvents(ctx, req)
	if err != nil {
		if own := asContract(err); own != nil {
			err = encodeWithin(own, budget)
		}
		return &runlogv1.BatchAppendOutcome{Status: status.Convert(statusOf(err)).Proto()}
	}
	return &runlogv1.BatchAppendOutcome{Results: resp.Results, LastSeq: resp.LastSeq, Position: resp.Position}
}

// gate is how events of a run are let in.
func (s *Server) gate(runID string) contract.Options {
	return contract.Options{
		RunID:              runID,
		MaxPayloadBytes:    s.opts.MaxPayloadBytes,
		RefuseUnknownTypes: s.opts.RefuseUnknownTypes,
		OpaqueKeys:         s.opts.OpaqueKeys,
	}
}

// append encodes a request, puts it into the log and answers for each of its events.
func (s *Server) append(ctx context.Context, a *storage.Append) (storage.Outcome, []*runlogv1.AppendResult, error) {
	a.AppendedBy = identityOf(ctx)
	cmd, err := storage.EncodeAppend(a)
	if err != nil {
		return storage.Outcome{}, nil, err
	}
	held, err := s.hold(a)
	if err != nil {
		return storage.Outcome{}, nil, err
	}
	defer s.held.Add(-held)
	ticket, err := s.enqueue(cmd)
	if err != nil {
		return storage.Outcome{}, nil, err
	}
	return s.settle(ctx, a, ticket)
}

// heldEvent is about what an event takes in memory beside its payload.
const heldEvent = 512

// hold counts the events of a request that wait for their answer, which the batcher's queue counts
// compressed, and refuses more than the node has memory for (APP-9, D12). The caller gives back
// what is returned.
func (s *Server) hold(a *storage.Append) (int64, error) {
	size := int64(0)
	for i := range a.Events {
		size += heldEvent + int64(len(a.Events[i].Payload))
	}
	if now := s.held.Add(size); now > s.opts.MemoryBytes/8 && now > size {
		s.held.Add(-size)
		return 0, &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: overloadDelay,
			Message: "the node has as many events waiting as its memory allows; the request was not stored"}
	}
	return size, nil
}

// settle waits for an admitted request and answers for each of its events.
func (s *Server) settle(ctx context.Context, a *storage.Append, ticket batch.Ticket) (storage.Outcome, []*runlogv1.AppendResult, error) {
	outcome, err := ticket.Wait(ctx)
	if err == nil {
		err = outcome.Err
	}
	if err != nil {
		return storage.Outcome{}, nil, err
	}
	results, err := s.appendResults(a, &outcome)
	return outcome, results, err
}

func (s *Server) appendResults(a *storage.Append, outcome *storage.Outcome) ([]*runlogv1.AppendResult, error) {
	inserted := &timestamppb.Timestamp{Seconds: outcome.PersistedAt / 1e9, Nanos: int32(outcome.PersistedAt % 1e9)}
	results := make([]*runlogv1.AppendResult, len(outcome.Results))
	rows := make([]runlogv1.AppendResult, len(outcome.Results))
	var duplicates int
	for i := range outcome.Results {
		r := &outcome.Results[i]
		rows[i].EventId = r.EventID.String()
		rows[i].RunSeq = r.RunSeq
		rows[i].PersistedAt = inserted
		rows[i].Persisted = !r.Duplicate
		rows[i].Idempotent = r.Duplicate
		if r.Duplicate {
			duplicates++
			rows[i].PersistedAt = timestamp(r.PersistedAt)
			if !r.SameContent {
				diverged, err := s.diverged(&a.Events[i], r.RunSeq)
				if err != nil {
					return nil, err
				}
				rows[i].Diverged = diverged
			}
		}
		results[i] = &rows[i]
	}
	s.metrics.inserted.Add(float64(len(results) - duplicates))
	s.metrics.duplicates.Add(float64(duplicates))
	return results, nil
}

// diverged compares a duplicate whose bytes differ with the stored event, as JSON values (IDM-7).
// It is worked out here and not in apply, because it changes nothing and costs a read.
func (s *Server) diverged(e *contract.Event, seq uint64) (_ bool, err error) {
	v, err := s.store.View(e.RunID)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	for stored, err := range v.Events(seq - 1) {
		if err != nil {
			return false, err
		}
		given := *e
		inherit(&given, v.Run)
		if contract.SameContent(&stored.Event, &given) {
			return false, nil
		}
		s.metrics.diverged.Inc()
		s.log.Warn("duplicate with other content, the first write stays",
			"run", e.RunID, "seq", seq, "type", e.Type, "key", e.IdempotencyKey)
		return true, nil
	}
	return false, fmt.Errorf("server: run %q has a receipt for runSeq %d and no event", e.RunID, seq)
}

// inherit fills in what a sparse event leaves out, as reading does (ENV-1).
func inherit(e *contract.Event, r *storage.Run) {
	for _, f := range [...]struct {
		bit  contract.Absent
		have *string
		run  string
	}{
		{contract.AbsentTenant, &e.TenantID, r.Scope.TenantID},
		{contract.AbsentProject, &e.ProjectID, r.Scope.ProjectID},
		{contract.AbsentEnvironment, &e.EnvironmentID, r.Scope.EnvironmentID},
		{contract.AbsentPlan, &e.PlanID, r.PlanID},
		{contract.AbsentPlanVersion, &e.PlanVersion, r.PlanVersion},
	} {
		if e.Absent&f.bit != 0 {
			*f.have = f.run
		}
	}
}
