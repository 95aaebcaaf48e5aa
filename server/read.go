package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/cluster"
	"runlog/storage"
)

const (
	// maxPage is the most, and the default, of events in a page (READ-1).
	maxPage = 1000
	// pageBytes closes a page or a batch early, so that it stays under what clients take by default
	// (4 MiB): one payload may add up to 1 MiB.
	pageBytes = 2 << 20
	// maxScan bounds how many events one filtered page looks at.
	maxScan = 10_000
	// streamBatch is how many events ReadEvents sends at a time.
	streamBatch = 256
	// maxTypes bounds the types that a list is filtered by: every event is compared to each.
	maxTypes = 100
)

type eventService struct {
	runlogv1.UnimplementedEventServiceServer
	s *Server
}

// ListEvents returns a page of a run's events, in runSeq order (READ-1, READ-2).
func (e *eventService) ListEvents(ctx context.Context, req *runlogv1.ListEventsRequest) (_ *runlogv1.ListEventsResponse, err error) {
	size, err := pageSize(req.PageSize, maxPage, maxPage)
	if err != nil {
		return nil, statusOf(err)
	}
	if n := len(req.Types); n > maxTypes {
		return nil, statusOf(invalid("types", fmt.Sprintf("are %d, at most %d", n, maxTypes)))
	}
	v, err := e.s.view(ctx, req.RunId, req.Consistency, req.MinSeq)
	if err != nil {
		return nil, statusOf(err)
	}
	defer func() { err = statusOf(errors.Join(err, v.Close())) }()
	p, err := readPage(v.View, pageQuery{after: req.AfterSeq, last: v.Run.LastSeq, size: size, types: req.Types, form: req.PayloadForm})
	if err != nil {
		return nil, err
	}
	return &runlogv1.ListEventsResponse{
		Events: p.events, NextAfterSeq: p.next, LastSeq: v.Run.LastSeq, Applied: v.applied(),
	}, nil
}

// ReadEvents streams a run's events in runSeq order, as many as there are when it begins (READ-1).
// It holds nothing of the store while it waits for a slow reader.
func (e *eventService) ReadEvents(req *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
	r, err := e.s.view(stream.Context(), req.RunId, req.Consistency, 0)
	if err != nil {
		return statusOf(err)
	}
	v, last, left := r.View, r.Run.LastSeq, req.Limit
	for after := req.AfterSeq; ; {
		size := streamBatch
		if req.Limit > 0 {
			size = int(min(left, streamBatch))
		}
		p, err := readPage(v, pageQuery{after: after, last: last, size: size, form: req.PayloadForm})
		if err := errors.Join(err, v.Close()); err != nil {
			return statusOf(err)
		}
		if len(p.events) > 0 {
			if err := stream.Send(&runlogv1.ReadEventsResponse{Events: p.events, LastSeq: last}); err != nil {
				return err
			}
		}
		left -= min(left, uint64(len(p.events)))
		if p.next == 0 || req.Limit > 0 && left == 0 {
			return nil
		}
		after = p.next
		if v, err = e.s.store.View(req.RunId); err != nil {
			return statusOf(err)
		}
	}
}

// pageQuery asks for the events of a run after one runSeq and up to another.
type pageQuery struct {
	after, last uint64
	size        int
	types       []string // empty: all
	form        runlogv1.PayloadForm_Form
}

type page struct {
	events []*runlogv1.EventRecord
	next   uint64 // where the next page goes on; 0 at the end
}

// readPage ends early when it has looked at maxScan events or gathered pageBytes.
func readPage(v *storage.View, q pageQuery) (page, error) {
	var p page
	var looked, bytes int
	at := q.after
	for rec, err := range v.Events(q.after) {
		if err != nil {
			return page{}, err
		}
		if rec.RunSeq > q.last {
			break
		}
		if len(p.events) == q.size || looked == maxScan || bytes >= pageBytes {
			p.next = at
			break
		}
		looked++
		at = rec.RunSeq
		if len(q.types) > 0 && !slices.Contains(q.types, rec.Type) {
			continue
		}
		m, err := encodeRecord(rec, q.form)
		if err != nil {
			return page{}, err
		}
		bytes += proto.Size(m)
		p.events = append(p.events, m)
	}
	return p, nil
}

// pageSize takes 0 as the default and refuses more than the most.
func pageSize(asked uint32, standard, most int) (int, error) {
	switch {
	case asked == 0:
		return standard, nil
	case int64(asked) > int64(most):
		return 0, invalid("pageSize", fmt.Sprintf("is %d, at most %d", asked, most))
	default:
		return int(asked), nil
	}
}

