package queue

import (
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

func (w *work) release(m *recordv1.ReleaseLease) (reply proto.Message, refused, fatal error) {
	r, q, refused, fatal := w.runOfLease(m.RunId, m.Fence)
	if refused != nil || fatal != nil {
		return nil, refused, fatal
	}
	outcome := Outcome(m.Outcome)
	exhausted := outcome == Failed && w.exhausted(q, r) && !r.Cancelling
	switch {
	case outcome < Started || outcome > Skipped:
		return nil, nil, storage.ErrUnknownOperation
	case !w.holds(r) && r.Outcome == m.Outcome && !m.Exhausted:
		return &recordv1.ReleaseReply{State: r.State, Repeated: true}, nil, nil
	case !w.holds(r):
		return nil, leaseEnded(r), nil
	case exhausted != m.Exhausted:
		return nil, changed(q, r), nil
	}
	if outcome != Started {
		if err := w.endFence(r); err != nil {
			return nil, nil, err
		}
	}
	if outcome == Skipped || exhausted {
		return &recordv1.ReleaseReply{}, nil, w.end(q, r)
	}
	if err := w.leave(q, r); err != nil {
		return nil, nil, err
	}
	r.Outcome = m.Outcome
	if outcome == Failed {
		fatal = w.wait(q, r, m.RetryAt)
	} else {
		q.countStart(r)
		r.Released, r.ExpiresAt, r.LeaseTtl = true, 0, 0
		fatal = w.enter(q, r, Running)
	}
	return &recordv1.ReleaseReply{State: r.State}, nil, fatal
}

// exhausted tells whether a run may not be leased again.
func (w *work) exhausted(q *queueState, m *recordv1.QueuedRun) bool {
	return m.StartAttempts >= q.settings.MaxStartAttempts
}

func changed(q *queueState, m *recordv1.QueuedRun) error {
	return &ChangedError{
		RunID: m.RunId, State: State(m.State), StartAttempts: m.StartAttempts, MaxStartAttempts: q.settings.MaxStartAttempts,
	}
}

func (w *work) expire(m *recordv1.ExpireStart) (refused, fatal error) {
	r, q, refused, fatal := w.usedUp(m.RunId, m.Fence)
	if refused != nil || fatal != nil {
		return refused, fatal
	}
	if _, err := w.takeFence(r); err != nil {
		return nil, err
	}
	return nil, w.end(q, r)
}

func (w *work) retry(m *recordv1.RetryStart) (refused, fatal error) {
	r, q, refused, fatal := w.usedUp(m.RunId, m.Fence)
	if refused != nil || fatal != nil {
		return refused, fatal
	}
	if err := w.endFence(r); err != nil {
		return nil, err
	}
	if err := w.leave(q, r); err != nil {
		return nil, err
	}
	r.StartAttempts--
	return nil, w.wait(q, r, 0)
}

// usedUp returns the run of a lease that has expired with no start attempt left, or why there is
// none. One that has accepted a CANCEL ends by it, and one that may have ended is settled first.
func (w *work) usedUp(runID string, fence uint64) (r *recordv1.QueuedRun, q *queueState, refused, fatal error) {
	r, q, refused, fatal = w.runOfLease(runID, fence)
	if refused != nil || fatal != nil {
		return nil, nil, refused, fatal
	}
	expired := r.ExpiresAt != 0 && !w.holds(r) && w.exhausted(q, r)
	if r.Cancelling || r.Unsettled || State(r.State) != Exhausted && !expired {
		refused = changed(q, r)
	}
	return r, q, refused, nil
}

const (
	// leaseTimers bounds the timers that a Lease handles: as many as it may take leases.
	leaseTimers = MaxLeases
	// timersStride is how far the begin of the timers lags at most. To write it is a row; to pass
	// the timers that were deleted is a scan, for every lease.
	timersStride = 100 * time.Millisecond
)

func (w *work) tick(m *recordv1.TickQueues) (*recordv1.TickReply, error) {
	most := int(min(max(m.Max, 1), MaxTimers))
	done, err := w.timers(most)
	return &recordv1.TickReply{Timers: done.timers, More: int(done.timers) == most, Expired: done.expired}, err
}

// handled counts timers, and those of leases among them.
type handled struct{ timers, expired uint32 }

// timers handles at most so many timers that are due, the earliest first.
func (w *work) timers(most int) (done handled, err error) {
	if err := w.count(); err != nil {
		return done, err
	}
	// Everything that is due is handled, unless it is too much. Later operations make timers after
	// the stamp alone.
	next := w.tx.Stamp() + 1
	var due []string
	for row, err := range w.r.Scan(timerKey(w.numbers.TimersFrom, 0), timerKey(next, 0)) {
		if err != nil {
			return done, err
		}
		due = append(due, string(row.Value))
		if len(due) == most {
			if next, err = parseTimer(row.Key); err != nil {
				return done, err
			}
			break
		}
	}
	for _, runID := range due {
		expired, err := w.timer(runID)
		if err != nil {
			return done, err
		}
		if expired {
			done.expired++
		}
	}
	done.timers = uint32(len(due))
	if len(due) > 0 || next-w.numbers.TimersFrom > int64(timersStride) {
		w.numbers.TimersFrom, w.numbersChanged = next, true
	}
	return done, nil
}

// timer handles a run whose lease has expired, or whose time has come.
func (w *work) timer(runID string) (expired bool, err error) {
	m, q, err := w.run(runID)
	if err != nil {
		return false, err
	}
	if m == nil {
		return false, errTimer(runID)
	}
	if expired = m.ExpiresAt != 0; expired {
		if err := w.endFence(m); err != nil {
			return false, err
		}
	}
	if err := w.leave(q, m); err != nil {
		return false, err
	}
	if expired && w.exhausted(q, m) {
		m.Worker, m.ExpiresAt, m.LeaseTtl = "", 0, 0
		return expired, w.enter(q, m, Exhausted)
	}
	return expired, w.wait(q, m, 0)
}
