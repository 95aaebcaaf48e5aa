package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server/replica/batch"
	"runlog/storage"
	"runlog/storage/machine/metadata"
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
	{&storage.RunExistsError{RunID: "r", Fields: []string{"labels"}}, contract.ReasonRunAlreadyExists, codes.AlreadyExists},
	{&metadata.PreviousError{RunID: "r"}, contract.ReasonRunAlreadyExists, codes.AlreadyExists},
	{&storage.AttemptError{RunID: "r"}, contract.ReasonOverloaded, codes.ResourceExhausted},
	{&storage.KeyTakenError{RunID: "r"}, contract.ReasonOverloaded, codes.ResourceExhausted},
	{&storage.SequenceError{RunID: "r"}, contract.ReasonSequenceConflict, codes.Aborted},
	{&storage.LeaseLostError{RunID: "r"}, contract.ReasonLeaseLost, codes.FailedPrecondition},
	{&storage.ScopeError{RunID: "r", Field: "tenantId", Index: -1}, contract.ReasonRunScopeMismatch, codes.FailedPrecondition},
	{&storage.UnscopedError{RunID: "r", Fields: []string{"tenantId"}}, contract.ReasonInvalidArgumentField, codes.InvalidArgument},
	{&storage.LevelError{Kind: 16, Needs: 2, Level: 1}, contract.ReasonUpgradeIncomplete, codes.FailedPrecondition},
	{&storage.UnknownOperationError{Kind: 16, Level: 1, Supports: 1}, contract.ReasonUpgradeIncomplete, codes.FailedPrecondition},
	// A node that stops at an operation in its log does not know what became of the command.
	{fmt.Errorf("%w: %w", raft.ErrUnknown, &storage.UnknownOperationError{Kind: 16}), contract.ReasonOutcomeUnknown, codes.Unavailable},
	{TooManyStreams(), contract.ReasonOverloaded, codes.ResourceExhausted},
	{context.DeadlineExceeded, "", codes.DeadlineExceeded},
	{context.Canceled, "", codes.Canceled},
}

// wantEqual compares what a test got with what it wants.
func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestStatusOf covers the reasons that need a failure which a healthy node does not have.
func TestStatusOf(t *testing.T) {
	for _, c := range statusCases {
		st := status.Convert(Status(fmt.Errorf("room: %w", c.err)))
		if reasonIn(st) != c.reason || st.Code() != c.code {
			t.Errorf("%v: %s %v, want %s %v", c.err, reasonIn(st), st.Code(), c.reason, c.code)
		}
	}
	wantEqual(t, "no error", Status(nil), nil)
	wantEqual(t, "unknown error", status.Code(Status(errors.New("x"))), codes.Internal)
	wantEqual(t, "a status stays", status.Code(Status(status.Error(codes.DataLoss, "x"))), codes.DataLoss)
}

// TestEveryReasonOverHTTP: every reason of the contract's table has its HTTP code on the wire.
func TestEveryReasonOverHTTP(t *testing.T) {
	for _, reason := range []contract.Reason{
		contract.ReasonInvalidArgumentField, contract.ReasonSchemaValidationFailed, contract.ReasonKeyMismatch, contract.ReasonPayloadTooLarge,
		contract.ReasonSequenceConflict, contract.ReasonRunAlreadyExists, contract.ReasonRunScopeMismatch, contract.ReasonStepNotWaiting,
		contract.ReasonRunNotWaiting, contract.ReasonRunNotFound, contract.ReasonStepNotFound, contract.ReasonUnauthenticated,
		contract.ReasonPermissionDenied, contract.ReasonOverloaded, contract.ReasonTenantRateLimited, contract.ReasonQuotaExceeded,
		contract.ReasonNoLeader, contract.ReasonNotLeader, contract.ReasonShuttingDown, contract.ReasonOutcomeUnknown,
		contract.ReasonStorageFailed, contract.ReasonSlowConsumer, contract.ReasonResumeTokenInvalid, contract.ReasonLeaseLost,
	} {
		w := httptest.NewRecorder()
		WriteError(w, Encode(&contract.Error{Reason: reason, Message: "m", RetryAfter: 1500 * time.Millisecond,
			Metadata: map[string]string{"k": "v"}, Violations: []contract.Violation{{Field: "f", Reason: reason, Description: "d"}}}))
		wantEqual(t, "HTTP code of "+string(reason), w.Code, reason.Info().HTTP)
		wantEqual(t, "Retry-After", w.Header().Get("Retry-After"), "2")
		for _, part := range []string{`"message":"m"`, `"reason":"` + string(reason) + `"`, `"k":"v"`, `"field":"f"`} {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s: %s is not in %s", reason, part, w.Body)
			}
		}
	}
}
