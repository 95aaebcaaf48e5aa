package runs

import (
	"context"
	"errors"
	"time"

	"runlog/projector"
	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/metadata"
)

const maxChanges = 100 // of a run's metadata, in GetRun

// Node is the part of the replica that the service needs.
type Node interface {
	Append(context.Context, *storage.Append) (replica.Appended, error)
	Execute(context.Context, storage.Command) (storage.Outcome, error)
	Readable(ctx context.Context, runID string, level runlogv1.Consistency_Level) error
	ReadIndex(context.Context) error
	rpc.Runs
	rpc.MomentNode
}

// Options configure the service. All are required.
type Options struct {
	Node      Node
	Projector *projector.Projector
	Encoded   *wire.Snapshots
	Clock     func() time.Time
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
	if req.Run == nil {
		return nil, rpc.Invalid("run", "is required: name the run, its scope and its plan")
	}
	if bad := rpc.CheckRun("run.", req.Run); len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	if _, known := runlogv1.CreateMode_Value_name[int32(req.Mode)]; !known {
		return nil, rpc.Invalid("mode", "is not a mode: send IDEMPOTENT or EXCLUSIVE")
	}
	a := storage.Append{RunID: req.Run.RunId, Create: rpc.Creation(req.Run), AppendedBy: auth.From(ctx).Authenticated(),
		Exclusive: req.Mode == runlogv1.CreateMode_EXCLUSIVE}
	a.Create.Metadata.CreatedBy = a.AppendedBy.Name
	if len(req.Events) > 0 {
		var err error
		if a.Events, err = contract.ValidateAll(req.Events, s.opts.Rules(req.Run.RunId)); err != nil {
			return nil, err
		}
	}
	if err := rpc.CheckAppend(ctx, s.node, &a); err != nil {
		return nil, err
	}
	done, err := s.node.Append(ctx, &a)
	if err != nil {
		return nil, rpc.RefusedAppend(ctx, s.node.Store(), a.RunID, err)
	}
	run, err := s.run(ctx, req.Run.RunId)
	if err != nil {
		return nil, err
	}
	return &runlogv1.CreateRunResponse{Run: run, Results: wire.Results(a.Events, &done.Outcome, done.Diverged, done.Keys),
		Created: done.Created, Position: rpc.FormatPosition(s.node.Store().Incarnation(), done.Position)}, nil
}

// GetRun returns a run's metadata, head and status.
func (s *Service) GetRun(ctx context.Context, req *runlogv1.GetRunRequest) (*runlogv1.GetRunResponse, error) {
	if err := s.node.Readable(ctx, req.RunId, req.Consistency); err != nil {
		return nil, err
	}
	run, err := s.run(ctx, req.RunId)
	if err != nil {
		return nil, err
	}
	changes, err := metadata.Changes(s.node.Store(), req.RunId, maxChanges)
	if err != nil {
		return nil, err
	}
	return &runlogv1.GetRunResponse{Run: run, Changes: wireChanges(changes)}, nil
}

// run reads a run and its current status. A run of a tenant that the caller does not see is not
// found (SEC-4).
func (s *Service) run(ctx context.Context, runID string) (_ *runlogv1.Run, err error) {
	v, err := s.node.Store().View(runID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if !auth.From(ctx).Sees(v.Run.Scope.TenantID) {
		return nil, &storage.RunNotFoundError{RunID: runID}
	}
	snapshot, err := s.opts.Projector.Snapshot(v)
	if err != nil {
		return nil, err
	}
	summary := run.SummaryOf(snapshot)
	return s.opts.Encoded.Run(v.Run, &summary, s.opts.Clock()), nil
}
