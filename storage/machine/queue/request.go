package queue

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

func (w *work) request(m *recordv1.RequestRun) (reply proto.Message, refused, fatal error) {
	known, err := table.Get[recordv1.RunRequest](w.r, requestKey(m.RequestKey))
	if err != nil {
		return nil, nil, err
	}
	if known != nil {
		return nil, against(known, m), nil
	}
	if refused, fatal := w.refuseRun(m); refused != nil || fatal != nil {
		return nil, refused, fatal
	}
	q, refused, fatal := w.queueOf(m)
	if q == nil { // A queue that is empty and has the defaults takes the request.
		return nil, refused, fatal
	}
	r := &recordv1.QueuedRun{
		RunId: m.RunId, Queue: q.Number, Priority: min(m.Priority, MaxPriority), EnqueuedAt: w.tx.Stamp(), RequestKey: m.RequestKey,
		Fence:       w.tx.FirstFence(),
		AnswerBytes: m.AnswerBytes,
	}
	disposition, notBefore, refused := w.dispose(q, m.NotBefore)
	if refused != nil || m.CheckOnly {
		return nil, refused, nil
	}
	answer := &recordv1.RequestReply{Disposition: uint32(disposition)}
	if disposition == Deferred {
		answer.NotBefore = notBefore
	} else {
		answer.Position = 1
		for _, line := range q.Lines[r.Priority:] {
			answer.Position += line.Ready
		}
	}
	refused, fatal = w.accept(q, m, r, notBefore, answer)
	return answer, refused, fatal
}

// queueOf returns the queue of a request; nil: there is none yet, and Check makes none.
func (w *work) queueOf(m *recordv1.RequestRun) (q *queueState, refused, fatal error) {
	name := decodeName(m.Name)
	if !m.CheckOnly {
		return w.findOrMake(name)
	}
	if q, fatal = w.find(name); q == nil && fatal == nil {
		_, refused, fatal = w.queuesOf(name.Tenant)
	}
	return q, refused, fatal
}

// accept writes the rows of a request.
func (w *work) accept(q *queueState, m *recordv1.RequestRun, r *recordv1.QueuedRun, notBefore int64, a *recordv1.RequestReply) (refused, fatal error) {
	if refused, err := w.tx.SetFence(r.RunId, r.Fence); refused != nil || err != nil {
		return refused, err
	}
	if err := w.count(); err != nil {
		return nil, err
	}
	w.numbers.Order++
	w.numbersChanged = true
	r.Order = w.numbers.Order
	q.Requests++
	err := table.Set(w.tx, requestKey(m.RequestKey), &recordv1.RunRequest{
		RunId: m.RunId, PlanDigest: m.PlanDigest, RequestedAt: w.tx.Stamp(), Disposition: a.Disposition, NotBefore: a.NotBefore, Name: m.Name,
	})
	if err != nil {
		return nil, err
	}
	return nil, w.wait(q, r, notBefore)
}

// against says how a later request with the same key compares to a known one.
func against(k *recordv1.RunRequest, m *recordv1.RequestRun) error {
	var fields []string
	if !bytes.Equal(k.PlanDigest, m.PlanDigest) {
		fields = append(fields, "planDigest")
	}
	if m.RunIdNamed && k.RunId != m.RunId {
		fields = append(fields, "runId")
	}
	if len(fields) > 0 {
		return &RequestConflictError{RunID: k.RunId, Fields: fields}
	}
	return &RequestedError{RunID: k.RunId, RequestedAt: k.RequestedAt, Disposition: Disposition(k.Disposition), NotBefore: k.NotBefore}
}

// refuseRun says why a run cannot be requested, wherever.
func (w *work) refuseRun(m *recordv1.RequestRun) (refused, fatal error) {
	run, err := w.tx.Run(m.RunId)
	switch {
	case err != nil:
		return nil, err
	case run == nil && m.CheckOnly:
		return nil, nil
	case run == nil:
		return &storage.RunNotFoundError{RunID: m.RunId}, nil
	case run.Fence != 0:
		return &RequestConflictError{RunID: m.RunId, Fields: []string{"requestKey"}}, nil
	}
	for _, f := range [...]struct{ field, given, want string }{
		{"tenantId", m.Name.GetTenantId(), run.Scope.TenantID},
		{"projectId", m.Name.GetProjectId(), run.Scope.ProjectID},
		{"environmentId", m.Name.GetEnvironmentId(), run.Scope.EnvironmentID},
	} {
		if f.given != f.want {
			return &storage.ScopeError{RunID: m.RunId, Field: f.field, Index: -1, Given: f.given, Want: f.want}, nil
		}
	}
	return nil, nil
}

// dispose decides what becomes of one more request (QUE-4). A lease that has expired and waits for
// its timer counts as before: its run is ready then, and would count too.
func (w *work) dispose(q *queueState, notBefore int64) (d Disposition, until int64, refused error) {
	s := &q.settings
	over := s.MaxRunning > 0 && q.Running+q.Leased+q.ready() >= s.MaxRunning
	// Of a queue without maxRunning, maxQueued is the only bound.
	waits := over || s.Paused || s.MaxRunning == 0 || notBefore > w.tx.Stamp()
	// As many as slots are free wait for no other run (QUE-12).
	waiting, free := q.ready()+q.Delayed, s.MaxRunning-min(s.MaxRunning, q.Running+q.Leased)
	if over && s.OnFull == OnFullReject || waits && s.MaxQueued > 0 && waiting-min(waiting, free) >= s.MaxQueued {
		return 0, 0, &FullError{
			Name: decodeName(q.Name), OnFull: s.OnFull, MaxRunning: s.MaxRunning, MaxQueued: s.MaxQueued,
			Running: q.Running, Leased: q.Leased, Waiting: waiting,
		}
	}
	if over && s.OnFull == OnFullDelay {
		notBefore = max(notBefore, later(w.tx.Stamp(), s.Delay))
	}
	switch {
	case notBefore > w.tx.Stamp():
		return Deferred, notBefore, nil
	case over || s.Paused:
		return Queued, 0, nil
	default:
		return MayStart, 0, nil
	}
}
