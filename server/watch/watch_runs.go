package watch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/storage"
)

// existingPage is the number of existing runs that a watch reads at a time.
const existingPage = 256

// WatchRuns streams the watermarks of the runs that match a filter, in commit order (WATCH-2). A
// slow reader gets the newest of each run (WATCH-3). Heartbeats follow while nothing changes
// (WATCH-4).
func (s *Service) WatchRuns(req *runlogv1.WatchRunsRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunsResponse]) error {
	ctx, cancel := s.watching(stream.Context())
	defer cancel()
	return endOf(ctx, s.watchRuns(ctx, req, stream))
}

// runsWatch is one stream about many runs.
type runsWatch struct {
	s      *Service
	sub    *watch.RunsSubscription
	stream grpc.ServerStreamingServer[runlogv1.WatchRunsResponse]
	tokens runsTokens
}

func (s *Service) watchRuns(ctx context.Context, req *runlogv1.WatchRunsRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunsResponse]) error {
	filter, err := runsFilter(req)
	if err != nil {
		return err
	}
	filter.TenantID, filter.Tenants = rpc.ShownTenants(ctx, req.TenantId)
	if err := s.confirm(ctx, req.Consistency); err != nil {
		return err
	}
	if req.View == runlogv1.WatchView_EVENT {
		return s.watchLog(ctx, req, &filter, stream)
	}
	w := runsWatch{s: s, stream: stream, tokens: newRunsTokens(s.node.Store().Incarnation(), &filter)}
	from, listing, err := w.begin(ctx, req)
	if err != nil {
		return err
	}
	if w.sub, err = s.opts.Projector.SubscribeRuns(filter, from); err != nil {
		return tooManyWatchers(err)
	}
	defer w.sub.Close()
	if err := w.existing(ctx, listing); err != nil {
		return err
	}
	caughtUp := false
	for err == nil {
		if !caughtUp && w.sub.CaughtUp() {
			caughtUp = true
			if err := w.send(&runlogv1.WatchRunsResponse{Kind: &runlogv1.WatchRunsResponse_CaughtUp{CaughtUp: &runlogv1.CaughtUp{}}}, w.place()); err != nil {
				return err
			}
		}
		idle, cancel := context.WithTimeout(ctx, s.opts.Heartbeat)
		err = w.next(idle)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = w.send(&runlogv1.WatchRunsResponse{Kind: &runlogv1.WatchRunsResponse_Heartbeat{Heartbeat: &runlogv1.Heartbeat{}}}, w.place())
		}
	}
	return err
}

// runsFilter checks the view and the filter of a request.
func runsFilter(req *runlogv1.WatchRunsRequest) (f run.Filter, err error) {
	f = run.Filter{
		TenantID: req.TenantId, ProjectID: req.ProjectId, EnvironmentID: req.EnvironmentId, PlanID: req.PlanId,
		PlanVersion: req.PlanVersion, RunIDPrefix: req.RunIdPrefix,
	}
	events := req.View == runlogv1.WatchView_EVENT
	switch {
	case !events && req.View != runlogv1.WatchView_WATERMARK && req.View != runlogv1.WatchView_KIND_UNSPECIFIED:
		return f, rpc.Invalid("view", "is not a view of many runs; the views are WATERMARK and EVENT")
	case events && len(req.Status) > 0:
		return f, rpc.Invalid("status", "selects no events: the view EVENT sends those of runs in any status; leave it out")
	case events && req.IncludeExisting:
		return f, rpc.Invalid("includeExisting", "is not for events; afterPosition sends earlier events")
	case !events && len(req.Types) > 0:
		return f, rpc.Invalid("types", "selects events; set view=EVENT")
	case !events && req.AfterPosition != "":
		return f, rpc.Invalid("afterPosition", "is for events; set view=EVENT, or use includeExisting")
	}
	if err := rpc.CheckTypes(req.Types).Err(); err != nil {
		return f, err
	}
	if err := rpc.CheckPlanVersion(req.PlanId, req.PlanVersion); err != nil {
		return f, err
	}
	f.Statuses, err = rpc.Statuses(req.Status)
	return f, err
}

