package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"runlog/client"
	"runlog/client/transport/outage"
)

// The wait after a call of LeaseRuns that failed, or that was answered early without a run.
const minBackoff, maxBackoff = 100 * time.Millisecond, 5 * time.Second

// Run leases and starts runs until ctx ends, and then returns nil. A slow start does not hold up
// the others. An error means that the server refuses to lease to this reconciler for good, such as
// for a name that cannot be.
//
// When ctx ends, no more runs are leased. Starts may go on for Grace. Then their contexts end, and
// the reconciler releases its leases, which takes at most TTL. A lease whose answer was under way
// ends by itself.
func (r *Reconciler) Run(ctx context.Context) error {
	starts, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(r.opts.Grace, func() { stop(context.Cause(ctx)) })
	})()
	slots := make(chan struct{}, r.opts.Max)
	var running sync.WaitGroup
	defer running.Wait()
	leaseLog := outage.Log{Logger: r.opts.Logger}
	for backoff := minBackoff; ; {
		free := acquire(ctx, slots)
		if free == 0 {
			return nil
		}
		asked := time.Now()
		leases, err := r.lease(ctx, free, r.opts.Wait)
		for range free - len(leases) {
			<-slots
		}
		for _, l := range leases {
			running.Go(func() {
				defer func() { <-slots }()
				if res := r.start(starts, l, asked); r.opts.Report != nil {
					r.opts.Report(res)
				}
			})
		}
		if err == nil {
			leaseLog.Succeeded(ctx, "runs are leased again")
		}
		switch e, _ := errors.AsType[*client.Error](err); {
		case ctx.Err() != nil:
			return nil
		case e != nil && e.Final():
			return err
		case err != nil:
			leaseLog.Failed(ctx, "cannot lease runs; retrying", "wait", backoff, "err", err)
		case len(leases) > 0 || time.Since(asked) >= r.opts.Wait/2:
			backoff = minBackoff
			continue
		}
		sleep(ctx, backoff/2+rand.N(backoff/2))
		backoff = min(2*backoff, maxBackoff)
	}
}

// acquire waits for a free slot, and takes all that are free. 0: ctx has ended.
func acquire(ctx context.Context, slots chan struct{}) (taken int) {
	select {
	case <-ctx.Done():
		return 0
	case slots <- struct{}{}:
	}
	for taken = 1; taken < cap(slots); taken++ {
		select {
		case slots <- struct{}{}:
		default:
			return taken
		}
	}
	return taken
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
