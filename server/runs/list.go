package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector"
	"runlog/projector/list"
	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

const (
	maxRunsPage     = 1000
	defaultRunsPage = 100
	// maxCount is the highest number that a count of runs says.
	maxCount = 10_000
	// remakingPause is the time between two looks at a damaged database that is being rebuilt.
	remakingPause = 20 * time.Millisecond
)

// ListRuns pages through runs. By default the list shows every write that was acknowledged before
// the call (READ-6).
func (s *Service) ListRuns(ctx context.Context, req *runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) {
	size, err := rpc.PageSize(req.PageSize, defaultRunsPage, maxRunsPage)
	if err != nil {
		return nil, err
	}
	filter, err := listFilter(req)
	if err != nil {
		return nil, err
	}
	filter.TenantID, filter.Tenants = rpc.ShownTenants(ctx, req.TenantId)
	if req.Consistency != runlogv1.Consistency_LOCAL {
		if err := s.node.ReadIndex(ctx); err != nil {
			return nil, err
		}
	}
	moment, err := rpc.AsOf(req, nil, s.node.Store().Incarnation())
	if err != nil {
		return nil, err
	}
	token, err := parsePageToken(req.PageToken, s.node.Store().Incarnation(), &filter, moment)
	if err != nil {
		return nil, err
	}
	if moment.Kind != rpc.MomentNow {
		return s.listAsOf(ctx, req, &listAsOf{moment: moment, filter: filter, token: token, size: size})
	}
	least, err := s.least(req, token)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.node.Waiting(ctx)
	defer cancel()
	page, rows, err := s.rows(ctx, least, filter, token, size)
	if err != nil {
		return nil, err
	}
	rest := pageToken{position: max(page.Position, token.position), place: page.Next}
	resp := &runlogv1.ListRunsResponse{Runs: rows, NextPageToken: rest.format(s.node.Store().Incarnation(), &filter, moment), Applied: s.shown(page.Position)}
	if req.Count {
		n, more, err := s.count(ctx, least, filter)
		if err != nil {
			return nil, err
		}
		resp.Count, resp.CountOrMore = &n, &more
	}
	return resp, nil
}

// rows reads a page with its runs, and a smaller one if they do not fit into an answer: labels may
// be large (READ-8).
func (s *Service) rows(ctx context.Context, least storage.Position, f run.Filter, token *pageToken, size int) (list.Page, []*runlogv1.Run, error) {
	for {
		page, err := s.page(ctx, least, f, token, size)
		if err != nil {
			return page, nil, err
		}
		var rows []*runlogv1.Run
		for i := range page.Runs {
			run, err := s.node.Store().Run(page.Runs[i].RunID)
			if err != nil {
				return page, nil, err
			}
			rows = append(rows, s.opts.Encoded.Run(run, &page.Runs[i].Summary, s.opts.Clock()))
		}
		if size = wire.Fitting(rows); size == len(rows) {
			return page, rows, nil
		}
	}
}

// least returns the position that a list must show at least: that of everything acknowledged before
// the call, unless the call is LOCAL, minPosition, and that of the page before.
func (s *Service) least(req *runlogv1.ListRunsRequest, token *pageToken) (storage.Position, error) {
	at, err := s.minPosition(req)
	if err != nil {
		return 0, err
	}
	least := max(token.position, at)
	if req.Consistency == runlogv1.Consistency_LOCAL {
		return least, nil
	}
	applied := s.node.Store().Applied()
	return max(least, applied.Position()), nil
}

// minPosition returns the position that a request demands of its list; 0: none.
func (s *Service) minPosition(req *runlogv1.ListRunsRequest) (storage.Position, error) {
	if req.MinPosition == "" {
		return 0, nil
	}
	return rpc.ParsePosition("minPosition", req.MinPosition, s.node.Store().Incarnation())
}

// page reads a page once the list has reached a position.
func (s *Service) page(ctx context.Context, least storage.Position, f run.Filter, token *pageToken, size int) (page list.Page, err error) {
	err = s.atLeast(ctx, least, func() (storage.Position, error) {
		page, err = s.opts.Projector.List(f, token.place, size)
		return page.Position, err
	})
	return page, err
}

