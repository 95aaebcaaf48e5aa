package contract

import (
	"time"

	"google.golang.org/grpc/codes"

	"runlog/proto/contract/secrets"
)

// Reason is why a call was refused or failed: the reason of google.rpc.ErrorInfo in domain "runlog"
// (docs/contract.md, Errors). A producer may branch on it; it never changes.
type Reason string

// The reasons of the contract.
const (
	ReasonInvalidArgumentField   Reason = "INVALID_ARGUMENT_FIELD"
	ReasonSchemaValidationFailed Reason = "SCHEMA_VALIDATION_FAILED"
	ReasonKeyMismatch            Reason = "IDEMPOTENCY_KEY_MISMATCH"
	ReasonPayloadTooLarge        Reason = "PAYLOAD_TOO_LARGE"
	ReasonPayloadHasSecret       Reason = "PAYLOAD_HAS_SECRET"
	ReasonSequenceConflict       Reason = "SEQUENCE_CONFLICT"
	ReasonRunAlreadyExists       Reason = "RUN_ALREADY_EXISTS"
	ReasonRunScopeMismatch       Reason = "RUN_SCOPE_MISMATCH"
	ReasonStepNotWaiting         Reason = "STEP_NOT_WAITING"
	ReasonRunNotWaiting          Reason = "RUN_NOT_WAITING"
	ReasonKeyTaken               Reason = "IDEMPOTENCY_KEY_TAKEN"
	ReasonRunNotFound            Reason = "RUN_NOT_FOUND"
	ReasonStepNotFound           Reason = "STEP_NOT_FOUND"
	ReasonUnauthenticated        Reason = "UNAUTHENTICATED"
	ReasonPermissionDenied       Reason = "PERMISSION_DENIED"
	ReasonReservedEventType      Reason = "RESERVED_EVENT_TYPE"
	ReasonOverloaded             Reason = "OVERLOADED"
	ReasonTenantRateLimited      Reason = "TENANT_RATE_LIMITED"
	ReasonQuotaExceeded          Reason = "QUOTA_EXCEEDED"
	ReasonDiskLow                Reason = "DISK_LOW"
	ReasonClusterHeld            Reason = "CLUSTER_HELD"
	ReasonNoLeader               Reason = "NO_LEADER"
	ReasonNotLeader              Reason = "NOT_LEADER"
	ReasonShuttingDown           Reason = "SHUTTING_DOWN"
	ReasonOutcomeUnknown         Reason = "OUTCOME_UNKNOWN"
	ReasonStorageFailed          Reason = "STORAGE_FAILED"
	ReasonSlowConsumer           Reason = "SLOW_CONSUMER"
	ReasonResumeTokenInvalid     Reason = "RESUME_TOKEN_INVALID"
	ReasonLeaseLost              Reason = "LEASE_LOST"
	ReasonRunRequestConflict     Reason = "RUN_REQUEST_CONFLICT"
	ReasonRunQueueFull           Reason = "RUN_QUEUE_FULL"
	ReasonRunNotQueued           Reason = "RUN_NOT_QUEUED"
	ReasonQueueNotFound          Reason = "QUEUE_NOT_FOUND"
	ReasonSignalTooLarge         Reason = "SIGNAL_TOO_LARGE"
	ReasonSignalRateLimited      Reason = "SIGNAL_RATE_LIMITED"
	ReasonSubscriptionNotFound   Reason = "SUBSCRIPTION_NOT_FOUND"
	ReasonSubscriptionConflict   Reason = "SUBSCRIPTION_CONFLICT"
	ReasonSubscriptionNotPull    Reason = "SUBSCRIPTION_NOT_PULL"
	ReasonDeadLetterNotFound     Reason = "DEAD_LETTER_NOT_FOUND"

	ReasonSignalPolicyUnavailable Reason = "SIGNAL_POLICY_UNAVAILABLE"
)

// The reasons that only HTTP needs, beside those of the contract: its routes, methods and bodies
// have no counterpart in gRPC.
const (
	ReasonRouteNotFound    Reason = "ROUTE_NOT_FOUND"
	ReasonMethodNotAllowed Reason = "METHOD_NOT_ALLOWED"
	ReasonRequestTimeout   Reason = "REQUEST_TIMEOUT"
	ReasonNotReached       Reason = "NOT_REACHED"
)

