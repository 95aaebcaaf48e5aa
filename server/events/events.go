package events

import (
	"context"

	"google.golang.org/grpc"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/budget"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/storage"
)

// Node is the part of the replica that the service needs. After an error of Admit nothing is
// stored.
type Node interface {
	rpc.Leaders
	OtherLeader() string
	Admit(ctx context.Context, a *storage.Append, line string) (replica.Pending, error)
	Tenant(*storage.Append) string
	Append(context.Context, *storage.Append) (replica.Appended, error)
	View(ctx context.Context, runID string, level runlogv1.Consistency_Level, minSeq uint64) (*replica.Reading, error)
	rpc.Runs
	Store() *storage.Store
}

// Options configure the service. All are required.
type Options struct {
	Node Node
	// AtLeader lets the leader answer a part of a call (rpc.Chain).
	AtLeader func(ctx context.Context, method string, req any, here grpc.UnaryHandler) (any, error)
	// Rules returns the rules that events of a run must meet.
	Rules func(runID string) contract.Options
	// Memory is the budget from which pages draw.
	Memory *budget.Budget
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
}

// Service is EventService.
type Service struct {
	runlogv1.UnimplementedEventServiceServer
	opts Options
	node Node
}

var _ runlogv1.EventServiceServer = (*Service)(nil)

// New makes the service.
func New(opts Options) *Service { return &Service{opts: opts, node: opts.Node} }

// parse converts a wire message into the request that the packages below trust.
func (s *Service) parse(ctx context.Context, req *runlogv1.AppendEventsRequest) (storage.Append, error) {
	switch {
	case req.RunId == "":
		return storage.Append{}, rpc.Invalid("runId", "is required: name the run of the events")
	case contract.TextFault(req.RequestId) != "":
		return storage.Append{}, rpc.Invalid("requestId", contract.TextFault(req.RequestId))
	}
	events, err := contract.ValidateAll(req.Events, s.opts.Rules(req.RunId))
	return storage.Append{RunID: req.RunId, Events: events, ExpectedLastSeq: req.ExpectedLastSeq, Fence: req.Fence,
		AppendedBy: auth.From(ctx).Authenticated()}, err
}
