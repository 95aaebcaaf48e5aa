package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/queue"
	"runlog/storage/table"
)

const (
	// longestSleep bounds how long the ticker sleeps while there is a timer: the clock of the node
	// may be set.
	longestSleep = time.Second
	// tickerRetry is when the ticker tries again after an error.
	tickerRetry = time.Second
	// expiring is how many runs the ticker ends at a time.
	expiring = 64
)

// ticker does on the leader what is due: leases expire, runs whose time has come are ready, runs
// without a start attempt left fail, and runs that may have ended are settled. It rests while the
// cluster is held.
type ticker struct {
	// Set by Service.start, and never again.

	wake chan struct{} // has room for one
	end  context.CancelFunc
	done sync.WaitGroup

	// next is the timer for which the ticker sleeps. Before it looks for the first timer in the
	// store, it is the highest number, so that written, on the goroutine that applies, wakes the
	// ticker for any timer. Then it is the first timer, and written wakes it for an earlier one. So
	// a timer that is set meanwhile is found in the store, or wakes the ticker.
	next atomic.Int64

	// Used by the ticker's goroutine alone. The next pass begins behind the run that was settled
	// last, and behind the order of the run that was ended last, so that one that cannot be ended
	// does not hold up the others.
	settled string
	ended   uint64
}

// start starts the ticker. Close ends it.
func (s *Service) start() {
	ctx, end := context.WithCancel(s.opts.Stopping)
	s.ticker.wake, s.ticker.end = make(chan struct{}, 1), end
	s.stopRows = s.node.Store().WatchRows(queue.Kind, s.written)
	s.ticker.done.Go(func() {
		for s.node.WaitLeading(ctx) == nil && s.node.Store().WaitReleased(ctx) == nil && ctx.Err() == nil {
			s.keepTime(ctx)
			s.waiters.end()
		}
	})
}

// written is called with what an entry has changed, by the goroutine that applies the log.
func (s *Service) written(rows []table.Row) {
	if !s.node.Leading() {
		return // No call waits here, and another node keeps the time.
	}
	// A call that begins to wait later sees these rows.
	w, err := queue.DecodeWritten(rows, s.waiters.count() > 0)
	if err != nil {
		s.opts.Logger.Error("cannot decode the rows of a queue", "err", err)
		return
	}
	for _, q := range w.Queues {
		if n := q.Leasable(); n > 0 {
			s.waiters.offer(q.Name, n)
		}
	}
	if w.Exhausted || w.Unsettled || w.Timer != 0 && w.Timer < s.ticker.next.Load() {
		s.wakeTicker()
	}
}

func (s *Service) wakeTicker() {
	select {
	case s.ticker.wake <- struct{}{}:
	default:
	}
}

// keepTime handles timers until the leadership ends.
func (s *Service) keepTime(ctx context.Context) {
	failing := false
	changed := s.node.LeaderChange()
	for s.node.Leading() && ctx.Err() == nil {
		// A timer that is set from now on wakes the ticker.
		s.ticker.next.Store(1<<63 - 1)
		sleep, err := s.tick(ctx)
		if err != nil {
			if !failing && ctx.Err() == nil && s.node.Leading() {
				s.opts.Logger.Warn("cannot handle the timers of queues; retrying", "after", tickerRetry, "err", err)
			}
			sleep = tickerRetry
		}
		failing = err != nil
		if sleep > 0 {
			select {
			case <-s.ticker.wake:
			case <-time.After(sleep):
			case <-changed:
			case <-ctx.Done():
			}
		}
		select {
		case <-changed: // Between two leaderships written wakes no call. None may miss a run.
			changed = s.node.LeaderChange() // First, so that no change is missed.
			s.waiters.end()
		default:
		}
	}
}

// idle is how long the ticker sleeps without a timer: until one is set.
const idle = time.Hour