// count counts runs once the list has reached a position.
func (s *Service) count(ctx context.Context, least storage.Position, f run.Filter) (uint32, bool, error) {
	var n int
	var more bool
	err := s.atLeast(ctx, least, func() (at storage.Position, err error) {
		n, more, at, err = s.opts.Projector.Count(f, maxCount)
		return at, err
	})
	return uint32(n), more, err
}

// atLeast calls read until what it has read shows a position.
func (s *Service) atLeast(ctx context.Context, least storage.Position, read func() (storage.Position, error)) error {
	for {
		if err := s.awaitProjection(ctx, least); err != nil {
			return err
		}
		// The projection may have been replaced since, and may be at its begin again.
		if at, err := remade(ctx, read); err != nil || at >= least {
			return err
		}
	}
}

// remade calls read, and again while a damaged database is being rebuilt.
func remade(ctx context.Context, read func() (storage.Position, error)) (storage.Position, error) {
	for {
		at, err := read()
		if !errors.Is(err, projector.ErrRemaking) {
			return at, err
		}
		select {
		case <-ctx.Done():
			return 0, behind(ctx)
		case <-time.After(remakingPause):
		}
	}
}

func (s *Service) awaitProjection(ctx context.Context, at storage.Position) error {
	if s.opts.Projector.WaitPosition(ctx, at) == nil {
		return nil
	}
	return behind(ctx)
}

// behind is the error of a context that ended before a list was as new as it must be.
func behind(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &contract.Error{Reason: contract.ReasonNotReached,
			Message: "the list does not show the newest writes, minPosition or the position of pageToken yet: retry, or send consistency=LOCAL without minPosition to get it as it is"}
	}
	return fmt.Errorf("the list does not show the newest writes, minPosition or pageToken yet: %w", cause)
}

// shown returns how far a list is. It has a time only if the list has everything that is applied.
func (s *Service) shown(at storage.Position) *runlogv1.AppliedState {
	if applied := s.node.Store().Applied(); applied.Position() == at {
		return rpc.Applied(applied)
	}
	return &runlogv1.AppliedState{Position: rpc.FormatPosition(s.node.Store().Incarnation(), at)}
}

// listFilter checks the filter and the order of a request.
func listFilter(req *runlogv1.ListRunsRequest) (f run.Filter, err error) {
	f = run.Filter{
		TenantID: req.TenantId, ProjectID: req.ProjectId, EnvironmentID: req.EnvironmentId, PlanID: req.PlanId,
		PlanVersion: req.PlanVersion, RunIDPrefix: req.RunIdPrefix,
	}
	switch req.OrderBy {
	case "", "newest":
	case "oldest":
		f.OldestFirst = true
	default:
		return f, rpc.Invalid("orderBy", `is not known; the orders are "newest" and "oldest", in lower case`)
	}
	if err := rpc.CheckPlanVersion(req.PlanId, req.PlanVersion); err != nil {
		return f, err
	}
	if f.Statuses, err = rpc.Statuses(req.Status); err != nil {
		return f, err
	}
	if f.Labels, err = labels(req.Labels); err != nil {
		return f, err
	}
	for _, b := range []struct {
		field string
		from  *timestamppb.Timestamp
		to    *int64
		least int64
	}{
		{"createdAfter", req.CreatedAfter, &f.CreatedAfter, 0},
		// 0 means any, and no run is older than 1970.
		{"createdBefore", req.CreatedBefore, &f.CreatedBefore, 1},
		{"startedAfter", req.StartedAfter, &f.StartedAfter, 1},
		{"startedBefore", req.StartedBefore, &f.StartedBefore, 1},
	} {
		at, err := rpc.Bound(b.field, b.from)
		if err != nil {
			return f, err
		}
		if b.from != nil {
			*b.to = max(at, b.least)
		}
	}
	return f, nil
}

// labels parses the labels of a filter.
func labels(texts []string) (list []run.Label, err error) {
	if len(texts) > rpc.MaxLabels {
		return nil, rpc.Invalid("labels", fmt.Sprintf("has %d labels, at most %d", len(texts), rpc.MaxLabels))
	}
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, rpc.Invalid("labels", "is "+contract.Quote(text)+", not key=value, such as labels=team=payments")
		}
		list = append(list, run.Label{Key: key, Value: value})
	}
	return list, nil
}