// The reasons that only ClusterService needs.
const (
	ReasonMemberNotFound    Reason = "MEMBER_NOT_FOUND"
	ReasonMemberExists      Reason = "MEMBER_EXISTS"
	ReasonMembershipRefused Reason = "MEMBERSHIP_REFUSED"
	ReasonFileChanged       Reason = "FILE_CHANGED"
)

// ReasonSigningKeyMissing is one that only AuditService needs.
const ReasonSigningKeyMissing Reason = "SIGNING_KEY_MISSING"

// ReasonUpgradeIncomplete is one of any call whose operation a member may not know yet: the feature
// level of the cluster is below the operation's, or the leader's build is older than the call.
const ReasonUpgradeIncomplete Reason = "UPGRADE_INCOMPLETE"

// Stored tells what a producer may conclude about the events of a call that ended with a reason.
type Stored string

const (
	// StoredNo says that none of the events was stored.
	StoredNo Stored = "no"
	// StoredMaybe says that the outcome is unknown; a retry as it is finds out (APP-10).
	StoredMaybe Stored = "maybe"
	// StoredNothing says that the call stores nothing.
	StoredNothing Stored = "–"
)

// ReasonInfo is one row of the contract's table of errors.
type ReasonInfo struct {
	Reason Reason
	Code   codes.Code
	HTTP   int
	Stored Stored
	Retry  string // whether the call may be retried as it is, and when
	Help   string // one line on what to do
}