// begin returns the cursor at which a watch begins (nil: now), and the place in the list of
// existing runs (nil: do not list them).
func (w *runsWatch) begin(ctx context.Context, req *runlogv1.WatchRunsRequest) (from *watch.Cursor, listing []byte, err error) {
	applied := w.s.node.Store().Applied()
	if req.ResumeToken != "" {
		at, ok := w.tokens.parse(req.ResumeToken)
		if err := checkResumed(&w.tokens.domain, req.ResumeToken, ok, at.cursor, applied); err != nil {
			return nil, nil, err
		}
		if behind, limit := uint64(applied.Position()-at.cursor.Position), w.s.opts.MaxCatchUp; behind > limit {
			return nil, nil, resumeTokenInvalid(
				fmt.Sprintf("the resume token is too old: it is %d log entries behind, and at most %d are read again", behind, limit),
				map[string]string{"behind": strconv.FormatUint(behind, 10), "limit": strconv.FormatUint(limit, 10)})
		}
		return &at.cursor, at.listing, nil
	}
	// Runs that were acknowledged before the call are in the list and are no changes.
	waiting, cancel := w.s.node.Waiting(ctx)
	defer cancel()
	if w.s.opts.Projector.WaitPosition(waiting, applied.Position()) != nil {
		if cause := context.Cause(waiting); !errors.Is(cause, context.DeadlineExceeded) {
			return nil, nil, cause
		}
		return nil, nil, &contract.Error{Reason: contract.ReasonNotReached, Message: "the projection is behind while it folds the log; retry later"}
	}
	if req.IncludeExisting {
		listing = []byte{}
	}
	return nil, listing, nil
}

// checkResumed refuses a token that was not parsed, and one from the future of the node.
func checkResumed(tokens *rpc.TokenDomain, token string, parsed bool, at watch.Cursor, applied storage.Applied) error {
	switch {
	case !parsed:
		return tokens.Refused("resumeToken", token, resumeTokenInvalid("the resume token belongs to another filter, or was changed", nil))
	case at.Position > applied.Position():
		return resumeTokenInvalid("the resume token is ahead of everything that the node has", nil)
	default:
		return nil
	}
}

func resumeTokenInvalid(what string, metadata map[string]string) *contract.Error {
	return &contract.Error{Reason: contract.ReasonResumeTokenInvalid, Metadata: metadata,
		Message: what + "; watch without a token, and set includeExisting to get the existing runs"}
}

// existing sends the watermarks of runs that already match, from a place in their list.
func (w *runsWatch) existing(ctx context.Context, listing []byte) error {
	for listing != nil {
		cursor := listing
		if len(cursor) == 0 {
			cursor = nil
		}
		page, next, err := w.sub.Existing(ctx, cursor, existingPage)
		if err != nil {
			return err
		}
		for i := range page {
			at := runsPlace{cursor: w.sub.Cursor(), listing: page[i].Next}
			if err := w.send(w.watermark(&page[i].Mark, 0), at); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		listing = next
	}
	return nil
}

// next sends the next changes.
func (w *runsWatch) next(ctx context.Context) error {
	live := w.sub.CaughtUp()
	news, err := w.sub.Next(ctx)
	if err != nil {
		return err
	}
	for _, c := range news {
		var lag time.Duration
		if live && !c.Committed.IsZero() {
			lag = w.s.lag(c.Committed)
		}
		if err := w.send(w.watermark(&c.Mark, lag), runsPlace{cursor: c.Cursor}); err != nil {
			return err
		}
	}
	return nil
}

// place returns the cursor after everything that the watch has received.
func (w *runsWatch) place() runsPlace { return runsPlace{cursor: w.sub.Cursor()} }

func (w *runsWatch) watermark(m *watch.Mark, lag time.Duration) *runlogv1.WatchRunsResponse {
	return &runlogv1.WatchRunsResponse{Kind: &runlogv1.WatchRunsResponse_Watermark{Watermark: w.s.opts.Encoded.Mark(m, w.s.opts.Clock(), lag)}}
}

func (w *runsWatch) send(m *runlogv1.WatchRunsResponse, at runsPlace) error {
	m.ResumeToken = w.tokens.format(at)
	return w.stream.Send(m)
}
