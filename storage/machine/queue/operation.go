package queue

import (
	"errors"
	"fmt"
	"time"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// Put is the operation that changes the settings of a queue. It makes the queue if there is none.
// It is refused with a *TooManyError.
func Put(name Name, c Change) (storage.Operation, error) {
	s := &recordv1.QueueSettings{
		MaxRunning: c.MaxRunning, MaxQueued: c.MaxQueued, OnFull: (*uint32)(c.OnFull), Delay: (*int64)(c.Delay),
		LeaseTtl: (*int64)(c.LeaseTTL), MaxStartAttempts: c.MaxStartAttempts, AgingPeriod: (*int64)(c.AgingPeriod), DrainTimeout: (*int64)(c.DrainTimeout),
	}
	if c.OnFull != nil && *c.OnFull > OnFullDelay {
		return storage.Operation{}, fmt.Errorf("queue: encode operation: onFull %d is unknown", *c.OnFull)
	}
	for _, d := range []*time.Duration{c.Delay, c.LeaseTTL, c.AgingPeriod, c.DrainTimeout} {
		if d != nil && *d < 0 {
			return storage.Operation{}, errors.New("queue: encode operation: a duration of the settings is below 0")
		}
	}
	return named(name, &recordv1.QueueOperation{Kind: &recordv1.QueueOperation_PutQueue{
		PutQueue: &recordv1.PutQueue{Name: encodeName(name), Settings: s, Paused: c.Paused},
	}})
}

// Pause is the operation after which no run of a queue is leased, or runs are again. It is refused
// with a *NotFoundError.
func Pause(name Name, paused bool) (storage.Operation, error) {
	return named(name, &recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Pause{
		Pause: &recordv1.PauseQueue{Name: encodeName(name), Paused: paused},
	}})
}

// A RunRequest asks for a run to be started (QUE-1).
type RunRequest struct {
	Key  [32]byte // SHA-256, QUE-2
	Name Name
	// RunID of the run, which the requester has named or not.
	RunID      string
	RunIDNamed bool
	PlanDigest []byte
	Priority   uint32
	NotBefore  int64 // nanoseconds; 0: at once
	// AnswerBytes is about how many bytes the run takes in an answer with its lease.
	AnswerBytes uint32
}

// Request is the operation that enters a run into its queue. The run must exist: its command
// appends RunQueued before. Its reply is for DecodeRequest. It is refused with a *RequestedError, a
// *RequestConflictError, a *FullError, a *TooManyError, a *storage.RunNotFoundError, or with a
// *storage.ScopeError where the run belongs elsewhere than the queue.
func Request(r *RunRequest) (storage.Operation, error) { return request(r, false) }

// Check is the operation that is refused as Request would be, but needs no run. It changes nothing.
// A command has it before the append, which an earlier request of the same run would refuse first,
// and then with another error.
func Check(r *RunRequest) (storage.Operation, error) { return request(r, true) }

func request(r *RunRequest, checkOnly bool) (storage.Operation, error) {
	if r.RunID == "" || r.Priority > MaxPriority || r.NotBefore < 0 {
		return storage.Operation{}, fmt.Errorf("queue: encode request: run %q, priority %d, notBefore %d", r.RunID, r.Priority, r.NotBefore)
	}
	return named(r.Name, &recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Request{Request: &recordv1.RequestRun{
		RequestKey: r.Key[:], Name: encodeName(r.Name), RunId: r.RunID, RunIdNamed: r.RunIDNamed, PlanDigest: r.PlanDigest,
		Priority: r.Priority, NotBefore: r.NotBefore, CheckOnly: checkOnly, AnswerBytes: r.AnswerBytes,
	}}})
}

// Requested is the reply of Request.
type Requested struct {
	Disposition Disposition
	// Position among the ready runs of the queue, by priority and commit order, aging aside; 0: the
	// run is not ready.
	Position  uint64
	NotBefore int64
}

// DecodeRequest decodes the reply of Request.
func DecodeRequest(reply []byte) (Requested, error) {
	var m recordv1.RequestReply
	err := storage.DecodeReply(reply, &m)
	return Requested{Disposition: Disposition(m.Disposition), Position: m.Position, NotBefore: m.NotBefore}, err
}

// A LeaseRequest asks for runs to start (QUE-6).
type LeaseRequest struct {
	// Within selects queues by the begin of their names: the fields up to the first empty one.
	Within Name
	// After is the queue behind which the search begins, so that queues take turns; zero: it begins
	// with the first. The search goes around once.
	After  Name
	Worker string
	Max    int           // 1 to MaxLeases
	TTL    time.Duration // 0: that of each queue
	// MaxBytes bounds the sum of RunRequest.AnswerBytes of the runs, but for a single one; 0: no
	// limit.
	MaxBytes uint32
}

