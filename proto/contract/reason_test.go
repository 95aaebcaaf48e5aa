package contract

import (
	"testing"

	"google.golang.org/grpc/codes"
)

// TestErrorTable restates docs/errors.md.
func TestErrorTable(t *testing.T) {
	rows := []struct {
		reasons []Reason
		code    codes.Code
		http    int
		stored  Stored
	}{
		{[]Reason{"INVALID_ARGUMENT_FIELD", "SCHEMA_VALIDATION_FAILED", "IDEMPOTENCY_KEY_MISMATCH", "PAYLOAD_TOO_LARGE", "PAYLOAD_HAS_SECRET"}, codes.InvalidArgument, 400, StoredNo},
		{[]Reason{"SEQUENCE_CONFLICT"}, codes.Aborted, 409, StoredNo},
		{[]Reason{"RUN_ALREADY_EXISTS"}, codes.AlreadyExists, 409, StoredNo},
		{[]Reason{"RUN_SCOPE_MISMATCH", "STEP_NOT_WAITING", "RUN_NOT_WAITING"}, codes.FailedPrecondition, 409, StoredNo},
		{[]Reason{"RUN_NOT_FOUND", "STEP_NOT_FOUND"}, codes.NotFound, 404, StoredNo},
		{[]Reason{"UNAUTHENTICATED"}, codes.Unauthenticated, 401, StoredNo},
		{[]Reason{"PERMISSION_DENIED"}, codes.PermissionDenied, 403, StoredNo},
		{[]Reason{"OVERLOADED", "TENANT_RATE_LIMITED", "QUOTA_EXCEEDED"}, codes.ResourceExhausted, 429, StoredNo},
		{[]Reason{"DISK_LOW"}, codes.ResourceExhausted, 507, StoredNo},
		{[]Reason{"CLUSTER_HELD"}, codes.FailedPrecondition, 409, StoredNo},
		{[]Reason{"NO_LEADER", "NOT_LEADER", "SHUTTING_DOWN"}, codes.Unavailable, 503, StoredNo},
		{[]Reason{"OUTCOME_UNKNOWN", "STORAGE_FAILED"}, codes.Unavailable, 503, StoredMaybe},
		{[]Reason{"SLOW_CONSUMER"}, codes.Aborted, 409, StoredNothing},
		{[]Reason{"RESUME_TOKEN_INVALID"}, codes.InvalidArgument, 400, StoredNothing},
		{[]Reason{"LEASE_LOST"}, codes.FailedPrecondition, 409, StoredNo},
		{[]Reason{"IDEMPOTENCY_KEY_TAKEN"}, codes.FailedPrecondition, 409, StoredNo},
		{[]Reason{"RESERVED_EVENT_TYPE"}, codes.PermissionDenied, 403, StoredNo},
		{[]Reason{"SIGNAL_TOO_LARGE"}, codes.InvalidArgument, 400, StoredNo},
		{[]Reason{"SIGNAL_RATE_LIMITED"}, codes.ResourceExhausted, 429, StoredNo},
		{[]Reason{"SIGNAL_POLICY_UNAVAILABLE"}, codes.Unavailable, 503, StoredNo},
		{[]Reason{"RUN_REQUEST_CONFLICT"}, codes.AlreadyExists, 409, StoredNo},
		{[]Reason{"RUN_QUEUE_FULL"}, codes.ResourceExhausted, 429, StoredNo},
		{[]Reason{"RUN_NOT_QUEUED"}, codes.FailedPrecondition, 409, StoredNo},
		{[]Reason{"QUEUE_NOT_FOUND"}, codes.NotFound, 404, StoredNothing},
		{[]Reason{"SUBSCRIPTION_NOT_FOUND", "DEAD_LETTER_NOT_FOUND"}, codes.NotFound, 404, StoredNothing},
		{[]Reason{"SUBSCRIPTION_CONFLICT"}, codes.AlreadyExists, 409, StoredNothing},
		{[]Reason{"SUBSCRIPTION_NOT_PULL"}, codes.FailedPrecondition, 409, StoredNothing},
		// Beside the contract: HTTP's own.
		{[]Reason{"ROUTE_NOT_FOUND"}, codes.NotFound, 404, StoredNothing},
		{[]Reason{"METHOD_NOT_ALLOWED"}, codes.Unimplemented, 405, StoredNothing},
		{[]Reason{"REQUEST_TIMEOUT"}, codes.Unavailable, 408, StoredNo},
		// And a read's own.
		{[]Reason{"NOT_REACHED"}, codes.DeadlineExceeded, 504, StoredNothing},
		// And those of changes of the members.
		{[]Reason{"MEMBER_NOT_FOUND"}, codes.NotFound, 404, StoredNothing},
		{[]Reason{"MEMBER_EXISTS"}, codes.AlreadyExists, 409, StoredNothing},
		{[]Reason{"MEMBERSHIP_REFUSED"}, codes.FailedPrecondition, 409, StoredNothing},
		// And a backup's.
		{[]Reason{"FILE_CHANGED"}, codes.DataLoss, 500, StoredNothing},
		// And of a node that signs.
		{[]Reason{"SIGNING_KEY_MISSING"}, codes.FailedPrecondition, 409, StoredNothing},
		// And of a cluster that is being upgraded.
		{[]Reason{"UPGRADE_INCOMPLETE"}, codes.FailedPrecondition, 409, StoredNo},
	}
	count := 0
	for _, row := range rows {
		for _, r := range row.reasons {
			count++
			info := r.Info()
			if info.Reason != r || info.Code != row.code || info.HTTP != row.http || info.Stored != row.stored {
				t.Errorf("%s: %+v", r, info)
			}
			if info.Retry == "" || info.Help == "" {
				t.Errorf("%s says not what to do", r)
			}
			if e := (&Error{Reason: r}); e.Code() != row.code || e.HTTP() != row.http {
				t.Errorf("%s: error %v %d", r, e.Code(), e.HTTP())
			}
		}
	}
	if count != len(reasons) {
		t.Errorf("%d reasons in the contract, %d in the table", count, len(reasons))
	}
}

func TestErrorOutcomeUnknownByDeadline(t *testing.T) {
	e := &Error{Reason: ReasonOutcomeUnknown, DeadlineExceeded: true}
	if e.Code() != codes.DeadlineExceeded || e.HTTP() != 504 {
		t.Errorf("%v %d", e.Code(), e.HTTP())
	}
}

func TestErrorOutsideTheTable(t *testing.T) {
	if e := (&Error{Reason: "NEW"}); e.Code() != codes.Internal || e.HTTP() != 500 || e.Reason.Info().Stored != StoredMaybe {
		t.Errorf("%v %d", e.Code(), e.HTTP())
	}
}
