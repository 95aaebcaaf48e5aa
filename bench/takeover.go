package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// takeoverLimit is how long appends may fail before a takeover counts as none.
const takeoverLimit = 60 * time.Second

// Takeover is one change of leaders.
type Takeover struct {
	// Outage is the time from the kill, or from the call for a transfer, to the answer of the first
	// append of which a try began after that: after the process was gone, or after the call.
	Outage time.Duration `json:"-"`
	// Pause is the longest time without an answer from then on until the other node led.
	Pause time.Duration `json:"-"`
	// InSync is the time from the start of the node that was killed, or from the call, until all
	// nodes were in sync.
	InSync time.Duration `json:"-"`
	// OutageMs, PauseMs and InSyncMs say it in milliseconds.
	OutageMs float64 `json:"outageMs"`
	PauseMs  float64 `json:"pauseMs"`
	InSyncMs float64 `json:"inSyncMs"`
	// FailedTries of appends meanwhile, which were then taken to another node.
	FailedTries int `json:"failedTries"`
}

// MedianOutage of a result's takeovers, in nanoseconds; 0 where there were none.
func MedianOutage(r *Result) float64 { return Median(r.outages(outageOf)) }

// MaxOutage is the longest one.
func MaxOutage(r *Result) float64 { return slices.Max(append(r.outages(outageOf), 0)) }

// MaxPause is the longest time without an answer around a takeover.
func MaxPause(r *Result) float64 {
	return slices.Max(append(r.outages(func(t *Takeover) time.Duration { return t.Pause }), 0))
}

func outageOf(t *Takeover) time.Duration { return t.Outage }

func (r *Result) outages(of func(*Takeover) time.Duration) []float64 {
	var all []float64
	for i := range r.Takeovers {
		all = append(all, float64(of(&r.Takeovers[i])))
	}
	return all
}

// takeovers makes nodes of a group lead in turn while callers append.
type takeovers struct {
	group   Group
	answers *answers
	once    takeover
}

// takeover has another node lead and measures t.
type takeover func(ctx context.Context, m *takeovers, t *Takeover) error

// openTakeovers prepares failover and transfer.
func openTakeovers(once takeover) func(*bed) (*work, error) {
	return func(b *bed) (*work, error) {
		group, ok := b.target.(Group)
		if !ok {
			return nil, errNoGroup
		}
		m := &takeovers{group: group, answers: newAnswers(), once: once}
		var roamers []*failoverClient
		for i := range b.w.Callers {
			roamers = append(roamers, newFailoverClient(b.session, i, group.Routes(), m.answers))
		}
		w := &work{first: roamers[0].append, measure: m.measure, release: func() error { return nil }}
		for _, r := range roamers {
			w.lanes = append(w.lanes, caller(r.append).lane())
		}
		w.measureRequest(b)
		return w, nil
	}
}

// measure returns what the appends came to, with the takeovers.
func (m *takeovers) measure(ctx context.Context, o *Options, b *bed, w *work) (*Result, error) {
	l := o.newLoop(&b.w)
	// The last takeover ends it.
	l.calls, l.steps = 0, b.w.Kills+b.w.Transfers
	l.duration = time.Duration(l.steps) * (takeoverLimit + clusterSettle)
	if err := w.warm(ctx, l); err != nil {
		return nil, err
	}
	defer o.watch(b, l)()
	appending, cancel := context.WithCancel(ctx)
	defer cancel()
	var ended sync.WaitGroup
	ended.Go(func() { _, _ = l.run(appending, w.lanes) }) // its end is what cancel asks for
	pause(ctx, o.WarmUp)
	var all []Takeover
	var failures []error
	var err error
	for range l.steps {
		t, failure := m.next(ctx)
		l.step.Add(1)
		if _, wrong := errors.AsType[*AnswerError](failure); wrong {
			failures = append(failures, failure)
			continue
		}
		if err = failure; err != nil {
			break
		}
		all = append(all, t)
	}
	cancel()
	ended.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil && len(all) == 0 {
		return nil, err
	}
	for _, f := range failures {
		l.tally.fail(f)
	}
	r := l.tally.result(&b.w, w.requestBytes, l.acknowledged.Load())
	r.Takeovers = all
	return r, err
}

// next is the next takeover, a moment later, so that it does not come in step with the group's own
// timers.
func (m *takeovers) next(ctx context.Context) (Takeover, error) {
	var t Takeover
	if !pause(ctx, takeoverPause/2+rand.N(takeoverPause)) {
		return t, context.Cause(ctx)
	}
	m.answers.reset()
	err := m.once(ctx, m, &t)
	t.FailedTries = m.answers.failures()
	t.OutageMs, t.PauseMs, t.InSyncMs = milliseconds(t.Outage), milliseconds(t.Pause), milliseconds(t.InSync)
	return t, err
}

// takeoverPause is how long nothing happens between two takeovers, on average.
const takeoverPause = 500 * time.Millisecond

// killLeader is a takeover of failover: the leader's process is killed, and started again once
// another one leads.
func killLeader(ctx context.Context, m *takeovers, t *Takeover) error {
	leader, err := m.group.Leader(ctx)
	if err != nil {
		return err
	}
	killed := time.Now()
	if err := m.group.KillNode(leader); err != nil {
		return err
	}
	answered, err := m.answers.firstAfter(ctx, time.Now())
	if err != nil {
		return fmt.Errorf("after the leader was killed: %w", err)
	}
	t.Outage, t.Pause = answered.Sub(killed), m.answers.longestPause(killed)
	started := time.Now()
	if err := m.group.RestartNode(leader); err != nil {
		return err
	}
	err = m.group.InSync(ctx)
	t.InSync = time.Since(started)
	return err
}

// transferLeader is a takeover of transfer: the leader is asked to have another node lead.
func transferLeader(ctx context.Context, m *takeovers, t *Takeover) error {
	before, err := m.group.Leader(ctx)
	if err != nil {
		return err
	}
	called := time.Now()
	if err := m.group.TransferLeadership(ctx, before); err != nil {
		return wrongAnswer("TRANSFER_"+reasonOf(err), "the leadership was not transferred: %v", err)
	}
	done := time.Now()
	answered, err := m.answers.firstAfter(ctx, called)
	if err == nil {
		_, err = m.answers.firstAfter(ctx, done)
	}
	if err != nil {
		return fmt.Errorf("after the leadership was transferred: %w", err)
	}
	t.Outage, t.Pause = answered.Sub(called), m.answers.longestPause(called)
	if err := m.group.InSync(ctx); err != nil {
		return err
	}
	t.InSync = time.Since(called)
	after, err := m.group.Leader(ctx)
	if err == nil && after == before {
		err = wrongAnswer("NOT_TRANSFERRED", "node %d leads after the transfer as before", before)
	}
	return err
}