// Lease is the operation that leases the next runs of queues. The queues that it visits, at most
// Max, take turns run by run. It is never refused. Its reply is for DecodeLease.
func Lease(r *LeaseRequest) (storage.Operation, error) {
	if r.Max < 1 || r.Max > MaxLeases || r.TTL < 0 {
		return storage.Operation{}, fmt.Errorf("queue: encode lease: max %d, ttl %v", r.Max, r.TTL)
	}
	m := &recordv1.LeaseRuns{Within: encodeName(r.Within), Worker: r.Worker, Max: uint32(r.Max), Ttl: int64(r.TTL), MaxBytes: r.MaxBytes}
	if r.After != (Name{}) {
		if err := r.After.check(false); err != nil {
			return storage.Operation{}, err
		}
		m.After = encodeName(r.After)
	}
	if err := r.Within.check(true); err != nil {
		return storage.Operation{}, err
	}
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Lease{Lease: m}})
}

// Held is a lease.
type Held struct {
	RunID        string
	Name         Name
	Fence        uint64
	ExpiresAt    int64
	StartAttempt uint32 // from 1
	// AsRequested: the run has no event but its RunQueued, and the metadata with which it was made.
	AsRequested bool
}

// Leases is the reply of Lease.
type Leases struct {
	List []Held
	// Last is the queue for the next After; zero: no queue had a run.
	Last Name
	// Expired is how many other leases have expired by then.
	Expired int
}

// DecodeLease decodes the reply of Lease.
func DecodeLease(reply []byte) (Leases, error) {
	var m recordv1.LeaseReply
	err := storage.DecodeReply(reply, &m)
	out := Leases{Last: decodeName(m.Last), Expired: int(m.Expired)}
	for _, l := range m.Leases {
		out.List = append(out.List, Held{
			RunID: l.RunId, Name: decodeName(l.Name), Fence: l.Fence, ExpiresAt: l.ExpiresAt, StartAttempt: l.StartAttempt,
			AsRequested: l.AsRequested,
		})
	}
	return out, err
}

// Renew is the operation that lets a lease last for ttl from its stamp on; 0: for the ttl of the
// lease, or of its last renewal that had one (QUE-12). It is refused with a *NotQueuedError, a
// *storage.LeaseLostError or a *LeaseEndedError. Its reply is for DecodeRenew.
func Renew(runID string, fence uint64, ttl time.Duration) (storage.Operation, error) {
	if ttl < 0 {
		return storage.Operation{}, fmt.Errorf("queue: encode renewal: ttl %v", ttl)
	}
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Renew{
		Renew: &recordv1.RenewLease{RunId: runID, Fence: fence, Ttl: int64(ttl)},
	}})
}

// DecodeRenew decodes the reply of Renew: when the lease expires.
func DecodeRenew(reply []byte) (expiresAt int64, err error) {
	var m recordv1.RenewReply
	err = storage.DecodeReply(reply, &m)
	return m.ExpiresAt, err
}

// A LeaseRelease ends a lease (QUE-7).
type LeaseRelease struct {
	RunID   string
	Fence   uint64
	Outcome Outcome
	// RetryAt, of Failed: the run is ready again then.
	RetryAt int64
	// Exhausted, of Failed: no start attempt is left, so that the command appends RunFailed too.
	Exhausted bool
}

// Release is the operation that ends a lease. After Started the run holds its slot until its
// terminal event. After Failed it waits until RetryAt; with Exhausted its request ends, as after
// Skipped, and the command appends RunFailed or RunCancelled.
//
// A lease that was released with the same outcome before is not released again, and not refused
// either. Release is refused with a *NotQueuedError, a *storage.LeaseLostError, a *LeaseEndedError,
// or, where Exhausted is not what apply sees, with a *ChangedError. Its reply is for DecodeRelease.
func Release(r *LeaseRelease) (storage.Operation, error) {
	if r.Outcome < Started || r.Outcome > Skipped || r.Exhausted && r.Outcome != Failed {
		return storage.Operation{}, fmt.Errorf("queue: encode release: outcome %d, exhausted %t", r.Outcome, r.Exhausted)
	}
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Release{Release: &recordv1.ReleaseLease{
		RunId: r.RunID, Fence: r.Fence, Outcome: uint32(r.Outcome), RetryAt: r.RetryAt, Exhausted: r.Exhausted,
	}}})
}

