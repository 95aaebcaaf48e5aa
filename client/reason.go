package client

import "runlog/proto/contract"

// Reason names why a call was refused or failed. A program may branch on it: a reason never changes
// its name. "runlog errors lookup REASON" and docs/errors.md say what to do.
type Reason = contract.Reason

// The reasons with which a server answers.
const (
	ReasonInvalidArgumentField   = contract.ReasonInvalidArgumentField
	ReasonSchemaValidationFailed = contract.ReasonSchemaValidationFailed
	ReasonKeyMismatch            = contract.ReasonKeyMismatch
	ReasonPayloadTooLarge        = contract.ReasonPayloadTooLarge
	ReasonPayloadHasSecret       = contract.ReasonPayloadHasSecret
	ReasonSequenceConflict       = contract.ReasonSequenceConflict
	ReasonRunAlreadyExists       = contract.ReasonRunAlreadyExists
	ReasonRunScopeMismatch       = contract.ReasonRunScopeMismatch
	ReasonStepNotWaiting         = contract.ReasonStepNotWaiting
	ReasonRunNotWaiting          = contract.ReasonRunNotWaiting
	ReasonKeyTaken               = contract.ReasonKeyTaken
	ReasonRunNotFound            = contract.ReasonRunNotFound
	ReasonStepNotFound           = contract.ReasonStepNotFound
	ReasonUnauthenticated        = contract.ReasonUnauthenticated
	ReasonPermissionDenied       = contract.ReasonPermissionDenied
	ReasonReservedEventType      = contract.ReasonReservedEventType
	ReasonOverloaded             = contract.ReasonOverloaded
	ReasonTenantRateLimited      = contract.ReasonTenantRateLimited
	ReasonQuotaExceeded          = contract.ReasonQuotaExceeded
	ReasonDiskLow                = contract.ReasonDiskLow
	ReasonClusterHeld            = contract.ReasonClusterHeld
	ReasonNoLeader               = contract.ReasonNoLeader
	ReasonNotLeader              = contract.ReasonNotLeader
	ReasonShuttingDown           = contract.ReasonShuttingDown
	ReasonOutcomeUnknown         = contract.ReasonOutcomeUnknown
	ReasonStorageFailed          = contract.ReasonStorageFailed
	ReasonSlowConsumer           = contract.ReasonSlowConsumer
	ReasonResumeTokenInvalid     = contract.ReasonResumeTokenInvalid
	ReasonLeaseLost              = contract.ReasonLeaseLost
	ReasonRunRequestConflict     = contract.ReasonRunRequestConflict
	ReasonRunQueueFull           = contract.ReasonRunQueueFull
	ReasonRunNotQueued           = contract.ReasonRunNotQueued
	ReasonQueueNotFound          = contract.ReasonQueueNotFound
	ReasonSignalTooLarge         = contract.ReasonSignalTooLarge
	ReasonSignalRateLimited      = contract.ReasonSignalRateLimited
	ReasonSubscriptionNotFound   = contract.ReasonSubscriptionNotFound
	ReasonSubscriptionConflict   = contract.ReasonSubscriptionConflict
	ReasonSubscriptionNotPull    = contract.ReasonSubscriptionNotPull
	ReasonDeadLetterNotFound     = contract.ReasonDeadLetterNotFound
	ReasonRouteNotFound          = contract.ReasonRouteNotFound
	ReasonMethodNotAllowed       = contract.ReasonMethodNotAllowed
	ReasonRequestTimeout         = contract.ReasonRequestTimeout
	ReasonNotReached             = contract.ReasonNotReached
	ReasonMemberNotFound         = contract.ReasonMemberNotFound
	ReasonMemberExists           = contract.ReasonMemberExists
	ReasonMembershipRefused      = contract.ReasonMembershipRefused
	ReasonFileChanged            = contract.ReasonFileChanged
	ReasonSigningKeyMissing      = contract.ReasonSigningKeyMissing
	ReasonUpgradeIncomplete      = contract.ReasonUpgradeIncomplete

	ReasonSignalPolicyUnavailable = contract.ReasonSignalPolicyUnavailable
)
