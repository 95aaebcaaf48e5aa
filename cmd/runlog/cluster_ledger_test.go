//go:build unix

package main

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// clusterLedger is what all writers and readers know of the runs of a cluster.
type clusterLedger struct {
	t *testing.T

	mu   sync.Mutex
	runs map[string]*knownRun
	// stamp is the highest persistedAt that was acknowledged, in nanoseconds.
	stamp int64
	acks  []ackTime
	// refused counts the answers that were errors, by reason.
	refused map[string]int
	reads   int
}

// knownRun is what is known of a run.
type knownRun struct {
	acked map[string]*ackedEvent // by step
	never map[string]string      // steps that were refused and never sent again, and why
	maybe map[string]bool        // steps that have no answer
	floor uint64                 // a runSeq that somebody has seen
	at    time.Time              // when something was acknowledged last
}

// ackedEvent is an event and its answer.
type ackedEvent struct {
	event  *runlogv1.EventWrite
	result *runlogv1.AppendResult
}

// ackTime is when an append was sent last and when it was acknowledged.
type ackTime struct{ sent, got time.Time }

func newClusterLedger(t *testing.T) *clusterLedger {
	return &clusterLedger{t: t, runs: map[string]*knownRun{}, refused: map[string]int{}}
}

func (l *clusterLedger) runLocked(run string) *knownRun {
	r := l.runs[run]
	if r == nil {
		r = &knownRun{acked: map[string]*ackedEvent{}, never: map[string]string{}, maybe: map[string]bool{}}
		l.runs[run] = r
	}
	return r
}

// floor is the highest runSeq that anybody has seen of a run: who reads from now on must see it
// (READ-2).
func (l *clusterLedger) floor(run string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runLocked(run).floor
}

// saw notes that a linearizable call has shown a runSeq.
func (l *clusterLedger) saw(run string, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runLocked(run)
	r.floor = max(r.floor, seq)
	l.reads++
}

// sentAppend is one request from when it was first sent to its last answer.
type sentAppend struct {
	req    *runlogv1.AppendEventsRequest
	floor  uint64 // of the run, before it was first sent
	stamp  int64  // the highest that was acknowledged before it was first sent
	maybe  bool   // it was sent and has no answer that says that nothing was stored
	sentAt time.Time
	tries  int
}

// open notes what is about to be sent.
func (l *clusterLedger) open(req *runlogv1.AppendEventsRequest) *sentAppend {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runLocked(req.RunId)
	for _, e := range req.Events {
		if r.acked[e.GetStepId()] == nil {
			r.maybe[e.GetStepId()] = true
		}
	}
	return &sentAppend{req: req, floor: r.floor, stamp: l.stamp}
}

// giveUp notes that a request was not stored, as its last answer says, and is not sent again.
func (l *clusterLedger) giveUp(a *sentAppend, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runLocked(a.req.RunId)
	for _, e := range a.req.Events {
		if r.maybe[e.GetStepId()] {
			delete(r.maybe, e.GetStepId())
			r.never[e.GetStepId()] = reason
		}
	}
}

func (l *clusterLedger) countRefusal(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[reason]++
}

// acknowledge takes the answer to a request over, and holds it against what was known before it was
// sent.
func (l *clusterLedger) acknowledge(a *sentAppend, results []*runlogv1.AppendResult, lastSeq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, ackTime{a.sentAt, time.Now()})
	run := a.req.RunId
	if len(results) != len(a.req.Events) {
		l.t.Errorf("%s: %d results for %d events (APP-3)", run, len(results), len(a.req.Events))
		return
	}
	r := l.runLocked(run)
	var before *runlogv1.AppendResult // the fresh one before
	for i, got := range results {
		step := a.req.Events[i].GetStepId()
		if was := r.acked[step]; was != nil {
			l.wantSame(run, step, was.result, got)
			continue
		}
		if got.Idempotent == got.Persisted {
			l.t.Errorf("%s: the answer says both or neither of stored now and before: %v (IDM-6)", run, got)
		}
		if got.Idempotent && !a.maybe {
			l.t.Errorf("%s: %s was stored by an earlier try, of which the answer said that it was not (APP-10): %v", run, step, got)
		}
		if got.RunSeq <= a.floor {
			l.t.Errorf("%s: %s got runSeq %d, and %d was seen before it was sent (APP-1)", run, step, got.RunSeq, a.floor)
		}
		if at := got.PersistedAt.AsTime().UnixNano(); at <= a.stamp {
			l.t.Errorf("%s: %s got persistedAt %d, and %d was acknowledged before it was sent (APP-5)", run, step, at, a.stamp)
		}
		if want := a.req.ExpectedLastSeq; want != nil && got.RunSeq != *want+1 {
			l.t.Errorf("%s: %s got runSeq %d on the condition that %d was the last one (APP-4)", run, step, got.RunSeq, *want)
		}
		if before != nil && (got.RunSeq != before.RunSeq+1 || !proto.Equal(got.PersistedAt, before.PersistedAt)) {
			l.t.Errorf("%s: events of one request were not stored together (APP-3): %v, %v", run, before, got)
		}
		before = got
		r.acked[step] = &ackedEvent{a.req.Events[i], got}
		delete(r.maybe, step)
		r.floor, r.at = max(r.floor, got.RunSeq), time.Now()
		l.stamp = max(l.stamp, got.PersistedAt.AsTime().UnixNano())
	}
	if lastSeq < r.acked[a.req.Events[0].GetStepId()].result.RunSeq {
		l.t.Errorf("%s: the answer says that the run ends at %d: %v", run, lastSeq, results)
	}
}

// wantSame holds the answer to a duplicate against the first one (IDM-6).
func (l *clusterLedger) wantSame(run, step string, was, got *runlogv1.AppendResult) {
	if was.RunSeq != got.RunSeq || was.EventId != got.EventId || !proto.Equal(was.PersistedAt, got.PersistedAt) ||
		!got.Idempotent || got.Persisted || got.Diverged {
		l.t.Errorf("%s: the answer for %s changed (IDM-6):\n was %v\n  is %v", run, step, was, got)
	}
}

// recovered returns how long after a moment an append was acknowledged that was sent later; false:
// none was yet.
func (l *clusterLedger) recovered(after time.Time) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.acks) - 1; i >= 0 && l.acks[i].got.After(after); i-- {
		if l.acks[i].sent.After(after) {
			// An earlier one may be there too: they are in order of their answers.
			best := l.acks[i].got
			for _, a := range l.acks[:i] {
				if a.sent.After(after) && a.got.Before(best) {
					best = a.got
				}
			}
			return best.Sub(after), true
		}
	}
	return 0, false
}

// longestGap is the longest time between two acknowledged appends from one moment to another.
func (l *clusterLedger) longestGap(from, to time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, longest := from, time.Duration(0)
	for _, a := range l.acks {
		if a.got.After(from) && a.got.Before(to) {
			longest = max(longest, a.got.Sub(last))
			last = a.got
		}
	}
	return max(longest, to.Sub(last))
}

// count returns how many events were acknowledged.
func (l *clusterLedger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.runs {
		n += len(r.acked)
	}
	return n
}
