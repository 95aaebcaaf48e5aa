package server

import (
	"context"

	"google.golang.org/grpc/codes"

	pwatch "runlog/projector/watch"
	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server/replica/batch"
	"runlog/storage"
)

// statusCases are the errors of the rooms below and what becomes of them at the edge.
var statusCases = []struct {
	err    error
	reason contract.Reason
	code   codes.Code
}{
	{batch.ErrOverloaded, contract.ReasonOverloaded, codes.ResourceExhausted},
	{batch.ErrClosed, contract.ReasonShuttingDown, codes.Unavailable},
	{batch.ErrAbandoned, contract.ReasonOutcomeUnknown, codes.DeadlineExceeded},
	{raft.ErrNotLeader, contract.ReasonNoLeader, codes.Unavailable},
	{raft.ErrUnknown, contract.ReasonOutcomeUnknown, codes.Unavailable},
	{&storage.RunNotFoundError{RunID: "r"}, contract.ReasonRunNotFound, codes.NotFound},
	{&storage.RunExistsError{RunID: "r", What: "metadata"}, contract.ReasonRunAlreadyExists, codes.AlreadyExists},
	{&storage.SequenceError{RunID: "r"}, contract.ReasonSequenceConflict, codes.Aborted},
	{&storage.ScopeError{RunID: "r", Field: "tenantId", Index: -1}, contract.ReasonRunScopeMismatch, codes.FailedPrecondition},
	{&storage.UnscopedError{RunID: "r", Fields: []string{"tenantId"}}, contract.ReasonInvalidArgumentField, codes.InvalidArgument},
	{tooManyWatchers(pwatch.ErrTooManyWatchers), contract.ReasonOverloaded, codes.ResourceExhausted},
	{errStopping, contract.ReasonShuttingDown, codes.Unavailable},
	{context.DeadlineExceeded, "", codes.DeadlineExceeded},
	{context.Canceled, "", codes.Canceled},
}
