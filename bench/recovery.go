package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Restart is one kill of recovery.
type Restart struct {
	// AcknowledgedEvents by this process, since it was last started, before it was killed.
	AcknowledgedEvents uint64 `json:"acknowledgedEvents"`
	// FirstAppend is the time from the start of the new process until it answered the first append.
	FirstAppend time.Duration `json:"-"`
	// Outage is the same from the kill on.
	Outage time.Duration `json:"-"`
	// FirstAppendMs and OutageMs say it in milliseconds.
	FirstAppendMs float64 `json:"firstAppendMs"`
	OutageMs      float64 `json:"outageMs"`
}

// measureRecovery loads the target, kills it at the height of the load, starts it again and waits
// for the first append that it answers; so many times. Nothing that was acknowledged may be missing
// then.
func measureRecovery(ctx context.Context, o *Options, b *bed, w *work) (*Result, error) {
	restarter, ok := b.target.(Restarter)
	if !ok {
		return nil, errNoRestart
	}
	var (
		restarts     []Restart
		acknowledged uint64
		r            *Result
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
		if err := firstAppend(ctx, b, b.w.slots()+kill); err != nil {
			return nil, err
		}
		now := time.Now()
		restarts = append(restarts, Restart{
			AcknowledgedEvents: l.acknowledged.Load(),
			FirstAppend:        now.Sub(began), FirstAppendMs: milliseconds(now.Sub(began)),
			Outage: now.Sub(killed), OutageMs: milliseconds(now.Sub(killed)),
		})
		acknowledged += l.acknowledged.Load()
		if err := nothingLost(ctx, b, w); err != nil {
			l.tally.fail(err)
		}
		r = l.tally.result(&b.w, w.requestBytes, acknowledged)
	}
	r.Restarts = restarts
	return r, nil
}

// loadAndKill returns the loop that was under way when the target was killed, and when that was.
func (o *Options) loadAndKill(ctx context.Context, b *bed, w *work, target Restarter) (*loop, time.Time, error) {
	l := o.newLoop(&b.w)
	if err := w.warm(ctx, l); err != nil {
		return nil, time.Time{}, err
	}
	defer o.watch(b, l)()
	// The kill ends it, while calls are under way.
	l.duration += processStop
	loading, cancel := context.WithCancel(ctx)
	defer cancel()
	var ended sync.WaitGroup
	ended.Go(func() { _, _ = l.run(loading, w.lanes) }) // its end is what cancel asks for
	pause(ctx, o.WarmUp+o.Duration)
	killed := time.Now()
	l.muted.Store(true)
	failure := target.Kill()
	cancel()
	ended.Wait()
	return l, killed, errors.Join(failure, ctx.Err())
}

// firstAppend tries to append until it succeeds.
func firstAppend(ctx context.Context, b *bed, number int) error {
	call := appendFrom(b.target, newHistories(b.session, 1, number))
	for deadline := time.Now().Add(nodeStart); ; {
		_, err := call(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || !pause(ctx, restartPoll) {
			return fmt.Errorf("no append within %v after the restart: %w", nodeStart, err)
		}
	}
}

// nothingLost compares the runs that were being written with what was acknowledged of them (APP-2).
func nothingLost(ctx context.Context, b *bed, w *work) error {
	reader, ok := b.target.(Reader)
	if !ok {
		return nil
	}
	for id, seq := range w.acknowledged() {
		run, err := reader.GetRun(ctx, id)
		if err != nil {
			return err
		}
		if run.GetLastSeq() < seq {
			return wrongAnswer("LOST", "run %q is at runSeq %d after the restart, and %d was acknowledged", id, run.GetLastSeq(), seq)
		}
	}
	return nil
}

// medianRestart is the restart with the median time until the first append.
func medianRestart(restarts []Restart) Restart {
	sorted := slices.SortedFunc(slices.Values(restarts), func(a, b Restart) int { return int(a.FirstAppend - b.FirstAppend) })
	return sorted[(len(sorted)-1)/2]
}
