package run

import (
	"fmt"
	"time"

	"runlog/proto/contract"
)

// Status is the status of a run.
type Status = contract.RunStatus

// The run statuses of the contract (docs/contract.md, Projections).
const (
	Pending   = contract.StatusPending
	Approved  = contract.StatusApproved
	Running   = contract.StatusRunning
	Paused    = contract.StatusPaused
	Waiting   = contract.StatusWaiting
	Completed = contract.StatusCompleted
	Failed    = contract.StatusFailed
	Cancelled = contract.StatusCancelled
)

// StepStatus is the status of one logical attempt of a step. Its numbers are those of
// runlog.v1.StepStatus; zero is no status.
type StepStatus uint8

// The step statuses of the contract (docs/contract.md, Projections).
const (
	StepPending StepStatus = iota + 1
	StepRunning
	StepWaitingForAttestation
	StepSuccess
	StepFailed
	StepSkipped
)

var stepStatusNames = [...]string{
	StepPending:               "PENDING",
	StepRunning:               "RUNNING",
	StepWaitingForAttestation: "WAITING_FOR_ATTESTATION",
	StepSuccess:               "SUCCESS",
	StepFailed:                "FAILED",
	StepSkipped:               "SKIPPED",
}

// String returns the status as the contract spells it.
func (s StepStatus) String() string { return enumName(stepStatusNames[:], uint8(s)) }

// Terminal reports whether the attempt is over.
func (s StepStatus) Terminal() bool { return s >= StepSuccess }

func enumName(names []string, n uint8) string {
	if int(n) >= len(names) || names[n] == "" {
		return fmt.Sprintf("INVALID(%d)", n)
	}
	return names[n]
}

// enumNumber is the inverse of enumName; 0 when there is no such name.
func enumNumber(names []string, name []byte) uint8 {
	for i := 1; i < len(names); i++ {
		if names[i] == string(name) {
			return uint8(i)
		}
	}
	return 0
}

// Artifact is a pointer to content, never content (ENV-7).
type Artifact struct {
	URI       string
	Kind      string
	SHA256    string
	SizeBytes *int64 // nil: unknown
	ExpiresAt string // as the producer wrote it
}

// StepError is the reason for which a step failed. Empty texts are absent (PRJ-10).
type StepError struct {
	Code      string
	Message   string
	Retryable *bool // nil: not said
	Category  string
}

// StepRetry tells that a try of the platform failed, and that the platform tries the same logical
// attempt again (PRJ-18).
type StepRetry struct {
	EngineAttemptID uint32     // of the try that failed
	Error           *StepError // nil: not said
	NextAttemptAt   time.Time  // UTC; zero: not said
}

// RootCause is the reason for which a run failed, from its RunFailed (PRJ-3).
type RootCause struct {
	StepID   string
	Code     string
	Message  string
	Category string
}

// PlanRef points at the plan that a run executes.
type PlanRef struct {
	URI           string
	SHA256        string
	SchemaVersion string
	PlanID        string
	PlanVersion   string
	SizeBytes     *int64 // nil: unknown
	Compression   string
	// ExpiresAt is the text of its event.
	ExpiresAt           string
	SchemaEvolutionPath string
	MigrationHint       *MigrationHint
}

// MigrationHint is that of a PlanRef.
type MigrationHint struct {
	SourceVersion   string
	TargetVersion   string
	TransformScript string
}

// SignalDecision is one SignalAccepted or SignalRejected (PRJ-3).
type SignalDecision struct {
	EventID    string
	RunSeq     uint64
	Accepted   bool
	SignalID   string
	SignalType string
	DecidedBy  string
	Reason     string
	DecidedAt  time.Time
	StepID     string
}

// InvalidTransition is the kind of every Inconsistency so far.
const InvalidTransition = "INVALID_TRANSITION"

