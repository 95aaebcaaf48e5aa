package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"runlog/client/transport/outage"
)

// retrier counts the tries of one call or stream.
type retrier struct {
	client *Client
	failed int // tries in a row that failed
	// patience bounds the tries after the first failure in a row; 0: the context does.
	patience time.Duration
	since    time.Time // when the first of the row has failed
	// releases is set if the caller waits until a cluster that is held is released.
	releases bool
	// token is that of the file when the call or the stream began.
	token *string
	// lasting has the names of the failures of which the logger was warned.
	lasting []string
}

// renewed reports whether a call was refused with a token that the file does not have any more. A
// stream has the token of its beginning, and ends with it (SEC-5).
func (r *retrier) renewed(e *Error) bool {
	if e.Code != codes.Unauthenticated {
		return false
	}
	now := r.client.opts.token()
	changed := now != nil && r.token != nil && *now != *r.token
	r.token = now
	return changed
}

// again waits before the next try and returns nil, or returns the error that ends the call.
func (r *retrier) again(ctx context.Context, e *Error) error {
	if r.failed++; r.failed == 1 {
		r.since = time.Now()
	}
	if e.Reason != "" || e.Code != codes.Unavailable {
		r.client.reached.Store(true)
	}
	if e.Reason != "" {
		r.client.retries.answered(nil)
	}
	retryable := e.Retryable() || r.releases && e.Reason == ReasonClusterHeld || r.renewed(e)
	if !retryable || r.client.exhausted(r.failed) || ctx.Err() != nil {
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
	if r.client.retries.note(ctx, e, r.failed, wait) {
		r.lasting = add(r.lasting, e.Name())
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

// exhausted reports whether the bound on the number of tries is reached.
func (c *Client) exhausted(failed int) bool {
	limit := c.opts.MaxAttempts
	if first := c.opts.FirstAttempts; first > 0 && !c.reached.Load() {
		first = max(first, len(c.nodes.listed))
		if limit == 0 || first < limit {
			limit = first
		}
	}
	return limit > 0 && failed >= limit
}

// answered resets the count after a success.
func (r *retrier) answered() {
	r.client.retries.answered(r.lasting)
	r.failed, r.lasting = 0, nil
	r.client.reached.Store(true)
}

// delay is never shorter than the server asked for. The jitter keeps clients that failed together
// from coming back together.
func (r *retrier) delay(e *Error) time.Duration { return r.client.opts.delay(e, r.failed) }

// delay is the wait after so many failed tries in a row.
func (o *Options) delay(e *Error, failed int) time.Duration {
	backoff := o.MinBackoff
	for i := 1; i < failed && backoff < o.MaxBackoff; i++ {
		backoff *= 2
	}
	backoff = min(backoff, o.MaxBackoff)
	if e.RetryAfter > 0 {
		return e.RetryAfter + rand.N(e.RetryAfter/4+1)
	}
	return backoff/2 + rand.N(backoff/2+1)
}

// unary is a generated call.
type unary[Req, Res any] func(context.Context, Req, ...grpc.CallOption) (Res, error)

// call reads: it makes a unary call until it succeeds, fails permanently, or reaches a limit of
// time or tries. After a timeout it prefers an earlier error of the server, which says more.
func call[Req, Res any](ctx context.Context, c *Client, rpc unary[Req, Res], req Req) (Res, error) {
	res, before, err := try(ctx, c, rpc, req)
	if before != nil {
		return res, before
	}
	return res, err
}

// write is call for a call that changes something. If any try may have taken effect and no answer
// tells, the error is OUTCOME_UNKNOWN, however the last try failed (APP-10).
func write[Req, Res any](ctx context.Context, c *Client, rpc unary[Req, Res], req Req) (Res, error) {
	res, _, err := tellingWrite(ctx, c, rpc, req)
	return res, err
}

// tellingWrite is write, and tells whether a try without an answer may have taken effect.
func tellingWrite[Req, Res any](ctx context.Context, c *Client, rpc unary[Req, Res], req Req) (_ Res, unknown bool, _ error) {
	once := func(ctx context.Context, req Req, opts ...grpc.CallOption) (Res, error) {
		var reached peer.Peer
		res, err := rpc(ctx, req, append(opts, grpc.Peer(&reached))...)
		if err != nil && reached.Addr != nil && newError(ctx, err).unknown() {
			unknown = true
		}
		return res, err
	}
	res, before, err := try(ctx, c, once, req)
	if e, ok := errors.AsType[*Error](err); ok {
		e.settle(unknown, before)
	}
	return res, unknown, err
}

// settle turns the last failure of a write into OUTCOME_UNKNOWN if an earlier try, or this one, may
// have taken effect. before is an earlier failure that says more than one of a connection, or nil.
func (e *Error) settle(unknown bool, before *Error) {
	earlier := ""
	if before != nil && before != e && before.Reason != "" {
		earlier = fmt.Sprintf("; earlier server error %s: %s", before.Reason, before.Message)
	}
	switch {
	case !unknown:
		e.Message += earlier
		return
	case e.decides() || e.Reason == ReasonOutcomeUnknown:
		return
	}
	last := e.Message
	if e.Reason != "" {
		last = string(e.Reason) + ": " + last
	}
	e.Message = "a try may have taken effect; the last failure: " + last + earlier
	if !e.unknown() {
		e.Code = codes.Unavailable
	}
	e.Reason = ReasonOutcomeUnknown
}

// try is call, but after a timeout it returns that error and, separately, an earlier error of the
// server, or nil.
func try[Req, Res any](ctx context.Context, c *Client, rpc unary[Req, Res], req Req) (_ Res, before *Error, err error) {
	if c.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	tries := retrier{client: c, token: c.opts.token()}
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

// retries tells of tries that failed and are repeated.
type retries struct {
	log      *slog.Logger
	observer Observer

	// away is set while the logger is warned that no server answers.
	away atomic.Bool
	mu   sync.Mutex
	// outages are those that were logged, by the name of their error.
	outages map[string]*outage.Log
}

// usual is how many failures of a call in a row are not worth an operator's look.
const usual = 3

// note tells of a failure, and reports whether it lasts. All calls of a client share the lines of a
// failure that lasts.
func (r *retries) note(ctx context.Context, e *Error, failed int, wait time.Duration) (lasts bool) {
	r.observer.Retried(e.Name())
	args := []any{"reason", e.Name(), "attempt", failed, "wait", wait, "err", e.Message}
	if failed <= usual {
		r.log.DebugContext(ctx, "call failed; retrying", args...)
		return false
	}
	if e.Name() == noServer {
		r.away.Store(true)
	}
	r.outage(e.Name()).Failed(ctx, "call failed; retrying", args...)
	return true
}

// noServer is the name of the failure of a call that no server has answered: that of its code.
const noServer = "Unavailable"

// answered notes that a server has answered. lasting has the failures that are over with it, but
// for the one that no server answers.
func (r *retries) answered(lasting []string) {
	if r.away.Load() && r.away.CompareAndSwap(true, false) {
		r.over(noServer)
	}
	for _, name := range lasting {
		r.over(name)
	}
}

// add adds a name to a list, if it is not there.
func add(list []string, name string) []string {
	if slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}

func (r *retries) over(name string) {
	r.outage(name).Succeeded(context.Background(), "calls are answered again", "reason", name)
}

// outage returns the log of a failure.
func (r *retries) outage(name string) *outage.Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outages == nil {
		r.outages = map[string]*outage.Log{}
	}
	if r.outages[name] == nil {
		r.outages[name] = &outage.Log{Logger: r.log}
	}
	return r.outages[name]
}
