package queue

import (
	"fmt"
	"slices"
	"strings"
)

// RequestedError says that a request was made before (QUE-2). Nothing is stored; the caller answers
// with the run that there is.
type RequestedError struct {
	RunID       string
	RequestedAt int64
	// Disposition and NotBefore are those of the first answer.
	Disposition Disposition
	NotBefore   int64
}

func (e *RequestedError) Error() string {
	return fmt.Sprintf("the run was requested before, as run %q", e.RunID)
}

// RequestConflictError says that a request key or a run is taken by another request (QUE-2).
type RequestConflictError struct {
	RunID string // of the other request
	// Fields in which the requests differ: planDigest, runId. requestKey: the run was requested
	// under another key.
	Fields []string
}

func (e *RequestConflictError) Error() string {
	if slices.Contains(e.Fields, "requestKey") {
		return fmt.Sprintf("run %q was requested before, with another runRequestId, plan or scope", e.RunID)
	}
	return fmt.Sprintf("another request, of run %q, differs in %s", e.RunID, strings.Join(e.Fields, ", "))
}

// FullError says that a queue takes no more requests at the moment (QUE-4).
type FullError struct {
	Name                     Name
	OnFull                   OnFull
	MaxRunning, MaxQueued    uint64
	Running, Leased, Waiting uint64 // Waiting are the ready and the delayed runs.
}

func (e *FullError) Error() string {
	return fmt.Sprintf("queue %s is full: %d running, %d leased, %d waiting; maxRunning is %d, maxQueued %d",
		e.Name, e.Running, e.Leased, e.Waiting, e.MaxRunning, e.MaxQueued)
}

// TooManyError says that a tenant has as many queues as it may have.
type TooManyError struct{ Tenant string }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("tenant %q has %d queues, as many as it may have: use one of them", e.Tenant, MaxQueues)
}

// NotFoundError says that there is no queue by a name.
type NotFoundError struct{ Name Name }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no queue %s", e.Name) }

// NotQueuedError says that a run is in no queue: it was never requested, or its request has ended.
type NotQueuedError struct {
	RunID string
	// Fence is the run's current one; 0: the run was never requested.
	Fence uint64
}

func (e *NotQueuedError) Error() string {
	if e.Fence == 0 {
		return fmt.Sprintf("run %q was never requested", e.RunID)
	}
	return fmt.Sprintf("the request of run %q has ended", e.RunID)
}

// LeaseEndedError says that a lease was the run's last one, and has ended (QUE-8, QUE-9).
type LeaseEndedError struct {
	RunID string
	Fence uint64
	State State // of the run
	// Outcome is how the lease was released; 0: it has expired.
	Outcome Outcome
}

func (e *LeaseEndedError) Error() string {
	how := "has expired"
	if e.Outcome != 0 {
		how = "was released"
	}
	return fmt.Sprintf("lease %d of run %q %s; the run is %s", e.Fence, e.RunID, how, e.State)
}

// RunningError says that a run occupies a running slot and waits no more.
type RunningError struct{ RunID string }

func (e *RunningError) Error() string {
	return fmt.Sprintf("run %q was started", e.RunID)
}

// ChangedError says that an operation was proposed for another state of the run than it is in. The
// proposer reads the run again and decides again.
type ChangedError struct {
	RunID string
	State State
	// StartAttempts of MaxStartAttempts are used up.
	StartAttempts, MaxStartAttempts uint32
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("run %q is %s, with %d of %d start attempts used up: read it again and retry",
		e.RunID, e.State, e.StartAttempts, e.MaxStartAttempts)
}
