package history

import (
	"slices"
	"sync"
)

// Recorder records what clients see. It is safe for concurrent use.
type Recorder struct {
	now func() int64

	mu            sync.Mutex
	ops           []Op
	subscriptions []Subscription
	acts          []Act
}

// Ticket identifies a recorded call.
type Ticket int

// NewRecorder returns a recorder with a clock, in nanoseconds, that all clients share.
func NewRecorder(now func() int64) *Recorder { return &Recorder{now: now} }

// Call records a call before its request leaves. The answer in op is ignored.
func (r *Recorder) Call(op Op) Ticket {
	op = op.clone()
	op.forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Call, op.Return = r.now(), 0
	r.ops = append(r.ops, op)
	return Ticket(len(r.ops) - 1)
}

// Return records the answer to a call: op is the one of the call, with the outcome filled in. A
// call without an answer need not return.
func (r *Recorder) Return(t Ticket, op Op) {
	op = op.clone()
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Call, op.Return = r.ops[t].Call, r.now()
	r.ops[t] = op
}

// Mark records a watermark that a subscriber got from a node.
func (r *Recorder) Mark(subscriber, node, run string, lastEventSeq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.ops = append(r.ops, Op{
		Client: subscriber, Node: node, Call: now, Return: now, Mark: &Mark{Run: run, LastEventSeq: lastEventSeq},
	})
}

// History returns the records so far. Calls that have not returned are unknown in it.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &History{Ops: make([]Op, len(r.ops))}
	for i := range r.ops {
		h.Ops[i] = r.ops[i].clone()
	}
	h.Subscriptions = slices.Clone(r.subscriptions)
	for _, a := range r.acts {
		if a.Kind != "" {
			h.Acts = append(h.Acts, a)
		}
	}
	return h
}

// forget makes the outcome unknown.
func (o *Op) forget() {
	for i := range o.Appends {
		a := &o.Appends[i]
		a.Outcome, a.LastSeq, a.Results = Outcome{}, 0, nil
	}
	if o.Read != nil {
		o.Read.Outcome, o.Read.LastSeq, o.Read.More, o.Read.Events = Outcome{}, 0, false, nil
	}
	if o.Snapshot != nil {
		o.Snapshot.Outcome = Outcome{}
	}
	if o.Window != nil {
		o.Window.Outcome = Outcome{}
	}
}