// reasons is the one table from which codes, HTTP statuses and help texts come.
var reasons = [...]ReasonInfo{
	{ReasonInvalidArgumentField, codes.InvalidArgument, 400, StoredNo, "no",
		"Correct the fields that the violations name and send the request again."},
	{ReasonSchemaValidationFailed, codes.InvalidArgument, 400, StoredNo, "no",
		"Make the payload fit the JSON Schema of its event type, served under /schemas."},
	{ReasonKeyMismatch, codes.InvalidArgument, 400, StoredNo, "no",
		"Send the key in expected_key, or leave the key out and the server derives it."},
	{ReasonPayloadTooLarge, codes.InvalidArgument, 400, StoredNo, "no",
		"A payload: store the data elsewhere and send a reference to it as an artifact. A request: send fewer events at a time."},
	{ReasonPayloadHasSecret, codes.InvalidArgument, 400, StoredNo, "no",
		"Store the secret in a secret store and send a reference to it; runlog serve --secret-scan says what a node does."},
	{ReasonSequenceConflict, codes.Aborted, 409, StoredNo, "after reading again",
		"Read the run's events after your expectedLastSeq, decide again, and append with the current value."},
	{ReasonRunAlreadyExists, codes.AlreadyExists, 409, StoredNo, "no",
		"The run exists: choose another runId, or send what it was created with and no new event."},
	{ReasonRunScopeMismatch, codes.FailedPrecondition, 409, StoredNo, "no",
		"Name the tenant, project and environment of the run's first event; a run never changes them."},
	{ReasonStepNotWaiting, codes.FailedPrecondition, 409, StoredNo, "no",
		"Read the snapshot: the step does not wait for an attestation."},
	{ReasonRunNotWaiting, codes.FailedPrecondition, 409, StoredNo, "no",
		"Read the snapshot: the run is not waiting and cannot be resumed."},
	{ReasonKeyTaken, codes.FailedPrecondition, 409, StoredNo, "no",
		"Read the event at the runSeq that the message names. End the step with SKIP_STEP, or attest its next attempt, once the engine has begun one."},
	{ReasonRunNotFound, codes.NotFound, 404, StoredNo, "no",
		"Check the runId; a run exists from its first event, or from CreateRun."},
	{ReasonStepNotFound, codes.NotFound, 404, StoredNo, "no",
		"Check the stepId; a step exists from the first event that names it."},
	{ReasonUnauthenticated, codes.Unauthenticated, 401, StoredNo, "no",
		"Send a valid token, as Authorization: Bearer, or show a client certificate; docs/access.md."},
	{ReasonPermissionDenied, codes.PermissionDenied, 403, StoredNo, "no",
		"Ask an admin for the role and the tenant that the message names; runlog whoami shows what you have."},
	{ReasonReservedEventType, codes.PermissionDenied, 403, StoredNo, "no",
		"Make the call that decides, which the message names; or ask an admin for the role decider, if the decision was made elsewhere."},
	{ReasonOverloaded, codes.ResourceExhausted, 429, StoredNo, "after the delay",
		"The server is full: wait for the retry delay, then send the same request."},
	{ReasonTenantRateLimited, codes.ResourceExhausted, 429, StoredNo, "after the delay",
		"The tenant is over its rate: wait for the retry delay, then send the same request."},
	{ReasonQuotaExceeded, codes.ResourceExhausted, 429, StoredNo, "after the delay",
		"The tenant is over its quota: free some of it or ask for more, then send the same request."},
	{ReasonDiskLow, codes.ResourceExhausted, 507, StoredNo, "after the delay",
		"The leader's disk is nearly full: free disk space there, or let another node lead (runlog cluster transfer); then send the same request."},
	{ReasonClusterHeld, codes.FailedPrecondition, 409, StoredNo, "after the release",
		"The cluster was restored from a backup and is held: an admin lets it go with runlog cluster release; docs/operations.md."},
	{ReasonNoLeader, codes.Unavailable, 503, StoredNo, "yes",
		"The cluster is electing a leader: retry shortly, on any node."},
	{ReasonNotLeader, codes.Unavailable, 503, StoredNo, "yes",
		"Send the request to the leader that the metadata names."},
	{ReasonShuttingDown, codes.Unavailable, 503, StoredNo, "yes",
		"The node is stopping: retry on another node."},
	{ReasonOutcomeUnknown, codes.Unavailable, 503, StoredMaybe, "yes: the key makes it safe",
		"The events may be stored or not: send the same request again; duplicates are recognised."},
	{ReasonStorageFailed, codes.Unavailable, 503, StoredMaybe, "yes, elsewhere",
		"The node's disk failed and the node stops itself: retry on another node."},
	{ReasonSlowConsumer, codes.Aborted, 409, StoredNothing, "from the token",
		"The client read the stream too slowly: resume it from the last resume token."},
	{ReasonResumeTokenInvalid, codes.InvalidArgument, 400, StoredNothing, "from a fresh snapshot",
		"Read a fresh snapshot and watch from its lastEventSeq. For many runs, start a new watch with includeExisting, or, for events, with afterPosition. After a restore or a recovery of the cluster, forget all positions and tokens, and start lists from their first page."},
	{ReasonLeaseLost, codes.FailedPrecondition, 409, StoredNo, "no",
		"Another worker holds the run's lease, or the lease ended: stop writing to the run, and lease it again."},
	{ReasonRunRequestConflict, codes.AlreadyExists, 409, StoredNo, "no",
		"Another request has this runRequestId or this runId: choose others, or send what the first request said."},
	{ReasonRunQueueFull, codes.ResourceExhausted, 429, StoredNo, "after the delay",
		"The queue is full: wait for the retry delay, then send the same request; runlog queue show tells what it holds."},
	{ReasonRunNotQueued, codes.FailedPrecondition, 409, StoredNo, "no",
		"The run waits in no queue: it was never requested, was started, or has ended. Read the run; a run that was started takes signals."},
	{ReasonQueueNotFound, codes.NotFound, 404, StoredNothing, "no",
		"Check the tenant, project, environment and name; runlog queue ls lists the queues."},
	{ReasonSignalTooLarge, codes.InvalidArgument, 400, StoredNo, "no",
		"Store the parameters elsewhere, and send a reference to them."},
	{ReasonSignalRateLimited, codes.ResourceExhausted, 429, StoredNo, "after the delay",
		"The run gets too many signals: wait for the retry delay, then send the same signal."},
	{ReasonSignalPolicyUnavailable, codes.Unavailable, 503, StoredNo, "yes",
		"The service at --signal-policy-url has failed: check it, then send the same signal."},
	{ReasonSubscriptionNotFound, codes.NotFound, 404, StoredNothing, "no",
		"Check the tenant and the subscriptionId; runlog subscriptions ls lists them."},
	{ReasonSubscriptionConflict, codes.AlreadyExists, 409, StoredNothing, "no",
		"Read the subscription as it is now: choose another id, or change that one."},
	{ReasonSubscriptionNotPull, codes.FailedPrecondition, 409, StoredNothing, "no",
		"The subscription delivers to a sink: make one with pull delivery for consumers."},
	{ReasonDeadLetterNotFound, codes.NotFound, 404, StoredNothing, "no",
		"List the dead letters again: it was delivered or discarded."},
	{ReasonRouteNotFound, codes.NotFound, 404, StoredNothing, "no",
		"Check the path; GET /openapi.json lists the routes."},
	{ReasonMethodNotAllowed, codes.Unimplemented, 405, StoredNothing, "no",
		"Use a method that the Allow header names; GET /openapi.json lists the routes."},
	{ReasonRequestTimeout, codes.Unavailable, 408, StoredNo, "yes",
		"The body arrived too slowly: send the request again, with fewer events if the connection is slow."},
	{ReasonNotReached, codes.DeadlineExceeded, 504, StoredNothing, "yes",
		"The run or the projection did not reach the requested position within the deadline, or within the server's own 30 s: retry."},
	{ReasonMemberNotFound, codes.NotFound, 404, StoredNothing, "no",
		"Name one of the members; runlog cluster status lists them."},
	{ReasonMemberExists, codes.AlreadyExists, 409, StoredNothing, "no",
		"Choose another node id or address. If the member that has it is lost, remove that member first."},
	{ReasonMembershipRefused, codes.FailedPrecondition, 409, StoredNothing, "no",
		"The change would harm the cluster, or is not possible: do what the message says first."},
	{ReasonFileChanged, codes.DataLoss, 500, StoredNothing, "no, elsewhere",
		"A file on the node's disk has changed since it was written: back up another node, and replace this one."},
	{ReasonSigningKeyMissing, codes.FailedPrecondition, 409, StoredNothing, "no",
		"Restart a node that has the key. If no node has it any more, make a new key: runlog audit rotate-key --old-key-is-lost."},
	{ReasonUpgradeIncomplete, codes.FailedPrecondition, 409, StoredNo, "once all members are upgraded",
		"Upgrade all members first; runlog cluster status shows their versions. Then send the same request."},
}

