package queue

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Apply implements storage.Machine.
func (m Machine) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	var o recordv1.QueueOperation
	if err := proto.Unmarshal(op, &o); err != nil {
		return nil, nil, fmt.Errorf("queue: undecodable operation: %w", err)
	}
	w := m.begin(tx)
	answer, refused, fatal := w.apply(&o)
	if refused != nil || fatal != nil {
		return nil, refused, fatal
	}
	if err := w.flush(); err != nil {
		return nil, nil, err
	}
	if answer == nil {
		return nil, nil, nil
	}
	reply, fatal = table.Encode(answer)
	return reply, nil, fatal
}

func (w *work) apply(o *recordv1.QueueOperation) (reply proto.Message, refused, fatal error) {
	switch kind := o.Kind.(type) {
	case *recordv1.QueueOperation_PutQueue:
		refused, fatal = w.put(kind.PutQueue)
	case *recordv1.QueueOperation_Pause:
		refused, fatal = w.pause(kind.Pause)
	case *recordv1.QueueOperation_Request:
		return w.request(kind.Request)
	case *recordv1.QueueOperation_Lease:
		reply, fatal = w.lease(kind.Lease)
	case *recordv1.QueueOperation_Renew:
		return w.renew(kind.Renew)
	case *recordv1.QueueOperation_Release:
		return w.release(kind.Release)
	case *recordv1.QueueOperation_Expire:
		refused, fatal = w.expire(kind.Expire)
	case *recordv1.QueueOperation_Retry:
		refused, fatal = w.retry(kind.Retry)
	case *recordv1.QueueOperation_Cancel:
		refused, fatal = w.cancel(kind.Cancel)
	case *recordv1.QueueOperation_Reprioritize:
		refused, fatal = w.reprioritize(kind.Reprioritize)
	case *recordv1.QueueOperation_Requeue:
		return w.requeue(kind.Requeue)
	case *recordv1.QueueOperation_Tick:
		reply, fatal = w.tick(kind.Tick)
	case *recordv1.QueueOperation_Settle:
		refused, fatal = w.settle(kind.Settle)
	case *recordv1.QueueOperation_EndDrains:
		reply, fatal = w.endDrains(kind.EndDrains)
	default:
		fatal = storage.ErrUnknownOperation
	}
	return reply, refused, fatal
}

// Ended implements storage.Ender: the run leaves its queue, and its slot is free.
func (m Machine) Ended(tx *storage.Tx, runID string) error {
	w := m.begin(tx)
	r, q, err := w.run(runID)
	if err != nil || r == nil {
		return err
	}
	if err := w.end(q, r); err != nil {
		return err
	}
	return w.flush()
}

// Unsettled implements storage.Ender: the run keeps its slot, and no worker gets it, until a
// Settle.
func (m Machine) Unsettled(tx *storage.Tx, runID string) error {
	w := m.begin(tx)
	r, q, err := w.run(runID)
	if err != nil || r == nil {
		return err
	}
	r.Unsettled = true
	w.tx.Set(unsettledKey(runID), []byte{1}) // not nil, as of a row that was deleted
	if State(r.State) != Ready {
		return table.Set(w.tx, runKey(runID), r)
	}
	if err := w.leave(q, r); err != nil {
		return err
	}
	if err := w.wait(q, r, 0); err != nil {
		return err
	}
	return w.flush()
}

func (w *work) settle(m *recordv1.SettleRun) (refused, fatal error) {
	r, q, err := w.run(m.RunId)
	if err != nil || r == nil {
		return nil, err // It has ended meanwhile.
	}
	waited := r.Unsettled
	if waited {
		r.Unsettled = false
		w.tx.Delete(unsettledKey(m.RunId))
		if err := table.Set(w.tx, runKey(m.RunId), r); err != nil {
			return nil, err
		}
	}
	status := contract.RunStatus(m.Status)
	refused, fatal = w.tx.Settle(m.RunId, m.LastSeq, status)
	if refused != nil || fatal != nil || status.Terminal() || !waited || State(r.State) != Exhausted || w.exhausted(q, r) {
		return refused, fatal
	}
	if err := w.leave(q, r); err != nil {
		return nil, err
	}
	return nil, w.wait(q, r, 0)
}

// Noticed implements storage.Noticer.
func (m Machine) Noticed(tx *storage.Tx, runID string, notice contract.Notice) error {
	w := m.begin(tx)
	r, q, err := w.run(runID)
	if err != nil {
		return err
	}
	switch {
	case notice == contract.NoticeDraining:
		w.draining(runID, q)
	case r == nil:
	case notice == contract.NoticeStarted:
		err = w.started(q, r)
	case notice == contract.NoticeCancelling:
		err = w.cancelling(q, r)
	}
	if err != nil {
		return err
	}
	return w.flush()
}

