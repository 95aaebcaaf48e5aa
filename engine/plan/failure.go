package plan

import (
	"errors"
	"fmt"

	"runlog/engine/blob"
)

// Codes of failures. They are reasons of the contract, but for the last one.
const (
	CodeInvalid         = "PLAN_INVALID"
	CodeIntegrity       = "PLAN_INTEGRITY_VALIDATION_FAILED"
	CodeVersionMismatch = "PLAN_SCHEMA_VERSION_MISMATCH"
	CodeFetchFailed     = "PLAN_FETCH_FAILED"
)

const categoryValidation = "VALIDATION_ERROR"

// Failure is what each error of this package about a plan is: *InvalidError, *IntegrityError,
// *VersionError and *FetchError. Each one is also a JSON object, for the events of a run.
type Failure interface {
	error
	// Code is the code of the error in the events of a run.
	Code() string
	// Retryable reports whether the same call may succeed later.
	Retryable() bool
	MarshalJSON() ([]byte, error)
}

var (
	_ Failure = (*InvalidError)(nil)
	_ Failure = (*IntegrityError)(nil)
	_ Failure = (*VersionError)(nil)
	_ Failure = (*FetchError)(nil)
)

// IntegrityError says that a download is not the plan that its reference names (PLAN-2). The run
// must fail.
type IntegrityError struct {
	Ref Ref
	// ActualSHA256 is the digest of the bytes that were received.
	ActualSHA256 string
	// Cause tells more. nil: only the digests differ.
	Cause error
}

const integrityMessage = "Plan hash mismatch: expected sha256 does not match downloaded content"

// Error says which plan it is, and what differs.
func (e *IntegrityError) Error() string {
	text := fmt.Sprintf("plan: fetch %s: the content is not that of the reference: expected SHA-256 %s, got %s",
		blob.Shown(e.Ref.URI), e.Ref.SHA256, e.ActualSHA256)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text + ": compare the stored plan with the approved one"
}

// Unwrap returns the cause.
func (e *IntegrityError) Unwrap() error { return e.Cause }

// Code is the reason of the contract.
func (*IntegrityError) Code() string { return CodeIntegrity }

// Retryable is false.
func (*IntegrityError) Retryable() bool { return false }

// MarshalJSON returns the error byte for byte as PLAN-2 has it.
func (e *IntegrityError) MarshalJSON() ([]byte, error) {
	return marshal(failure{Category: categoryValidation, Code: CodeIntegrity, Message: integrityMessage, Details: struct {
		ExpectedSHA256 string `json:"expectedSha256"`
		ActualSHA256   string `json:"actualSha256"`
		PlanURI        string `json:"planUri"`
		PlanID         string `json:"planId"`
		PlanVersion    string `json:"planVersion"`
	}{e.Ref.SHA256, e.ActualSHA256, e.Ref.URI, e.Ref.PlanID, e.Ref.PlanVersion}})
}

// VersionError says that this build cannot read the schema version of a plan (PLAN-3).
type VersionError struct {
	Message string
}

// Error returns the message.
func (e *VersionError) Error() string { return "plan: schema version: " + e.Message }

// Code is the reason of the contract.
func (*VersionError) Code() string { return CodeVersionMismatch }

// Retryable is false: only another build reads other versions.
func (*VersionError) Retryable() bool { return false }

// MarshalJSON returns the error as an event has it.
func (e *VersionError) MarshalJSON() ([]byte, error) {
	return marshal(failure{Category: categoryValidation, Code: CodeVersionMismatch, Message: e.Message})
}

// FetchError says that a plan could not be downloaded.
type FetchError struct {
	URI string // without its query
	Err error  // of the source
}

// Error says which plan, and why.
func (e *FetchError) Error() string { return fmt.Sprintf("plan: fetch %s: %v", e.URI, e.Err) }

// Unwrap returns the cause.
func (e *FetchError) Unwrap() error { return e.Err }

// Code is that of a start that failed before there was a plan.
func (*FetchError) Code() string { return CodeFetchFailed }

// Retryable is what the source says of its error. An error that says nothing is one of the network,
// and retryable.
func (e *FetchError) Retryable() bool {
	if failed, ok := errors.AsType[interface {
		error
		Retryable() bool
	}](e.Err); ok {
		return failed.Retryable()
	}
	return true
}

// MarshalJSON returns the error as an event has it.
func (e *FetchError) MarshalJSON() ([]byte, error) {
	return marshal(failure{Category: "INFRASTRUCTURE_ERROR", Code: CodeFetchFailed, Message: e.Error(), Retryable: e.Retryable()})
}
