package client

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// retrier counts the tries of one call or stream.
type retrier struct {
	client *Client
	failed int // tries in a row that failed
	// patience bounds the tries after the first failure in a row; 0: the context does.
	patience time.Duration
	since    time.Time // when the first of the row has failed
}

// again waits before the next try and returns nil, or returns the error that ends the call.
func (r *retrier) again(ctx context.Context, e *Error) error {
	if r.failed++; r.failed == 1 {
		r.since = time.Now()
	}
	if e.Reason != "" || e.Code != codes.Unavailable {
		r.client.reached.Store(true)
	}
	limit := r.client.opts.MaxAttempts
	if !r.client.reached.Load() {
		limit = min(limit, max(r.client.opts.FirstAttempts, len(r.client.nodes.listed)))
	}
	if !e.Retryable() || r.failed >= limit || ctx.Err() != nil {
		return e
	}
	wait := r.delay(e)
	if r.patience > 0 && time.Since(r.since)+wait > r.patience {
		return e
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		// The caller can use the time that is left better than we can by sleeping.
		return e
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		e.causes = append(e.causes, ctx.Err())
		return e
	case <-timer.C:
		return nil
	}
}

// answered resets the count after a success.
func (r *retrier) answered() {
	r.failed = 0
	r.client.reached.Store(true)
}

// delay is never shorter than the server asked for. The jitter keeps clients that failed together
// from coming back together.
func (r *retrier) delay(e *Error) time.Duration {
	backoff := r.client.opts.MinBackoff
	for i := 1; i < r.failed && backoff < r.client.opts.MaxBackoff; i++ {
		backoff *= 2
	}
	backoff = min(backoff, r.client.opts.MaxBackoff)
	if e.RetryAfter > 0 {
		return e.RetryAfter + rand.N(e.RetryAfter/4+1)
	}
	return backoff/2 + rand.N(backoff/2+1)
}

// call makes a unary call until it succeeds, fails permanently, or reaches a limit of time or
// tries. After a timeout it prefers an earlier error of the server, which says more.
func call[Req, Res any](ctx context.Context, c *Client, rpc func(context.Context, Req, ...grpc.CallOption) (Res, error), req Req) (Res, error) {
	res, before, err := try(ctx, c, rpc, req)
	if before != nil {
		return res, before
	}
	return res, err
}

// try is call, but after a timeout it returns that error and, separately, an earlier error of the
// server, or nil.
func try[Req, Res any](ctx context.Context, c *Client, rpc func(context.Context, Req, ...grpc.CallOption) (Res, error), req Req) (_ Res, before *Error, err error) {
	if c.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	tries := retrier{client: c}
	for {
		res, err := rpc(ctx, req)
		if err == nil {
			tries.answered()
			return res, nil, nil
		}
		e := newError(ctx, err)
		if err := tries.again(ctx, e); err != nil {
			if e.Code != codes.DeadlineExceeded || e.Reason != "" {
				before = nil
			}
			return res, before, err
		}
		if e.Reason != "" {
			before = e
		}
	}
}
