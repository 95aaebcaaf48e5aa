package queue

import (
	"context"
	"errors"
	"sync"

	"runlog/storage"
	"runlog/storage/machine/queue"
)

const (
	// settling is how many runs the ticker settles at a time.
	settling = 64
	// settlingEvents ends a pass of the ticker: it reads no further run once those that it has read
	// have so many events. The snapshot of a large run may have to be folded from the log.
	settlingEvents = 50_000
)

// settle says which status runs have, where the types of their events do not tell whether they have
// ended (PRJ-17): the log knows no steps, and so not whether a run was WAITING when it got its
// RunCompleted. It tells whether there may be more such runs, and reads one snapshot at a time. A
// run that gets an event after each look at it is not settled, so passes take turns.
func (s *Service) settle(ctx context.Context) (more bool, err error) {
	list, err := queue.ListUnsettled(s.node.Store(), s.ticker.settled, settling)
	if err != nil || len(list) == 0 {
		return false, err
	}
	var settled sync.WaitGroup
	errs := make([]error, len(list))
	events := uint64(0)
	for i, id := range list {
		if events >= settlingEvents {
			break
		}
		s.ticker.settled = id
		op, lastSeq, err := s.settlement(id)
		if err != nil {
			errs[i] = err
			continue
		}
		events += lastSeq
		settled.Go(func() { errs[i] = s.executeSettlement(ctx, op) })
	}
	settled.Wait()
	return true, errors.Join(errs...)
}

// settled settles a run that may have ended, and that the leader has not settled yet: it waits for
// that while the cluster is held.
func (s *Service) settled(ctx context.Context, runID string) error {
	queued, _, err := queue.ReadRun(s.node.Store(), runID)
	if err != nil || queued == nil || !queued.Unsettled {
		return err
	}
	op, _, err := s.settlement(runID)
	if err != nil {
		return err
	}
	return s.executeSettlement(ctx, op)
}

// settlement is the operation that says which status a run has after its last event.
func (s *Service) settlement(runID string) (_ storage.Operation, lastSeq uint64, err error) {
	v, err := s.node.Store().View(runID)
	if err != nil {
		return storage.Operation{}, 0, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snapshot, err := s.opts.Snapshots.Snapshot(v)
	if err != nil {
		return storage.Operation{}, 0, err
	}
	op, err := queue.Settle(runID, snapshot.LastEventSeq, snapshot.Status)
	return op, snapshot.LastEventSeq, err
}

// executeSettlement executes it. If the run has got another event since it was read, the next pass
// settles it.
func (s *Service) executeSettlement(ctx context.Context, op storage.Operation) error {
	_, err := s.execute(ctx, op)
	if errors.As(err, new(*storage.SequenceError)) {
		return nil
	}
	return err
}