// tick does what is due, and returns how long nothing is. Runs that cannot be ended, and those that
// may have ended, hold up no timer.
func (s *Service) tick(ctx context.Context) (sleep time.Duration, err error) {
	unsettled, errSettle := s.settle(ctx)
	exhausted, errExpire := s.expire(ctx)
	sleep, err = s.timers(ctx)
	if unsettled || exhausted {
		sleep = 0
	}
	return sleep, errors.Join(errSettle, errExpire, err)
}

// timers handles those that are due, and returns how long none is.
func (s *Service) timers(ctx context.Context) (sleep time.Duration, err error) {
	due, is, err := queue.NextTimer(s.node.Store())
	if err != nil || !is {
		return idle, err
	}
	if due > s.now() {
		s.ticker.next.Store(due)
		return min(longestSleep, max(time.Microsecond, time.Duration(due-s.opts.Clock().UnixNano()))), nil
	}
	op, err := queue.Tick(queue.MaxTimers)
	if err != nil {
		return 0, err
	}
	outcome, err := s.execute(ctx, op)
	if err != nil {
		return 0, err
	}
	done, err := queue.DecodeTick(outcome.Answers[0].Reply)
	s.metrics.expired.Add(float64(done.Expired))
	return 0, err
}

func (s *Service) execute(ctx context.Context, ops ...storage.Operation) (storage.Outcome, error) {
	cmd, err := storage.EncodeCommand(ops...)
	if err != nil {
		return storage.Outcome{}, err
	}
	return s.node.Execute(ctx, cmd)
}

// expire ends the runs that are exhausted (QUE-7, QUE-10), and tells whether there may be more.
func (s *Service) expire(ctx context.Context) (more bool, err error) {
	list, err := queue.ListExhausted(s.node.Store(), s.ticker.ended, expiring)
	if err != nil || len(list) == 0 {
		return false, err
	}
	s.ticker.ended = list[len(list)-1].Order
	var ends sync.WaitGroup
	errs := make([]error, len(list))
	for i, r := range list {
		ends.Go(func() { errs[i] = s.expireRun(ctx, r) })
	}
	ends.Wait()
	return true, errors.Join(errs...)
}

// expireRun ends one run. A run that was started is not ended: its worker did not live to release
// the lease, so another one gets the run once more. A refusal says that the run has ended, has
// another event or is not exhausted, since it was read.
func (s *Service) expireRun(ctx context.Context, r *queue.Run) error {
	operation, end, err := s.expiry(r)
	if err != nil {
		return err
	}
	_, err = s.executeEnd(ctx, end, operation)
	var lost *storage.LeaseLostError
	var gone *queue.NotQueuedError
	var overtaken *storage.SequenceError
	if again(err) || errors.As(err, &lost) || errors.As(err, &gone) || errors.As(err, &overtaken) {
		return nil
	}
	return err
}

// expiry is the command about an exhausted run, as the run is now. end is nil for a run that was
// started, and for one that is not settled yet.
func (s *Service) expiry(r *queue.Run) (operation storage.Operation, end *storage.Append, err error) {
	v, err := s.node.Store().View(r.RunID)
	if err != nil {
		return operation, nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snapshot, err := s.opts.Snapshots.Snapshot(v)
	if err != nil {
		return operation, nil, err
	}
	if snapshot.Status.Terminal() || r.Unsettled {
		operation, err = queue.Settle(r.RunID, snapshot.LastEventSeq, snapshot.Status)
		return operation, nil, err
	}
	if r.Cancelling || cancelling(snapshot) != nil {
		return s.cancellation(v.Run, snapshot, contract.Author{})
	}
	if snapshot.Status != run.Pending && snapshot.Status != run.Approved {
		operation, err = queue.Retry(r.RunID, r.Fence)
		return operation, nil, err
	}
	if end, err = s.ending(s.failed(v.Run, noStart(r.StartAttempts), r.StartAttempts), "", contract.Author{}); err != nil {
		return operation, nil, err
	}
	end.ExpectedLastSeq = &snapshot.LastEventSeq
	operation, err = queue.Expire(r.RunID, r.Fence)
	return operation, end, err
}
