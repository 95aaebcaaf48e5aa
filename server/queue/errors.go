package queue

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"runlog/proto/contract"
	"runlog/server/rpc"
	"runlog/storage/machine/queue"
)

// fullDelay is when a request for a full queue may be sent again.
const fullDelay = time.Second

// refusal converts an error of the machine into one with a reason.
func refusal(err error) error {
	var (
		conflict *queue.RequestConflictError
		full     *queue.FullError
		many     *queue.TooManyError
		missing  *queue.NotFoundError
		absent   *queue.NotQueuedError
		running  *queue.RunningError
		ended    *queue.LeaseEndedError
		changed  *queue.ChangedError
	)
	switch {
	case errors.As(err, &conflict):
		return refused(contract.ReasonRunRequestConflict, conflict, "run_id", conflict.RunID, "fields", strings.Join(conflict.Fields, ","))
	case errors.As(err, &full):
		e := refused(contract.ReasonRunQueueFull, full, "queue", full.Name.Queue,
			"max_running", decimal(full.MaxRunning), "max_queued", decimal(full.MaxQueued),
			"running", decimal(full.Running), "leased", decimal(full.Leased), "waiting", decimal(full.Waiting))
		e.RetryAfter = fullDelay
		return e
	case errors.As(err, &many):
		return &contract.Error{Reason: contract.ReasonQuotaExceeded, Message: many.Error(), Metadata: map[string]string{"limit": decimal(queue.MaxQueues)}}
	case errors.As(err, &missing):
		return notFound(missing.Name)
	case errors.As(err, &absent):
		return refused(contract.ReasonRunNotQueued, absent, "run_id", absent.RunID)
	case errors.As(err, &running):
		return refused(contract.ReasonRunNotQueued, running, "run_id", running.RunID)
	case errors.As(err, &ended):
		return refused(contract.ReasonLeaseLost, ended, "run_id", ended.RunID,
			"fence", decimal(ended.Fence), "current_fence", decimal(ended.Fence))
	case errors.As(err, &changed):
		return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: rpc.OverloadDelay, Message: changed.Error() + "; nothing was stored"}
	default:
		return err
	}
}

// leaseRefusal is refusal for the holder of a lease: a run that was requested and is in no queue
// any more has no lease either.
func leaseRefusal(fence uint64, err error) error {
	if absent, ok := errors.AsType[*queue.NotQueuedError](err); ok && absent.Fence != 0 {
		return refused(contract.ReasonLeaseLost, absent, "run_id", absent.RunID,
			"fence", decimal(fence), "current_fence", decimal(absent.Fence))
	}
	return refusal(err)
}

// notFound refuses a call about a queue that does not exist, or is another tenant's (SEC-4).
func notFound(name queue.Name) error {
	return refused(contract.ReasonQueueNotFound, &queue.NotFoundError{Name: name}, "queue", name.Queue)
}

// refused makes the error of a reason; pairs are the names and values of its metadata.
func refused(reason contract.Reason, why error, pairs ...string) *contract.Error {
	e := &contract.Error{Reason: reason, Message: rpc.Helpful(reason, why.Error()), Metadata: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		e.Metadata[pairs[i]] = pairs[i+1]
	}
	return e
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// again tells whether a call must read the run again and decide again.
func again(err error) bool {
	_, changed := errors.AsType[*queue.ChangedError](err)
	return changed
}
