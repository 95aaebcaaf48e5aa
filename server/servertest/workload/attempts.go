package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

// signals is the number of signals that pause and resume a run. They are few, so that clients meet
// at one.
const signals = 30

// leaveOutAttempt makes an event one whose attempt the authority assigns (IDM-10).
func leaveOutAttempt(e *runlogv1.EventWrite, kind string, signal int) {
	e.EventType, e.LogicalAttemptId, e.CausedBySignalId, e.PayloadForm = kind, 0, fmt.Sprint("signal-", signal), nil
}

// race pauses a run by several signals at the same time: each at a node of its own choice, or
// through the library. They compete for the next attempt.
func (w *worker) race(ctx context.Context, node int) {
	run := w.run()
	var all sync.WaitGroup
	for range 2 + w.rng.IntN(3) {
		e := w.clients.envelope(run, w.rng)
		leaveOutAttempt(e, "RunPaused", signals+w.clients.next())
		w.clients.addSent(run, e)
		req := &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{e}}
		a := history.Append{Run: run, Events: allAsSent(req)}
		op, send := history.Op{Client: w.host, Node: w.clients.opts.Nodes[node], Appends: []history.Append{a}}, w.sendAt(node)
		if w.rng.IntN(2) == 0 {
			op.Node, send, req = "", w.sendUnary, own(req)
		}
		ticket := w.clients.recorder.Call(op)
		all.Go(func() {
			send(ctx, req, &op.Appends[0])
			w.clients.recorder.Return(ticket, op)
		})
		if w.rng.IntN(3) == 0 {
			node = w.rng.IntN(len(w.conns))
		}
	}
	all.Wait()
}

// causeKey names an event whose attempt the authority assigns: it is one event for each cause,
// whatever its attempt and its idempotency key are.
func causeKey(kind, cause string) string { return kind + " by " + cause }

// recordKey is the key of a record in the history. Here only events without an attempt have a
// cause.
func recordKey(r *runlogv1.EventRecord) string {
	if cause := r.GetCausedBySignalId(); cause != "" {
		return causeKey(r.GetEventType(), cause)
	}
	return r.GetIdempotencyKey()
}

// sentAttempt is the attempt that the producer of a record sent; 0: none.
func sentAttempt(r *runlogv1.EventRecord) uint32 {
	if r.GetCausedBySignalId() != "" {
		return 0
	}
	return r.GetLogicalAttemptId()
}

// eventName is the key of an event in the history of a run.
type eventName struct{ run, key string }

// checkAssigned compares the answer for an event with earlier ones: the authority assigns an
// attempt once, forever.
func (c *Clients) checkAssigned(a *history.Append, i int, r *runlogv1.AppendResult) {
	if r.LogicalAttemptId == nil {
		return
	}
	name := eventName{a.Run, a.Events[i].Key}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.assigned[name]; ok && before != r.GetLogicalAttemptId() {
		c.opts.Broken("attempt: %s of %s was answered with attempt %d, and before with %d", name.key, name.run, r.GetLogicalAttemptId(), before)
	}
	c.assigned[name] = r.GetLogicalAttemptId()
}

// RepeatAssigned sends the events again whose assigned attempts were acknowledged, and requires
// that each is a duplicate with the same attempt. It returns their number. Clients must have
// stopped.
func (c *Clients) RepeatAssigned(ctx context.Context) (int, error) {
	w, err := c.newGuest("repeater")
	if err != nil {
		return 0, err
	}
	defer w.close()
	count := 0
	for _, run := range slices.Sorted(maps.Keys(c.sent)) {
		known := map[string]bool{}
		for _, e := range c.sent[run] {
			a := history.Append{Run: run, Events: []history.Event{asSent(e)}}
			if key := a.Events[0].Key; known[key] || c.assigned[eventName{run, key}] == 0 {
				continue
			}
			resp, err := w.again(ctx, run, e)
			if err != nil {
				return count, fmt.Errorf("workload: %s again: %w", a.Events[0].Key, err)
			}
			if r := resp.GetResults()[0]; !r.GetIdempotent() || r.LogicalAttemptId == nil {
				c.opts.Broken("attempt: %s of %s is stored, and is answered with %v", a.Events[0].Key, run, r)
			}
			c.checkAssigned(&a, 0, resp.GetResults()[0])
			known[a.Events[0].Key] = true
			count++
		}
	}
	return count, nil
}

// again sends an event to one node after another, until one answers or ctx ends.
func (w *worker) again(ctx context.Context, run string, e *runlogv1.EventWrite) (*runlogv1.AppendEventsResponse, error) {
	for node := 0; ; node = (node + 1) % len(w.conns) {
		calling, cancel := context.WithTimeout(ctx, probePatience)
		resp, err := w.events(node).AppendEvents(calling, &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{e}})
		cancel()
		if err == nil || ctx.Err() != nil {
			return resp, err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// attemptsOf checks the attempts and the idempotency keys in a node's log.
type attemptsOf struct {
	clients *Clients
	node    string
	keys    map[eventName]uint64 // the runSeq of each idempotency key
	last    map[eventName]uint32 // the last attempt that was assigned, by run and type
}

func (c *Clients) attemptsOf(node string) *attemptsOf {
	return &attemptsOf{clients: c, node: node, keys: map[eventName]uint64{}, last: map[eventName]uint32{}}
}

// check checks the next record: its key is that of its attempt, no other record has it, and
// assigned attempts rise and are those of the answers. Approvals have keys of their own (SEC-10).
func (n *attemptsOf) check(r *runlogv1.EventRecord) {
	broken := func(format string, args ...any) {
		n.clients.opts.Broken("attempt: on %s, %s of %s with runSeq %d %s", n.node, r.GetEventType(), r.GetRunId(), r.GetRunSeq(), fmt.Sprintf(format, args...))
	}
	attempt := r.GetLogicalAttemptId()
	want := contract.DeriveKey(contract.Line2, r.GetRunId(), r.GetStepId(), attempt, r.GetEngineAttemptId(), r.GetEventType(), r.GetPlanId(), r.GetPlanVersion())
	if r.GetIdempotencyKey() != want && r.GetEventType() != contract.StepAttestationApproved {
		broken("has key %s, that of attempt %d is %s", r.GetIdempotencyKey(), attempt, want)
	}
	key := eventName{r.GetRunId(), r.GetIdempotencyKey()}
	if other, ok := n.keys[key]; ok {
		broken("has attempt %d, as runSeq %d has", attempt, other)
	}
	n.keys[key] = r.GetRunSeq()
	if r.GetCausedBySignalId() == "" {
		return
	}
	kind := eventName{r.GetRunId(), r.GetEventType()}
	if last := n.last[kind]; attempt <= last {
		broken("was assigned attempt %d after %d", attempt, last)
	}
	n.last[kind] = attempt
	n.clients.mu.Lock()
	defer n.clients.mu.Unlock()
	if told, ok := n.clients.assigned[eventName{r.GetRunId(), recordKey(r)}]; ok && told != attempt {
		broken("has attempt %d and was answered with %d", attempt, told)
	}
}