// DecodeRelease decodes the reply of Release: the state of the run, and whether the lease was
// released before.
func DecodeRelease(reply []byte) (state State, repeated bool, err error) {
	var m recordv1.ReleaseReply
	err = storage.DecodeReply(reply, &m)
	return State(m.State), m.Repeated, err
}

// Expire is the operation that ends the request of a run whose last lease, with this fence, has
// expired with no start attempt left. Its command appends RunFailed. It is refused with a
// *NotQueuedError, a *storage.LeaseLostError or a *ChangedError.
func Expire(runID string, fence uint64) (storage.Operation, error) {
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Expire{
		Expire: &recordv1.ExpireStart{RunId: runID, Fence: fence},
	}})
}

// Retry is the operation that makes a run ready once more in the state in which Expire would end
// it: a worker has started the run and did not live to release its lease. It is refused as Expire
// is.
func Retry(runID string, fence uint64) (storage.Operation, error) {
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Retry{
		Retry: &recordv1.RetryStart{RunId: runID, Fence: fence},
	}})
}

// Settle is the operation that says which status a run has after its last event, as its snapshot
// says it: the types of its events do not tell whether it has ended (PRJ-17). It is refused with a
// *storage.SequenceError if the run has another last event, and with a *storage.StatusError if its
// events do not allow the status. It has no effect on a run in no queue.
func Settle(runID string, lastSeq uint64, status contract.RunStatus) (storage.Operation, error) {
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Settle{
		Settle: &recordv1.SettleRun{RunId: runID, LastSeq: lastSeq, Status: uint32(status)},
	}})
}

// Cancel is the operation that ends the request of a run that is not running, and the lease of its
// worker. Its command appends RunCancelled, without a fence. It is refused with a *NotQueuedError
// or a *RunningError.
func Cancel(runID string) (storage.Operation, error) {
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Cancel{Cancel: &recordv1.CancelQueued{RunId: runID}}})
}

// Reprioritize is the operation that changes the priority of a run that is not running. It is
// refused with a *NotQueuedError or a *RunningError.
func Reprioritize(runID string, priority uint32) (storage.Operation, error) {
	if priority > MaxPriority {
		return storage.Operation{}, fmt.Errorf("queue: encode operation: priority %d", priority)
	}
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Reprioritize{
		Reprioritize: &recordv1.ReprioritizeRun{RunId: runID, Priority: priority},
	}})
}

// Requeue is the operation that makes a running run ready again, with all its start attempts, and
// ends its fence. A run that is not running stays as it is. Requeue is refused with a
// *NotQueuedError, or with a *ChangedError where the run's last event has another runSeq than
// lastSeq, if that is not nil. Its reply is for DecodeRequeue.
func Requeue(runID string, lastSeq *uint64) (storage.Operation, error) {
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Requeue{
		Requeue: &recordv1.RequeueRun{RunId: runID, LastSeq: lastSeq},
	}})
}

// DecodeRequeue decodes the reply of Requeue: the state of the run, and whether it was not running.
func DecodeRequeue(reply []byte) (state State, repeated bool, err error) {
	var m recordv1.RequeueReply
	err = storage.DecodeReply(reply, &m)
	return State(m.State), m.Repeated, err
}

// Tick is the operation that handles at most n timers that are due, the earliest first, 1 to
// MaxTimers. It is never refused. Its reply is for DecodeTick.
func Tick(n int) (storage.Operation, error) {
	if n < 1 || n > MaxTimers {
		return storage.Operation{}, fmt.Errorf("queue: encode tick: %d timers", n)
	}
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_Tick{Tick: &recordv1.TickQueues{Max: uint32(n)}}})
}

// Ticked is the reply of Tick.
type Ticked struct {
	// Timers were handled, and Expired of them were those of leases.
	Timers, Expired int
	// More: Tick ended because there were so many.
	More bool
}

// DecodeTick decodes the reply of Tick.
func DecodeTick(reply []byte) (Ticked, error) {
	var m recordv1.TickReply
	err := storage.DecodeReply(reply, &m)
	return Ticked{Timers: int(m.Timers), Expired: int(m.Expired), More: m.More}, err
}

func named(name Name, m *recordv1.QueueOperation) (storage.Operation, error) {
	if err := name.check(false); err != nil {
		return storage.Operation{}, err
	}
	return operation(m)
}

func operation(m *recordv1.QueueOperation) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, m)
}
