package events

import (
	"context"
	"sync"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/server/rpc/wire"
)

// batchParallel limits the runs of one BatchAppend that are appended to at the same time.
const batchParallel = 64

// AppendEvents stores events of one run, all or none (APP-3).
func (s *Service) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	a, err := s.parse(ctx, req)
	if err == nil {
		err = rpc.CheckAppend(ctx, s.node, &a)
	}
	if err != nil {
		return nil, err
	}
	done, err := s.node.Append(ctx, &a)
	if err != nil {
		return nil, rpc.RefusedAppend(ctx, s.node.Store(), a.RunID, err)
	}
	return &runlogv1.AppendEventsResponse{
		Results:  wire.Results(a.Events, &done.Outcome, done.Diverged, done.Keys),
		LastSeq:  done.LastSeq,
		Position: rpc.FormatPosition(s.node.Store().Incarnation(), done.Position),
	}, nil
}

// BatchAppend appends to several runs, atomically per run, and answers per request (APP-3).
// Requests of one run are appended in their order.
func (s *Service) BatchAppend(ctx context.Context, req *runlogv1.BatchAppendRequest) (*runlogv1.BatchAppendResponse, error) {
	events := 0
	for _, r := range req.Requests {
		events += len(r.GetEvents())
	}
	if err := decode.CheckBatch(len(req.Requests), events); err != nil {
		return nil, err
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
	ctx = rpc.InParts(ctx)
	budget := min(rpc.TrailerBudget, rpc.BatchBudget/len(req.Requests))
	slots := make(chan struct{}, batchParallel)
	var done sync.WaitGroup
	for _, run := range order {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			for _, i := range byRun[run] {
				out.Outcomes[i] = s.batchOne(ctx, req.Requests[i], budget)
			}
		})
	}
	done.Wait()
	return out, nil
}

// batchOne answers one request of a batch, here or at the leader.
func (s *Service) batchOne(ctx context.Context, req *runlogv1.AppendEventsRequest, budget int) *runlogv1.BatchAppendOutcome {
	answer, err := s.opts.AtLeader(ctx, runlogv1.EventService_AppendEvents_FullMethodName, req, s.appendOne)
	if err != nil {
		rpc.RecordDeniedPart(ctx, runlogv1.EventService_BatchAppend_FullMethodName, err)
		return &runlogv1.BatchAppendOutcome{Status: rpc.Within(err, budget).Proto()}
	}
	resp := answer.(*runlogv1.AppendEventsResponse)
	return &runlogv1.BatchAppendOutcome{Results: resp.Results, LastSeq: resp.LastSeq, Position: resp.Position}
}

// appendOne is AppendEvents as a grpc.UnaryHandler.
func (s *Service) appendOne(ctx context.Context, req any) (any, error) {
	return s.AppendEvents(ctx, req.(*runlogv1.AppendEventsRequest))
}
