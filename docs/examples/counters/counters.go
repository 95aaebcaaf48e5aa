package counters

import (
	"context"
	"errors"
	"fmt"

	"runlog/docs/examples/counter"
	"runlog/proto/contract"
	counterv1 "runlog/proto/example/counter/v1"
	"runlog/server/rpc"
	"runlog/storage"
)

// Node is what the service needs of the replica.
type Node interface {
	Execute(context.Context, storage.Command) (storage.Outcome, error)
	ReadIndex(context.Context) error
	Store() *storage.Store
}

// Service is CounterService.
type Service struct {
	counterv1.UnimplementedCounterServiceServer
	node Node
}

var _ counterv1.CounterServiceServer = (*Service)(nil)

// New makes the service.
func New(n Node) *Service { return &Service{node: n} }

// Increment adds to a counter. The policy says that the leader answers: the chain forwards the call
// to it.
func (s *Service) Increment(ctx context.Context, req *counterv1.IncrementRequest) (*counterv1.IncrementResponse, error) {
	if err := checkIncrement(req); err != nil {
		return nil, err
	}
	cmd, err := storage.EncodeOne(counter.Increment(req.Name, req.By))
	if err != nil {
		return nil, err
	}
	outcome, err := s.node.Execute(ctx, cmd)
	if err != nil {
		return nil, refusal(err)
	}
	value, err := counter.Value(outcome.Answers[0].Reply)
	if err != nil {
		return nil, err
	}
	return &counterv1.IncrementResponse{Value: value}, nil
}

// GetCounter reads a counter at the node that is called, once the node has applied everything that
// was acknowledged before the call.
func (s *Service) GetCounter(ctx context.Context, req *counterv1.GetCounterRequest) (*counterv1.GetCounterResponse, error) {
	if fault := contract.NameFault(req.Name); fault != "" {
		return nil, rpc.Invalid("name", fault)
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	value, err := counter.Read(s.node.Store(), req.Name)
	if err != nil {
		return nil, err
	}
	return &counterv1.GetCounterResponse{Value: value}, nil
}

// checkIncrement reports every fault of the request.
func checkIncrement(req *counterv1.IncrementRequest) error {
	var bad []contract.Violation
	add := func(field, fault string) {
		bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: fault})
	}
	if fault := contract.NameFault(req.Name); fault != "" {
		add("name", fault)
	}
	if req.By < 1 || req.By > counter.Limit {
		add("by", fmt.Sprintf("is %d: send 1 to %d", req.By, counter.Limit))
	}
	if len(bad) == 0 {
		return nil
	}
	return contract.NewError(bad)
}

// refusal gives an error of the machine its reason. A follower that forwarded the call passes an
// error with a reason on. Without a reason it must answer that the outcome is unknown.
func refusal(err error) error {
	var limit *counter.LimitError
	if errors.As(err, &limit) {
		return rpc.Invalid("by", limit.Error())
	}
	return err
}
