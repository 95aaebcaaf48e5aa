package rpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	"runlog/raft"
)

// TestPassedOn: a forwarded call carries the trace and the deadline, and no other header: not the
// caller's credentials.
func TestPassedOn(t *testing.T) {
	deadline := time.Now().Add(time.Minute)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	in := metadata.Pairs("authorization", "Bearer x", "traceparent", "00-1-2-01", "tracestate", "a=b", "tracestate", "c=d",
		"x-request-id", "7", "cookie", "secret", "grpc-timeout", "1S")
	on, err := PassOn(metadata.NewIncomingContext(ctx, in))
	if err != nil {
		t.Fatal(err)
	}
	out, _ := metadata.FromOutgoingContext(on)
	for key, want := range map[string]int{"authorization": 0, "traceparent": 1, "tracestate": 2, "x-request-id": 1} {
		if got := out.Get(key); len(got) != want {
			t.Errorf("%s: %q", key, got)
		}
	}
	wantEqual(t, "headers that are passed on", out.Len(), 3)
	if at, ok := on.Deadline(); !ok || !at.Equal(deadline) {
		t.Errorf("deadline %v, want %v", at, deadline)
	}
	if same, err := PassOn(ctx); same != ctx || err != nil {
		t.Error("a call without headers gets another context")
	}
}

// TestForwardingFailsAPP10: a call that may have been stored is never said not to be, and one that
// was not is tried again elsewhere.
func TestForwardingFailsAPP10(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	refusal := Encode(&contract.Error{Reason: contract.ReasonSequenceConflict, Message: "no"})
	notLeader := Encode(&contract.Error{Reason: contract.ReasonNotLeader, Message: "no"})
	lost := status.Error(codes.Unavailable, "connection reset")
	for name, c := range map[string]struct {
		ctx    context.Context
		sent   bool
		err    error
		again  bool // it is tried again, because nothing was stored
		reason contract.Reason
		code   codes.Code
	}{
		"the leader refuses":           {t.Context(), true, refusal, false, contract.ReasonSequenceConflict, codes.Aborted},
		"it does not lead":             {t.Context(), true, notLeader, true, contract.ReasonNoLeader, codes.Unavailable},
		"it was not reached":           {t.Context(), false, lost, true, contract.ReasonNoLeader, codes.Unavailable},
		"its answer was lost":          {t.Context(), true, lost, false, contract.ReasonOutcomeUnknown, codes.Unavailable},
		"its leadership ended":         {t.Context(), true, status.Error(codes.Canceled, "over"), false, contract.ReasonOutcomeUnknown, codes.Unavailable},
		"the call ended":               {over, true, status.Error(codes.DeadlineExceeded, "late"), false, contract.ReasonOutcomeUnknown, codes.DeadlineExceeded},
		"something else, with no word": {t.Context(), true, status.Error(codes.Internal, "?"), false, contract.ReasonOutcomeUnknown, codes.Unavailable},
		"it does not know the call":    {t.Context(), true, status.Error(codes.Unimplemented, "?"), false, contract.ReasonUpgradeIncomplete, codes.FailedPrecondition},
	} {
		err := ForwardingError(c.ctx, c.sent, c.err)
		wantEqual(t, name+": again", errors.Is(err, raft.ErrNotLeader), c.again)
		told := status.Convert(Status(err))
		wantEqual(t, name+": reason", reasonIn(told), c.reason)
		wantEqual(t, name+": code", told.Code(), c.code)
	}
}
