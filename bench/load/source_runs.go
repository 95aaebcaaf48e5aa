package load

import (
	"strconv"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// HotRun appends to a run that all sources of the session share.
type HotRun struct {
	*writer
	batch, sources int

	req     *runlogv1.AppendEventsRequest
	made    int
	lastSeq uint64
}

// NewHotRun returns a source whose signals have the attempts number+1, number+1+sources and so on.
// Sources with the numbers 0 to sources-1 make no duplicates of each other's events.
func NewHotRun(s *Session, batch, number, sources int) *HotRun {
	h := &HotRun{writer: newWriter(s, number), batch: batch, sources: sources}
	h.tenant = "tenant_bench_hot" // a run has one tenant (APP-6)
	return h
}

// HotRunID returns the id of the run that the hot sources of a session share.
func HotRunID(s *Session) string { return s.RunID("hot") }

// Next returns a request with a batch of signals for the shared run.
func (h *HotRun) Next() *runlogv1.AppendEventsRequest {
	h.req = &runlogv1.AppendEventsRequest{RunId: HotRunID(h.s), Events: make([]*runlogv1.EventWrite, h.batch)}
	now := time.Now()
	for i := range h.req.Events {
		h.req.Events[i] = h.signal(uint32(h.made*h.sources+h.number+1), now)
		h.made++
	}
	return h.req
}

// Settle checks only the order of its own events: it does not know the other sources'.
func (h *HotRun) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkNew(h.req, results, h.lastSeq, false)
	}
	if err != nil {
		return 0, err
	}
	h.lastSeq = results[len(results)-1].GetRunSeq()
	return len(results), nil
}

// Scattered appends to one of its runs after the other, in no order. All of them stay open.
type Scattered struct {
	*writer
	batch int
	runs  []scatteredRun

	req *runlogv1.AppendEventsRequest
	run *scatteredRun // of req
}

// scatteredRun is small: there are millions.
type scatteredRun struct {
	lastSeq uint64
	made    uint32 // events
	lives   uint32 // runs abandoned in its place
}

// NewScattered returns a source with its own number of runs. It needs 16 bytes of memory for each.
func NewScattered(s *Session, batch, number, runs int) *Scattered {
	return &Scattered{writer: newWriter(s, number), batch: batch, runs: make([]scatteredRun, runs)}
}

// Next returns a request with the next batch of events of a random run.
func (c *Scattered) Next() *runlogv1.AppendEventsRequest {
	i := c.random.IntN(len(c.runs))
	c.run = &c.runs[i]
	id := c.runID(i) + "_" + strconv.FormatUint(uint64(c.run.lives), 10)
	c.req = &runlogv1.AppendEventsRequest{RunId: id, Events: make([]*runlogv1.EventWrite, c.batch)}
	now := time.Now()
	for i := range c.req.Events {
		c.req.Events[i] = c.step(id, int(c.run.made), 0, now)
		c.run.made++
	}
	return c.req
}

// Settle checks that the answer stored every event behind the run's last acknowledged one. After an
// error, another run takes the place of this one.
func (c *Scattered) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkNew(c.req, results, c.run.lastSeq, c.s.Dense)
	}
	if err != nil {
		// The events may be stored or not, so another run takes the place of this one.
		*c.run = scatteredRun{lives: c.run.lives + 1}
		return 0, err
	}
	c.run.lastSeq = results[len(results)-1].GetRunSeq()
	return len(results), nil
}

// StoredRuns appends to runs of a filled store, each request to another one, in a fixed scattered
// order. If the store does not have them, they begin.
type StoredRuns struct {
	*writer
	batch, runs, sources int

	req  *runlogv1.AppendEventsRequest
	made int
}

// NewStoredRuns returns one of the sources, with a number from 0 to sources-1. Each takes every
// sources-th run of the fixed order. runs is how many runs Fill has stored; it must not be 0.
func NewStoredRuns(s *Session, batch, number, runs, sources int) *StoredRuns {
	return &StoredRuns{writer: newWriter(s, number), batch: batch, runs: runs, sources: sources}
}

// Next spreads the requests over the runs by a step that has no factor in common with most numbers
// of runs.
func (r *StoredRuns) Next() *runlogv1.AppendEventsRequest {
	const stride = 7_368_787 // prime
	run := (r.made*r.sources + r.number) * stride % r.runs
	r.made++
	r.tenant = "tenant_bench_" + strconv.Itoa(run%tenants) // a run has one tenant (APP-6)
	r.req = &runlogv1.AppendEventsRequest{RunId: StoredRun(run), Events: make([]*runlogv1.EventWrite, r.batch)}
	now := time.Now()
	for i := range r.req.Events {
		// Later attempts than any stored one, or one of another session.
		r.req.Events[i] = r.signal(2+r.random.Uint32N(1<<31), now)
	}
	return r.req
}

// Settle checks that the answer stored every event with rising numbers. The source does not know
// the runs' last runSeq.
func (r *StoredRuns) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkNew(r.req, results, 0, false)
	}
	if err != nil {
		return 0, err
	}
	return len(results), nil
}

// repeatsKept is how many answered requests a source of repeats chooses from.
const repeatsKept = 64

// Repeats sends requests of its source again, as a producer does that does not know the outcome.
type Repeats struct {
	*Histories
	share float64

	answered []answered // a ring
	oldest   int
	again    *answered // nil: the request on its way is new
}

type answered struct {
	req     *runlogv1.AppendEventsRequest
	results []*runlogv1.AppendResult
}

// NewRepeats returns a source that repeats an answered request with the probability share, between
// 0 and 1. All other requests are those of Histories.
func NewRepeats(s *Session, batch, number int, share float64) *Repeats {
	return &Repeats{Histories: NewHistories(s, batch, number), share: share}
}

// Next returns a new request, or one of the last 64 that were answered.
func (r *Repeats) Next() *runlogv1.AppendEventsRequest {
	r.again = nil
	if len(r.answered) > 0 && r.random.Float64() < r.share {
		r.again = &r.answered[r.random.IntN(len(r.answered))]
		return r.again.req
	}
	return r.Histories.Next()
}

// Settle checks the answer to a new request as Histories does. The answer to a repeated request
// must equal the first one (IDM-6).
func (r *Repeats) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if r.again != nil {
		if err == nil {
			err = checkAgain(r.again.req, r.again.results, results)
		}
		if err != nil {
			return 0, err
		}
		return len(results), nil
	}
	n, err := r.Histories.Settle(results, err)
	if err != nil {
		return 0, err
	}
	a := answered{req: r.req, results: results}
	if len(r.answered) < repeatsKept {
		r.answered = append(r.answered, a)
	} else {
		r.answered[r.oldest] = a
		r.oldest = (r.oldest + 1) % repeatsKept
	}
	return n, nil
}
