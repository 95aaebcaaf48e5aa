package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// tryLimit is how long a failover client waits for one node before it asks the next one.
	tryLimit = 500 * time.Millisecond
	// tryPause is between a try that failed and the next one.
	tryPause = 5 * time.Millisecond
)

// TakeoverLimit is how long appends may fail before a takeover has failed.
const TakeoverLimit = 60 * time.Second

// FailoverClient appends to one run. It sends each request to one node after the other until a node
// answers that it is stored, and stays with that node.
type FailoverClient struct {
	routes  []target.Target
	at      int // of routes
	source  *signals
	answers *Answers
}

// NewFailoverClient returns the failover client with a number that no other one of the session has.
// It begins at route number modulo len(routes), so that clients spread over the nodes.
func NewFailoverClient(s *Session, number int, routes []target.Target, a *Answers) *FailoverClient {
	return &FailoverClient{routes: routes, at: number % len(routes), source: newSignals(s, number), answers: a}
}

// Append is a Caller. A failed try is not counted as a failure, unless no node has stored the
// request within TakeoverLimit.
func (r *FailoverClient) Append(ctx context.Context) (int, error) {
	req := r.source.Next()
	for deadline := time.Now().Add(TakeoverLimit); ; {
		began := time.Now()
		res, err := r.try(ctx, req)
		if err == nil {
			n, err := r.source.Settle(res.GetResults(), nil)
			if err == nil {
				r.answers.add(began, time.Now())
			}
			return n, err
		}
		r.answers.fail()
		r.source.doubted = true
		r.at = (r.at + 1) % len(r.routes)
		if time.Now().After(deadline) || !target.Pause(ctx, tryPause) {
			return r.source.Settle(nil, err)
		}
	}
}

func (r *FailoverClient) try(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	return r.routes[r.at].Append(ctx, req)
}

// signals appends to one run and to no other, one event at a time, so that an event that was
// acknowledged and is lost shows: later ones get a runSeq that is too low.
type signals struct {
	*writer
	run  string
	runs int // begun so far
	made int // events of the current run

	req     *runlogv1.AppendEventsRequest
	lastSeq uint64
	doubted bool // req may be stored already
}

func newSignals(s *Session, number int) *signals {
	g := &signals{writer: newWriter(s, number)}
	g.begin()
	return g
}

func (g *signals) begin() {
	g.run = g.runID(g.runs)
	g.runs++
	g.made, g.lastSeq = 0, 0
}

func (g *signals) Next() *runlogv1.AppendEventsRequest {
	g.made++
	g.req = &runlogv1.AppendEventsRequest{RunId: g.run, Events: []*runlogv1.EventWrite{g.signal(uint32(g.made), time.Now())}}
	g.doubted = false
	return g.req
}

// Settle checks an answer: this try or an earlier one has stored the event, after all others.
func (g *signals) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkCount(g.req, results)
	}
	if err == nil {
		r := results[0]
		switch again := r.GetIdempotent() && !r.GetPersisted(); {
		case again && !g.doubted:
			err = target.WrongAnswer("NOT_PERSISTED", "event %d of run %q was taken for a duplicate", g.made, g.run)
		case r.GetDiverged() || r.GetEventId() != g.req.Events[0].GetEventId():
			err = target.WrongAnswer("WRONG_EVENT", "event %d of run %q has the id of another event", g.made, g.run)
		case r.GetRunSeq() != g.lastSeq+1:
			err = target.WrongAnswer("WRONG_SEQ", "event %d of run %q got runSeq %d after %d", g.made, g.run, r.GetRunSeq(), g.lastSeq)
		}
	}
	if err != nil {
		g.begin()
		return 0, err
	}
	g.lastSeq++
	return 1, nil
}

// Answers are the answers of failover clients since the last reset.
type Answers struct {
	mu     sync.Mutex
	all    []span
	failed int
	grown  chan struct{} // closed at the next answer
}

// span is a try that succeeded.
type span struct{ began, answered time.Time }

// NewAnswers returns an empty collection of answers. All failover clients of a workload share one.
func NewAnswers() *Answers { return &Answers{grown: make(chan struct{})} }

func (a *Answers) add(began, answered time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, span{began, answered})
	close(a.grown)
	a.grown = make(chan struct{})
}

func (a *Answers) fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed++
}

// Failures since the last reset.
func (a *Answers) Failures() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// Reset drops all answers and sets the number of failures to 0.
func (a *Answers) Reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all, a.failed = a.all[:0], 0
}

// FirstAfter waits for the first answer to a try that began after t, and returns its time.
func (a *Answers) FirstAfter(ctx context.Context, t time.Time) (time.Time, error) {
	timer := time.NewTimer(TakeoverLimit)
	defer timer.Stop()
	for {
		a.mu.Lock()
		i := slices.IndexFunc(a.all, func(s span) bool { return s.began.After(t) })
		grown := a.grown
		if i >= 0 {
			answered := a.all[i].answered
			a.mu.Unlock()
			return answered, nil
		}
		a.mu.Unlock()
		select {
		case <-grown:
		case <-timer.C:
			return time.Time{}, fmt.Errorf("no append succeeded within %v", TakeoverLimit)
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}

// LongestPause is the longest time without an answer from t to the last one.
func (a *Answers) LongestPause(t time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	var longest time.Duration
	for _, s := range a.all {
		if s.answered.After(t) {
			longest = max(longest, s.answered.Sub(t))
			t = s.answered
		}
	}
	return longest
}