// Inconsistency is an event that the run's state did not allow (PRJ-8).
type Inconsistency struct {
	Kind    string
	EventID string
	RunSeq  uint64
	// State that the event met: a run status such as "COMPLETED", or the step and its status such
	// as "build: SUCCESS".
	State string
	// Attempted is the event's type.
	Attempted string
}

// StepAttempt is one logical attempt of a step. A zero time, an empty string and a zero
// EngineAttemptID are absent.
type StepAttempt struct {
	LogicalAttemptID uint32
	EngineAttemptID  uint32 // the highest seen in this attempt (PRJ-7)
	// OutcomeEngineAttemptID is that of the event that made the attempt FAILED; 0 unless FAILED. An
	// event with a higher one replaces the outcome (PRJ-15).
	OutcomeEngineAttemptID uint32

	Status      StepStatus
	StartedAt   time.Time // UTC
	CompletedAt time.Time
	Artifacts   []Artifact
	Error       *StepError
	Reason      string
	// Retry is set from a StepRetrying until the next event of the attempt.
	Retry *StepRetry
}

// StepSnapshot is a step: its current logical attempt, and the earlier ones.
type StepSnapshot struct {
	StepID string
	StepAttempt
	// Attempts are the earlier logical attempts (PRJ-7), and the failures that the platform retried
	// inside a logical attempt (PRJ-15). Invariant: no logical attempt is above the current one.
	Attempts Attempts
	// Approvals are the attesters that have approved the current attempt, while it waits for others
	// (SEC-10).
	Approvals []string

	made *edit // the fold that may change it, as with the nodes of trees
}

// Snapshot is the fold of a run's records in runSeq order (docs/contract.md, Projections).
//
// A published snapshot is immutable, with everything it points at: later snapshots of the run share
// its steps, artifacts and lists. A caller that needs another value copies first. A zero time and
// an empty string are absent.
type Snapshot struct {
	RunID         string
	TenantID      string
	ProjectID     string
	EnvironmentID string
	PlanID        string
	PlanVersion   string

	Status Status
	// LastEventSeq is the watermark: the highest runSeq applied. It never goes back.
	LastEventSeq uint64

	Steps Steps
	// Artifacts is filled by RunCompleted (PRJ-3).
	Artifacts []Artifact
	// FailedSteps counts the logical attempts that are FAILED. What amends an earlier attempt does
	// not change it (PRJ-7, PRJ-15).
	FailedSteps uint32

	EngineRunRef    string
	EngineType      string
	PlanRef         *PlanRef
	TriggeredBy     string
	TriggerSource   string
	StartedAt       time.Time // UTC
	CompletedAt     time.Time
	TotalDurationMs *int64
	RootCause       *RootCause

	// Signals are the last 20 decisions, oldest first.
	Signals []SignalDecision
	// Inconsistencies are the first 100; InconsistencyCount counts all.
	Inconsistencies    []Inconsistency
	InconsistencyCount uint32

	// Pending are the accepted signals whose effect no event shows yet, in the order of their
	// acceptance (PRJ-19). The decision about the next signal needs them (SIG-2).
	Pending []PendingSignal

	// The fields below are no part of the canonical form and the digest. MarshalStored keeps them.

	// PersistedAt is the stamp of the newest applied record, for the projection lag (PRJ-11).
	PersistedAt time.Time
	// Draining is the field of the RunPaused that holds the run, and PausedAt its persistedAt. Both
	// are set only while the run is PAUSED (PRJ-9).
	Draining bool
	PausedAt time.Time

	memo *memo // nil: nothing is cached
}

// Step returns the step, or nil when no event has named it.
func (s *Snapshot) Step(stepID string) *StepSnapshot {
	step, _ := s.Steps.find(stepID)
	return step
}

// RunningSteps counts the steps whose current attempt is RUNNING.
func (s *Snapshot) RunningSteps() int {
	n := 0
	for step := range s.Steps.All() {
		if step.Status == StepRunning {
			n++
		}
	}
	return n
}
