package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
)

// takeovers makes nodes of a group lead in turn while callers append.
type takeovers struct {
	group   target.Group
	answers *load.Answers
	once    takeover
}

// takeover changes the leader and measures t.
type takeover func(ctx context.Context, m *takeovers, t *report.Takeover) error

// openTakeovers prepares failover and transfer.
func openTakeovers(once takeover) func(*bed) (*work, error) {
	return func(b *bed) (*work, error) {
		group, ok := b.target.(target.Group)
		if !ok {
			return nil, errNoGroup
		}
		m := &takeovers{group: group, answers: load.NewAnswers(), once: once}
		var clients []*load.FailoverClient
		for i := range b.w.Callers {
			clients = append(clients, load.NewFailoverClient(b.session, i, group.Routes(), m.answers))
		}
		w := &work{first: clients[0].Append, measure: m.measure, release: func() error { return nil }}
		for _, r := range clients {
			w.lanes = append(w.lanes, load.Caller(r.Append).Lane())
		}
		w.measureRequest(b)
		return w, nil
	}
}

// measure returns the result of the appends, with the takeovers.
func (m *takeovers) measure(ctx context.Context, o *Options, b *bed, w *work) (*report.Result, error) {
	l := o.newLoop(&b.w)
	// The last takeover ends it.
	l.Calls, l.Steps = 0, b.w.Kills+b.w.Transfers
	l.Duration = time.Duration(l.Steps) * (load.TakeoverLimit + target.ClusterSettle)
	if err := w.warm(ctx, l); err != nil {
		return nil, err
	}
	defer o.watch(b, l)()
	appending, cancel := context.WithCancel(ctx)
	defer cancel()
	var ended sync.WaitGroup
	ended.Go(func() { _, _ = l.Run(appending, w.lanes) }) // cancel ends it
	target.Pause(ctx, o.WarmUp)
	var all []report.Takeover
	var failures []error
	var err error
	for range l.Steps {
		t, failure := m.next(ctx)
		l.Step.Add(1)
		if _, wrong := errors.AsType[*target.AnswerError](failure); wrong {
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
		l.Tally.Fail(f)
	}
	r := l.Tally.Result(&b.w, w.requestBytes, l.Acknowledged.Load())
	r.Takeovers = all
	return r, err
}

// next runs the next takeover after a random pause, so that it is not in step with the group's
// timers.
func (m *takeovers) next(ctx context.Context) (report.Takeover, error) {
	var t report.Takeover
	if !target.Pause(ctx, takeoverPause/2+rand.N(takeoverPause)) {
		return t, context.Cause(ctx)
	}
	m.answers.Reset()
	err := m.once(ctx, m, &t)
	t.FailedTries = m.answers.Failures()
	t.OutageMs, t.PauseMs, t.InSyncMs = report.Milliseconds(t.Outage), report.Milliseconds(t.Pause), report.Milliseconds(t.InSync)
	return t, err
}

// takeoverPause is the average pause between two takeovers.
const takeoverPause = 500 * time.Millisecond

// killLeader is a takeover of failover: it kills the leader's process, and restarts it once another
// node leads.
func killLeader(ctx context.Context, m *takeovers, t *report.Takeover) error {
	leader, err := m.group.Leader(ctx)
	if err != nil {
		return err
	}
	killed := time.Now()
	if err := m.group.KillNode(leader); err != nil {
		return err
	}
	answered, err := m.answers.FirstAfter(ctx, time.Now())
	if err != nil {
		return fmt.Errorf("after the leader was killed: %w", err)
	}
	t.Outage, t.Pause = answered.Sub(killed), m.answers.LongestPause(killed)
	started := time.Now()
	if err := m.group.RestartNode(leader); err != nil {
		return err
	}
	err = m.group.InSync(ctx)
	t.InSync = time.Since(started)
	return err
}

// transferLeader is a takeover of transfer: it asks the leader to transfer its leadership.
func transferLeader(ctx context.Context, m *takeovers, t *report.Takeover) error {
	before, err := m.group.Leader(ctx)
	if err != nil {
		return err
	}
	called := time.Now()
	if err := m.group.TransferLeadership(ctx, before); err != nil {
		return target.WrongAnswer("TRANSFER_"+target.ReasonOf(err), "the leadership was not transferred: %v", err)
	}
	done := time.Now()
	answered, err := m.answers.FirstAfter(ctx, called)
	if err == nil {
		_, err = m.answers.FirstAfter(ctx, done)
	}
	if err != nil {
		return fmt.Errorf("after the leadership was transferred: %w", err)
	}
	t.Outage, t.Pause = answered.Sub(called), m.answers.LongestPause(called)
	if err := m.group.InSync(ctx); err != nil {
		return err
	}
	t.InSync = time.Since(called)
	after, err := m.group.Leader(ctx)
	if err == nil && after == before {
		err = target.WrongAnswer("NOT_TRANSFERRED", "node %d still leads after the transfer", before)
	}
	return err
}
