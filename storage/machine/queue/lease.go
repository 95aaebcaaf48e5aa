package queue

import (
	"bytes"
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// lease leases at most m.Max runs. First it handles timers, which may make runs ready. Then the
// queues take turns, from the one behind m.After on: each gives one run, its best one, until no
// queue has another one to lease or the answer is full.
func (w *work) lease(m *recordv1.LeaseRuns) (*recordv1.LeaseReply, error) {
	handled, err := w.timers(leaseTimers)
	if err != nil {
		return nil, err
	}
	if err := w.flush(); err != nil { // What the timers have changed is searched too.
		return nil, err
	}
	most := int(min(m.Max, MaxLeases))
	queues, err := w.leasableQueues(m, most)
	reply := &recordv1.LeaseReply{Expired: handled.expired}
	if err != nil || len(queues) == 0 {
		return reply, err
	}
	reply.Last = queues[len(queues)-1].Name
	size := uint64(0)
	for took := true; took; {
		took = false
		for _, q := range queues {
			if len(reply.Leases) == most || !q.canLease() {
				continue
			}
			r, err := runAt(w.r, q.Queue, q.next(w.tx.Stamp()))
			if err != nil {
				return nil, err
			}
			if size += uint64(r.AnswerBytes); size > uint64(m.MaxBytes) && m.MaxBytes > 0 && len(reply.Leases) > 0 {
				reply.Last = reply.Leases[len(reply.Leases)-1].Name // The others had no turn yet.
				return reply, nil
			}
			l, err := w.leaseRun(q, r, m)
			if err != nil {
				return nil, err
			}
			reply.Leases = append(reply.Leases, l)
			took = true
		}
	}
	return reply, nil
}

// leasableQueues returns at most n queues with a run to lease, in the order of their turns: by
// name, from the one behind m.After on, and then from the first.
func (w *work) leasableQueues(m *recordv1.LeaseRuns, n int) (list []*queueState, err error) {
	from := nameIn(leasableTable, decodeName(m.Within))
	if m.Within.GetQueue() != "" {
		return w.leasableOne(from)
	}
	end := from.After()
	middle := from
	if m.After != nil {
		if behind := append(nameIn(leasableTable, decodeName(m.After)), 0); bytes.HasPrefix(behind, from) {
			middle = behind
		}
	}
	for _, part := range [2][2][]byte{{middle, end}, {from, middle}} {
		if len(list) == n || bytes.Equal(part[0], part[1]) {
			continue
		}
		for row, err := range w.r.Scan(part[0], part[1]) {
			if err != nil {
				return nil, err
			}
			number, err := table.DecodeNumber(row)
			if err != nil {
				return nil, err
			}
			q, err := w.queue(number)
			if err != nil {
				return nil, err
			}
			if list = append(list, q); len(list) == n {
				break
			}
		}
	}
	return list, nil
}

// leasableOne returns the queue of one row, if the row is there. It reads the row without a scan: a
// queue that empties again and again leaves deleted rows, which a scan passes one by one.
func (w *work) leasableOne(key []byte) ([]*queueState, error) {
	n, err := table.GetNumber(w.r, key)
	if err != nil || n == 0 {
		return nil, err
	}
	q, err := w.queue(n)
	return []*queueState{q}, err
}

// leaseRun leases a run that is ready.
func (w *work) leaseRun(q *queueState, r *recordv1.QueuedRun, m *recordv1.LeaseRuns) (_ *recordv1.LeaseReply_Lease, err error) {
	if err := w.leave(q, r); err != nil {
		return nil, err
	}
	if r.Fence, err = w.takeFence(r); err != nil {
		return nil, err
	}
	r.StartAttempts++
	r.Worker, r.Outcome, r.NotBefore, r.LeaseTtl = m.Worker, 0, 0, m.Ttl
	if r.LeaseTtl <= 0 {
		r.LeaseTtl = int64(q.settings.LeaseTTL)
	}
	r.ExpiresAt = w.expiry(r.LeaseTtl)
	state := Leased
	if r.Started {
		state = Running
	}
	if err := w.enter(q, r, state); err != nil {
		return nil, err
	}
	run, err := w.tx.Run(r.RunId)
	if err != nil {
		return nil, err
	}
	return &recordv1.LeaseReply_Lease{
		RunId: r.RunId, Fence: r.Fence, ExpiresAt: r.ExpiresAt, StartAttempt: r.StartAttempts, Name: q.Name,
		AsRequested: run.LastSeq == 1 && !run.MetadataChanged,
	}, nil
}

// next is the priority of the run that comes next at a time (QUE-5).
func (q *queueState) next(at int64) (priority uint32) {
	best, first := uint64(0), (*recordv1.QueueLine)(nil)
	for p, line := range q.Lines {
		if line.Ready == 0 {
			continue
		}
		e := effective(uint32(p), line.EnqueuedAt, at, q.settings.AgingPeriod)
		if first == nil || e > best || e == best && line.Order < first.Order {
			best, first, priority = e, line, uint32(p)
		}
	}
	return priority
}

// expiry is when a lease ends that begins or is renewed now.
func (w *work) expiry(ttl int64) int64 { return later(w.tx.Stamp(), time.Duration(ttl)) }

// runOfLease returns the run of a lease and its queue, or why the fence is not that of the last
// lease of the run. The lease may have ended (holds).
func (w *work) runOfLease(runID string, fence uint64) (m *recordv1.QueuedRun, q *queueState, refused, fatal error) {
	m, q, err := w.run(runID)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case m == nil:
		refused, fatal = w.notQueued(runID)
	case fence != m.Fence:
		refused = &storage.LeaseLostError{RunID: runID, Given: fence, Current: max(m.Fence, w.tx.FirstFence())}
	}
	return m, q, refused, fatal
}

// holds reports whether the last lease of a run lasts. In a cluster that was restored from a
// backup, the leases of the cluster before have ended.
func (w *work) holds(m *recordv1.QueuedRun) bool {
	return m.ExpiresAt > w.tx.Stamp() && m.Fence > w.tx.FirstFence()
}

func leaseEnded(m *recordv1.QueuedRun) error {
	return &LeaseEndedError{RunID: m.RunId, Fence: m.Fence, State: State(m.State), Outcome: Outcome(m.Outcome)}
}

func (w *work) renew(m *recordv1.RenewLease) (reply proto.Message, refused, fatal error) {
	r, q, refused, fatal := w.runOfLease(m.RunId, m.Fence)
	if refused != nil || fatal != nil {
		return nil, refused, fatal
	}
	if !w.holds(r) {
		return nil, leaseEnded(r), nil
	}
	if err := w.leave(q, r); err != nil {
		return nil, nil, err
	}
	if m.Ttl > 0 {
		r.LeaseTtl = m.Ttl
	}
	r.ExpiresAt = w.expiry(r.LeaseTtl)
	return &recordv1.RenewReply{ExpiresAt: r.ExpiresAt}, nil, w.enter(q, r, State(r.State))
}