// reading is a view of a run, and how far the store was before it was opened.
type reading struct {
	*storage.View
	at storage.Applied
}

func (r *reading) applied() *runlogv1.AppliedState { return encodeApplied(r.at) }

func encodeApplied(at storage.Applied) *runlogv1.AppliedState {
	return &runlogv1.AppliedState{Position: formatPosition(at.Position()), PersistedAt: timestamp(at.PersistedAt)}
}

// view opens a run for reading with the consistency asked for, once it has reached minSeq (READ-2).
func (s *Server) view(ctx context.Context, runID string, level runlogv1.Consistency_Level, minSeq uint64) (*reading, error) {
	if err := s.admit(ctx, runID, level); err != nil {
		return nil, err
	}
	return s.open(ctx, runID, minSeq)
}

// admit returns when the run may be read with the consistency asked for.
func (s *Server) admit(ctx context.Context, runID string, level runlogv1.Consistency_Level) error {
	if fault := contract.NameFault(runID); fault != "" {
		return invalid("runId", fault)
	}
	return s.readable(ctx, level)
}

// open opens a run that may be read, once it has reached minSeq.
func (s *Server) open(ctx context.Context, runID string, minSeq uint64) (*reading, error) {
	ctx, cancel := s.waiting(ctx)
	defer cancel()
	var last uint64
	for {
		at := s.store.Applied()
		v, err := s.store.View(runID)
		var missing *storage.RunNotFoundError
		switch {
		case err == nil && v.Run.LastSeq >= minSeq:
			return &reading{View: v, at: at}, nil
		case err == nil:
			last = v.Run.LastSeq
			if err := v.Close(); err != nil {
				return nil, err
			}
		case minSeq == 0 || !errors.As(err, &missing):
			return nil, err
		}
		if s.store.Wait(ctx, at.Position()) == nil {
			continue
		}
		if cause := context.Cause(ctx); errors.Is(cause, errStopping) || errors.Is(cause, context.Canceled) {
			return nil, fmt.Errorf("run %q has not reached runSeq %d: %w", runID, minSeq, cause)
		}
		if err != nil {
			return nil, err
		}
		return nil, &contract.Error{Reason: contract.ReasonNotReached,
			Message: fmt.Sprintf("run %q has not reached runSeq %d: it is at %d", runID, minSeq, last),
			Metadata: map[string]string{
				"run_id": runID, "min_seq": strconv.FormatUint(minSeq, 10), "last_seq": strconv.FormatUint(last, 10),
			}}
	}
}

// waiting bounds how long a read waits for what it asks for, by MaxWait and by the end of the node.
// The cause of the context is then errStopping.
func (s *Server) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithTimeout(ctx, s.opts.MaxWait)
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(s.stopping, func() { cancel(errStopping) })
	return ctx, func() {
		forget()
		cancel(nil)
		end()
	}
}

// readable returns when the store may be read with the consistency asked for (READ-2, D8).
func (s *Server) readable(ctx context.Context, level runlogv1.Consistency_Level) error {
	if level == runlogv1.Consistency_LOCAL {
		return nil
	}
	return s.askLeader(ctx, func(leadership *cluster.Leadership) error { return s.readableIn(ctx, leadership) })
}

// leaderWait bounds how long a call waits for a leader: by LeaderWait, and so that time is left to
// tell the caller that there is none before the call's own deadline.
func (s *Server) leaderWait(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := s.opts.LeaderWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)*9/10)
	}
	return context.WithTimeout(ctx, wait)
}

// askLeader asks who leads, until somebody has who does. While nobody leads it waits as leaderWait
// says.
func (s *Server) askLeader(ctx context.Context, ask func(*cluster.Leadership) error) error {
	waiting, cancel := s.leaderWait(ctx)
	defer cancel()
	var tried *cluster.Leadership
	for {
		if s.cluster.AwaitLeader(waiting, tried) != nil {
			return s.notLeader()
		}
		leadership, err := s.cluster.Leader()
		if err != nil {
			continue
		}
		err = ask(leadership)
		if err == nil || !errors.Is(err, raft.ErrNotLeader) {
			return err
		}
		tried = s.retriable(waiting, leadership)
	}
}

// readableIn returns when everything that was acknowledged before the call is applied here.
func (s *Server) readableIn(ctx context.Context, leadership *cluster.Leadership) error {
	if leadership.Link == nil {
		return s.node.ConfirmLeader(ctx)
	}
	position, err := s.cluster.ReadPosition(ctx, leadership)
	if err != nil {
		return err
	}
	return s.awaitPosition(ctx, position)
}