// started takes note of the RunStarted of a run: from now on its worker executes it (QUE-12).
func (w *work) started(q *queueState, r *recordv1.QueuedRun) error {
	if r.Started {
		return nil
	}
	r.Started = true
	q.countStart(r)
	if State(r.State) != Leased {
		return table.Set(w.tx, runKey(r.RunId), r)
	}
	if err := w.leave(q, r); err != nil {
		return err
	}
	return w.enter(q, r, Running)
}

// cancelling takes note that a run has accepted a CANCEL (QUE-10). The worker that executes it, or
// the engine that has it, hears the signal. A run that was not started, or that waits, gets no
// worker any more.
func (w *work) cancelling(q *queueState, r *recordv1.QueuedRun) error {
	r.Cancelling = true
	switch State(r.State) {
	case Running, Exhausted:
		return table.Set(w.tx, runKey(r.RunId), r)
	case Leased:
		if err := w.endFence(r); err != nil {
			return err
		}
	}
	if err := w.leave(q, r); err != nil {
		return err
	}
	return w.wait(q, r, 0)
}

func (w *work) put(m *recordv1.PutQueue) (refused, fatal error) {
	q, refused, fatal := w.findOrMake(decodeName(m.Name))
	if refused != nil || fatal != nil {
		return refused, fatal
	}
	if q.Settings == nil {
		q.Settings = &recordv1.QueueSettings{}
	}
	proto.Merge(q.Settings, m.Settings) // Fields that are unset stay.
	if m.Paused != nil {
		q.Paused = *m.Paused
	}
	q.settings, q.changed = settingsOf(q.Queue), true
	return nil, nil
}

func (w *work) pause(m *recordv1.PauseQueue) (refused, fatal error) {
	q, err := w.find(decodeName(m.Name))
	switch {
	case err != nil:
		return nil, err
	case q == nil:
		return &NotFoundError{Name: decodeName(m.Name)}, nil
	}
	q.Paused, q.settings.Paused, q.changed = m.Paused, m.Paused, true
	return nil, nil
}

// waiting returns a run that is not running, or why there is none.
func (w *work) waiting(runID string) (m *recordv1.QueuedRun, q *queueState, refused, fatal error) {
	m, q, err := w.run(runID)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case m == nil:
		refused, fatal = w.notQueued(runID)
	case State(m.State) == Running:
		refused = &RunningError{RunID: runID}
	}
	return m, q, refused, fatal
}

func (w *work) notQueued(runID string) (refused, fatal error) {
	run, err := w.tx.Run(runID)
	if err != nil {
		return nil, err
	}
	e := &NotQueuedError{RunID: runID}
	if run != nil {
		e.Fence = run.Fence
	}
	return e, nil
}

func (w *work) cancel(m *recordv1.CancelQueued) (refused, fatal error) {
	r, q, refused, fatal := w.waiting(m.RunId)
	if refused != nil || fatal != nil {
		return refused, fatal
	}
	if _, err := w.takeFence(r); err != nil {
		return nil, err
	}
	return nil, w.end(q, r)
}

func (w *work) reprioritize(m *recordv1.ReprioritizeRun) (refused, fatal error) {
	r, q, refused, fatal := w.waiting(m.RunId)
	if refused != nil || fatal != nil {
		return refused, fatal
	}
	if err := w.leave(q, r); err != nil {
		return nil, err
	}
	r.Priority = min(m.Priority, MaxPriority)
	return nil, w.enter(q, r, State(r.State))
}

func (w *work) requeue(m *recordv1.RequeueRun) (reply proto.Message, refused, fatal error) {
	r, q, err := w.run(m.RunId)
	switch {
	case err != nil:
		return nil, nil, err
	case r == nil:
		refused, fatal = w.notQueued(m.RunId)
		return nil, refused, fatal
	case State(r.State) != Running || w.holds(r):
		return &recordv1.RequeueReply{State: r.State, Repeated: true}, nil, nil
	}
	if m.LastSeq != nil {
		run, err := w.tx.Run(r.RunId)
		if err != nil {
			return nil, nil, err
		}
		if run.LastSeq != *m.LastSeq {
			return nil, changed(q, r), nil
		}
	}
	if r.Fence, err = w.takeFence(r); err != nil {
		return nil, nil, err
	}
	if err := w.leave(q, r); err != nil {
		return nil, nil, err
	}
	r.StartAttempts = 0
	fatal = w.wait(q, r, 0)
	return &recordv1.RequeueReply{State: r.State}, nil, fatal
}
