package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
)

// measureRecovery loads the target, kills it under full load, restarts it and waits for its first
// answered append; it repeats that for each kill. Every acknowledged event must be there
// afterwards.
func measureRecovery(ctx context.Context, o *Options, b *bed, w *work) (*report.Result, error) {
	restarter, ok := b.target.(target.Restarter)
	if !ok {
		return nil, errNoRestart
	}
	var (
		restarts     []report.Restart
		acknowledged uint64
		r            *report.Result
	)
	for kill := range b.w.Kills {
		l, killed, err := o.loadAndKill(ctx, b, w, restarter)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := restarter.Restart(); err != nil {
			return nil, err
		}
		if err := firstAppend(ctx, b, b.w.Slots()+kill); err != nil {
			return nil, err
		}
		now := time.Now()
		restarts = append(restarts, report.Restart{
			AcknowledgedEvents: l.Acknowledged.Load(),
			FirstAppend:        now.Sub(began), FirstAppendMs: report.Milliseconds(now.Sub(began)),
			Outage: now.Sub(killed), OutageMs: report.Milliseconds(now.Sub(killed)),
		})
		acknowledged += l.Acknowledged.Load()
		if err := nothingLost(ctx, b, w); err != nil {
			l.Tally.Fail(err)
		}
		r = l.Tally.Result(&b.w, w.requestBytes, acknowledged)
	}
	r.Restarts = restarts
	return r, nil
}

// loadAndKill returns the loop that was under way when the target was killed, and when that was.
func (o *Options) loadAndKill(ctx context.Context, b *bed, w *work, restarter target.Restarter) (*load.Loop, time.Time, error) {
	l := o.newLoop(&b.w)
	if err := w.warm(ctx, l); err != nil {
		return nil, time.Time{}, err
	}
	defer o.watch(b, l)()
	// The kill ends it, while calls are under way.
	l.Duration += target.ProcessStop
	loading, cancel := context.WithCancel(ctx)
	defer cancel()
	var ended sync.WaitGroup
	ended.Go(func() { _, _ = l.Run(loading, w.lanes) }) // cancel ends it
	target.Pause(ctx, o.WarmUp+o.Duration)
	killed := time.Now()
	l.Muted.Store(true)
	failure := restarter.Kill()
	cancel()
	ended.Wait()
	return l, killed, errors.Join(failure, ctx.Err())
}

// firstAppend tries to append until it succeeds.
func firstAppend(ctx context.Context, b *bed, number int) error {
	call := load.AppendFrom(b.target, load.NewHistories(b.session, 1, number))
	for deadline := time.Now().Add(target.NodeStart); ; {
		_, err := call(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || !target.Pause(ctx, target.RestartPoll) {
			return fmt.Errorf("no append within %v after the restart: %w", target.NodeStart, err)
		}
	}
}

// nothingLost compares the runs in progress with their acknowledged events (APP-2).
func nothingLost(ctx context.Context, b *bed, w *work) error {
	reader, ok := b.target.(target.Reader)
	if !ok {
		return nil
	}
	for id, seq := range w.acknowledged() {
		run, err := reader.GetRun(ctx, id)
		if err != nil {
			return err
		}
		if run.GetLastSeq() < seq {
			return target.WrongAnswer("LOST", "run %q is at runSeq %d after the restart, and %d was acknowledged", id, run.GetLastSeq(), seq)
		}
	}
	return nil
}
