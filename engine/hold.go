package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// held is a lease that is renewed until it ends.
type held struct {
	client Client
	worker string
	ttl    time.Duration
	lease  *runlogv1.Lease
	// ctx ends with the lease. Its cause says how.
	ctx     context.Context
	lost    context.CancelCauseFunc
	renewer sync.WaitGroup
	// goesOn: the run has begun, and must not fail as one that cannot be started does. stopped: the
	// engine was stopped.
	goesOn, stopped bool

	mu     sync.Mutex
	expiry *time.Timer // loses the lease
}

// hold begins to renew a lease, which was given after asked. The caller ends it.
func (r *Reconciler) hold(ctx context.Context, l *runlogv1.Lease, asked time.Time) *held {
	h := &held{client: r.opts.Client, worker: r.opts.Worker, ttl: r.opts.TTL, lease: l}
	h.ctx, h.lost = context.WithCancelCause(ctx)
	h.expiry = time.AfterFunc(h.ttl, func() {
		h.lost(fmt.Errorf("the lease of run %q expired: no renewal was answered in %v", l.GetRunId(), h.ttl))
	})
	// The server counts from a moment between asked and now. If that may be long ago, a renewal
	// tells, before steps are executed that no other worker may execute.
	switch waited := time.Since(asked); {
	case waited <= h.ttl/10:
		h.expiry.Reset(h.ttl - waited)
	case r.opts.Continue:
		renewal, cancel := context.WithTimeout(h.ctx, h.ttl/3)
		if err := h.renew(renewal); err != nil {
			h.lost(fmt.Errorf("the lease of run %q may be over: %w", l.GetRunId(), err))
		}
		cancel()
	}
	h.renewer.Go(h.renewUntilEnd)
	return h
}

// end ends the renewals.
func (h *held) end() {
	h.lost(nil)
	h.renewer.Wait()
	h.expiry.Stop()
}

func (h *held) renewUntilEnd() {
	tick := time.NewTicker(h.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(h.ctx, h.ttl/3)
			_ = h.renew(ctx) // Another try follows, or the lease ends.
			cancel()
		}
	}
}

// renew renews the lease. A lease that has ended is lost.
func (h *held) renew(ctx context.Context) error {
	asked := time.Now() // The server counts from a later moment on.
	_, err := h.client.RenewLease(ctx, &runlogv1.RenewLeaseRequest{RunId: h.lease.GetRunId(), Fence: h.lease.GetFence(), Ttl: durationpb.New(h.ttl)})
	switch {
	case err == nil:
		h.mu.Lock()
		h.expiry.Reset(h.ttl - time.Since(asked))
		h.mu.Unlock()
	case hasReason(err, client.ReasonLeaseLost):
		h.lost(fmt.Errorf("the lease of run %q ended: %w", h.lease.GetRunId(), err))
	}
	return err
}

// lapse has the lease end by itself: soon if the engine was stopped, and else after a backoff. A
// run that has begun is leased again however often that happens, and fails after some releases
// (QUE-7).
func (h *held) lapse() error {
	h.lost(nil)
	h.renewer.Wait()
	rest := minTTL
	if !h.stopped {
		rest = min(h.ttl, minTTL<<min(h.lease.GetStartAttempt(), 12))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), h.ttl/3)
	defer cancel()
	_, err := h.client.RenewLease(ctx, &runlogv1.RenewLeaseRequest{
		RunId: h.lease.GetRunId(), Fence: h.lease.GetFence(), Ttl: durationpb.New(rest),
	})
	return err
}

// lastSeq returns the last runSeq that a SEQUENCE_CONFLICT names.
func lastSeq(err error) uint64 {
	e, _ := errors.AsType[*client.Error](err)
	seq, _ := strconv.ParseUint(e.Metadata["last_seq"], 10, 64) // the server always names it
	return seq
}
