package queue

import (
	"errors"
	"fmt"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// The fence of a run says which of its leases may write (QUE-8), or that none may:
//
//	1       the run was requested, and never leased
//	2       its first lease lasts, or was released as started
//	3       that lease was released otherwise, or its timer was handled: no worker has this number
//	4       another lease, or a Cancel, an Expire or a Requeue, which take the run as a lease does
//
// So an even number is that of a lease, and the odd one behind it says that this lease has ended. A
// cluster that continues from a backup counts from Tx.FirstFence on, which is odd too, so that no
// fence of the cluster before is ever one of its own.

// LeaseOf returns the lease that a fence of a run is of; 0: the run was never leased.
func LeaseOf(fence uint64) uint64 { return fence - fence%2 }

// nextLease returns the number of the lease behind a fence.
func nextLease(fence uint64) uint64 { return LeaseOf(fence) + 2 }

// takeFence gives a run the fence of a new lease. The store refuses one that is not above the run's
// own, which may be higher than the row of this machine says: a restore from a backup raises the
// fences of all runs. Then the lease behind that fence is tried.
func (w *work) takeFence(m *recordv1.QueuedRun) (fence uint64, err error) {
	fence = m.Fence
	for {
		fence = nextLease(fence)
		refused, err := w.tx.SetFence(m.RunId, fence)
		if refused == nil || err != nil {
			return fence, err
		}
		if fence, err = higher(refused); err != nil {
			return 0, err
		}
	}
}

// endFence raises the fence of a run above that of its last lease, unless it is there already.
func (w *work) endFence(m *recordv1.QueuedRun) error {
	refused, err := w.tx.SetFence(m.RunId, m.Fence+1)
	if refused == nil || err != nil {
		return err
	}
	_, err = higher(refused)
	return err
}

// higher returns the current fence of a run, from the refusal of one that is not above it.
func higher(refused error) (fence uint64, err error) {
	lost, ok := errors.AsType[*storage.LeaseLostError](refused)
	if !ok {
		return 0, fmt.Errorf("queue: set fence: %w", refused)
	}
	return lost.Current, nil
}
