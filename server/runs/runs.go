package runs

import (
	"context"
	"errors"
	"fmt"

	"runlog/projector"
	"runlog/projector/list"
	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/metadata"
)

const (
	maxRunsPage     = 1000
	defaultRunsPage = 100
	maxChanges      = 100 // of a run's metadata, in GetRun
)

// Node is the part of the replica that the service needs.
type Node interface {
	Append(context.Context, *storage.Append) (replica.Appended, error)
	Execute(context.Context, storage.Command) (storage.Outcome, error)
	Readable(ctx context.Context, runID string, level runlogv1.Consistency_Level) error
	ReadIndex(context.Context) error
	Waiting(context.Context) (context.Context, context.CancelFunc)
	Store() *storage.Store
	ClusterID() storage.ClusterID
}

// Options configure the service. All are required.
type Options struct {
	Node      Node
	Projector *projector.Projector
	// Rules returns the rules that events of a run must meet.
	Rules func(runID string) contract.Options
}

// Service is RunService.
type Service struct {
	runlogv1.UnimplementedRunServiceServer
	opts Options
	node Node
}

var _ runlogv1.RunServiceServer = (*Service)(nil)

// New makes the service.
func New(opts Options) *Service { return &Service{opts: opts, node: opts.Node} }

// CreateRun stores a run's metadata and first events in one atomic call (APP-12).
func (s *Service) CreateRun(ctx context.Context, req *runlogv1.CreateRunRequest) (*runlogv1.CreateRunResponse, error) {
	if err := checkRun(req.Run); err != nil {
		return nil, err
	}
	if _, known := runlogv1.CreateMode_Value_name[int32(req.Mode)]; !known {
		return nil, rpc.Invalid("mode", "is not a mode: send IDEMPOTENT or EXCLUSIVE")
	}
	a := storage.Append{RunID: req.Run.RunId, Create: decodeCreation(req.Run), AppendedBy: rpc.IdentityOf(ctx),
		Exclusive: req.Mode == runlogv1.CreateMode_EXCLUSIVE}
	if len(req.Events) > 0 {
		var err error
		if a.Events, err = contract.ValidateAll(req.Events, s.opts.Rules(req.Run.RunId)); err != nil {
			return nil, err
		}
	}
	done, err := s.node.Append(ctx, &a)
	if err != nil {
		return nil, err
	}
	run, err := s.run(req.Run.RunId)
	if err != nil {
		return nil, err
	}
	return &runlogv1.CreateRunResponse{Run: run, Results: wire.Results(a.Events, &done.Outcome, done.Diverged, done.Keys),
		Created: done.Created, Position: rpc.FormatPosition(done.Position)}, nil
}

// GetRun returns a run's metadata, head and status.
func (s *Service) GetRun(ctx context.Context, req *runlogv1.GetRunRequest) (*runlogv1.GetRunResponse, error) {
	if err := s.node.Readable(ctx, req.RunId, req.Consistency); err != nil {
		return nil, err
	}
	run, err := s.run(req.RunId)
	if err != nil {
		return nil, err
	}
	changes, err := metadata.Changes(s.node.Store(), req.RunId, maxChanges)
	if err != nil {
		return nil, err
	}
	return &runlogv1.GetRunResponse{Run: run, Changes: wireChanges(changes)}, nil
}

// run reads a run and its current status.
func (s *Service) run(runID string) (_ *runlogv1.Run, err error) {
	v, err := s.node.Store().View(runID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snapshot, err := s.opts.Projector.Snapshot(v)
	if err != nil {
		return nil, err
	}
	return wire.Run(v.Run, snapshot.Status), nil
}

// ListRuns pages through runs, newest first.
func (s *Service) ListRuns(ctx context.Context, req *runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) {
	size, err := rpc.PageSize(req.PageSize, defaultRunsPage, maxRunsPage)
	if err != nil {
		return nil, err
	}
	if req.OrderBy != "" && req.OrderBy != "newest" {
		return nil, rpc.Invalid("orderBy", `is not known; the only order is "newest"`)
	}
	filter, err := listFilter(req)
	if err != nil {
		return nil, err
	}
	token, err := parsePageToken(req.PageToken, s.node.ClusterID(), &filter)
	if err != nil {
		return nil, err
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	page, err := s.page(ctx, req.MinPosition, filter, token, size)
	if err != nil {
		return nil, err
	}
	rest := pageToken{position: max(page.Position, token.position), place: page.Next}
	resp := &runlogv1.ListRunsResponse{NextPageToken: rest.format(s.node.ClusterID(), &filter)}
	for _, item := range page.Runs {
		run, err := s.node.Store().Run(item.RunID)
		if err != nil {
			return nil, err
		}
		resp.Runs = append(resp.Runs, wire.Run(run, item.Status))
	}
	return resp, nil
}

// page reads a page once the projection has reached minPosition and the token's position.
func (s *Service) page(
	ctx context.Context, minPosition string, f run.Filter, token *pageToken, size int,
) (page list.Page, err error) {
	least := token.position
	if minPosition != "" {
		at, err := rpc.ParsePosition("minPosition", minPosition)
		if err != nil {
			return page, err
		}
		least = max(least, at)
	}
	ctx, cancel := s.node.Waiting(ctx)
	defer cancel()
	for {
		if err := s.awaitProjection(ctx, least); err != nil {
			return page, err
		}
		// The projection may have been replaced since, and may be at its begin again.
		if page, err = s.opts.Projector.List(f, token.place, size); err != nil || page.Position >= least {
			return page, err
		}
	}
}

func (s *Service) awaitProjection(ctx context.Context, at storage.Position) error {
	if s.opts.Projector.WaitPosition(ctx, at) == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &contract.Error{Reason: contract.ReasonNotReached,
			Message: "the projection has not reached minPosition or the position of pageToken: retry"}
	}
	return fmt.Errorf("the projection has not reached minPosition or pageToken: %w", cause)
}

func listFilter(req *runlogv1.ListRunsRequest) (run.Filter, error) {
	f := run.Filter{
		TenantID: req.TenantId, ProjectID: req.ProjectId, EnvironmentID: req.EnvironmentId, PlanID: req.PlanId,
		Status: run.Status(req.Status),
	}
	if _, known := runlogv1.RunStatus_Value_name[int32(req.Status)]; !known {
		return f, rpc.Invalid("status", "is not a run status")
	}
	var err error
	if f.CreatedAfter, err = rpc.Bound("createdAfter", req.CreatedAfter); err != nil {
		return f, err
	}
	if f.CreatedBefore, err = rpc.Bound("createdBefore", req.CreatedBefore); req.CreatedBefore != nil {
		f.CreatedBefore = max(f.CreatedBefore, 1) // 0 means any, and no run is older than 1970
	}
	return f, err
}