// reserved reasons belong to the contract and to calls that are still to come.
var reserved = map[Reason]bool{
	ReasonRunNotWaiting: true,
	ReasonStorageFailed: true,
}

// Reserved tells whether no call of this version ends with the reason.
func (r Reason) Reserved() bool { return reserved[r] }

// Reasons returns the table, in the contract's order; those of HTTP come last.
func Reasons() []ReasonInfo { return append([]ReasonInfo(nil), reasons[:]...) }

// Info returns the row of a reason. A reason outside the table, which is a defect of the server, is
// INTERNAL, 500, and leaves the outcome open.
func (r Reason) Info() ReasonInfo {
	for i := range reasons {
		if reasons[i].Reason == r {
			return reasons[i]
		}
	}
	return ReasonInfo{r, codes.Internal, 500, StoredMaybe, "yes: the key makes it safe", "Report the error to the operator."}
}

// Violation is one fault of one field of a request.
type Violation struct {
	// Field is the lowerCamel path from the event, such as "stepId", or from the request, such as
	// "events[3].stepId". Inside a payload a JSON Pointer (RFC 6901) follows, as in
	// "events[3].payload/error/message". Empty means the text as a whole.
	Field  string
	Reason Reason
	// Description says what is wrong and what to do. It is valid UTF-8 and quotes little of the
	// input.
	Description string
	// Expected is the derived key, on ReasonKeyMismatch.
	Expected string
	// Secret is what the text looks like, on ReasonPayloadHasSecret.
	Secret secrets.Kind
}

// Error is a refusal or failure in the terms of the contract. The edge makes a gRPC status and an
// HTTP answer of it.
type Error struct {
	Reason     Reason
	Message    string
	Violations []Violation
	Metadata   map[string]string
	// RetryAfter is when to try again; 0 says nothing.
	RetryAfter time.Duration
	// DeadlineExceeded marks the OUTCOME_UNKNOWN of a call that ran out of time, the one reason
	// with two codes.
	DeadlineExceeded bool
}

// Error returns the reason and the message.
func (e *Error) Error() string { return string(e.Reason) + ": " + e.Message }

// Code returns the gRPC code of the error.
func (e *Error) Code() codes.Code {
	if e.DeadlineExceeded {
		return codes.DeadlineExceeded
	}
	return e.Reason.Info().Code
}

// HTTP returns the HTTP status of the error.
func (e *Error) HTTP() int {
	if e.DeadlineExceeded {
		return 504
	}
	return e.Reason.Info().HTTP
}
