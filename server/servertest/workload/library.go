package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

// queueGap is the mean time between two calls of a goroutine that uses the Appender. It is about
// that of an answer, so that calls meet and share messages.
const queueGap = time.Millisecond

// library is the product's client, as one host uses it.
type library struct {
	*client.Client
	appender *client.Appender
}

// newLibrary connects a host to all nodes.
func (c *Clients) newLibrary(host string, opts ...grpc.DialOption) (*library, error) {
	all, err := c.opts.Connect(host, append(opts, grpc.WithUnaryInterceptor(countTry))...)
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	appender, err := all.NewAppender(client.AppenderOptions{})
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return &library{all, appender}, nil
}

// triesKey is the key of the number of tries of a call in its context.
type triesKey struct{}

// countTry counts the tries of a unary call of the library.
func countTry(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if tries, ok := ctx.Value(triesKey{}).(*atomic.Int32); ok {
		tries.Add(1)
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}

// counted returns a context in which the tries of a unary call are counted.
func counted(ctx context.Context) (context.Context, *atomic.Int32) {
	tries := new(atomic.Int32)
	return context.WithValue(ctx, triesKey{}, tries), tries
}

// own returns a copy of a request, into which the library may write event ids.
func own(req *runlogv1.AppendEventsRequest) *runlogv1.AppendEventsRequest { return proto.CloneOf(req) }

// libraryAnswered fills in the answer of the library to an append, which named the events of req.
// A failure that is not OUTCOME_UNKNOWN says that nothing was stored, with a server's reason or
// without.
func (w *worker) libraryAnswered(a *history.Append, req *runlogv1.AppendEventsRequest,
	results []*runlogv1.AppendResult, last uint64, err error) {
	a.Events = allAsSent(req)
	if err == nil {
		w.stored(a, results, last)
		return
	}
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		w.clients.opts.Broken("library: a failure that is no *client.Error: %v", err)
		return
	}
	o := history.Outcome{Status: history.Refused, Reason: e.Reason}
	if e.Unknown() {
		o.Status = history.Unknown
	}
	w.failed(a, o, e)
}

// append appends to one run through the library, and usually again while the outcome is unknown.
func (w *worker) append(ctx context.Context, node int) {
	req, a := w.request(w.run())
	req = own(req)
	send := w.sendUnary
	if w.rng.IntN(3) == 0 {
		send = w.sendQueued
	}
	w.untilKnown(ctx, node, func(ctx context.Context, _ int) history.Status {
		op, ticket := w.callLibrary(a)
		send(ctx, req, &op.Appends[0])
		w.clients.recorder.Return(ticket, op)
		a.Events = op.Appends[0].Events // a later call names the same ones (APP-10)
		return op.Appends[0].Status
	})
}

// callLibrary records a call of the library, which chooses the nodes.
func (w *worker) callLibrary(appends ...history.Append) (history.Op, history.Ticket) {
	op := history.Op{Client: w.host, Appends: appends}
	return op, w.clients.recorder.Call(op)
}

// sendUnary appends with a unary call.
func (w *worker) sendUnary(ctx context.Context, req *runlogv1.AppendEventsRequest, a *history.Append) {
	ctx, tries := counted(ctx)
	resp, err := w.library.AppendEvents(ctx, req)
	a.Resent = tries.Load() > 1
	w.libraryAnswered(a, req, resp.GetResults(), resp.GetLastSeq(), err)
}

// sendQueued appends through the Appender of the host.
func (w *worker) sendQueued(ctx context.Context, req *runlogv1.AppendEventsRequest, a *history.Append) {
	res, err := w.library.appender.AppendRequest(ctx, req)
	a.Resent = true // as far as is known
	if w.clients.opts.Instant {
		a.Queue = w.host
	}
	w.libraryAnswered(a, req, res.Events, res.LastSeq, err)
}

// batch appends to several runs at once through the library.
func (w *worker) batch(ctx context.Context, _ int) {
	req, appends := w.drawBatch()
	req = proto.CloneOf(req)
	op, ticket := w.callLibrary(appends...)
	ctx, tries := counted(ctx)
	resp, err := w.library.BatchAppend(ctx, req)
	for i := range op.Appends {
		a, r := &op.Appends[i], req.GetRequests()[i]
		a.Resent = tries.Load() > 1
		if err != nil {
			w.libraryAnswered(a, r, nil, 0, err)
			continue
		}
		o := resp.GetOutcomes()[i]
		var refused error
		if st := status.FromProto(o.GetStatus()); st.Err() != nil {
			refused = client.ErrorOf(st)
		}
		w.libraryAnswered(a, r, o.GetResults(), o.GetLastSeq(), refused)
	}
	w.clients.recorder.Return(ticket, op)
}

// queued is a call of the Appender.
type queued struct {
	req      *runlogv1.AppendEventsRequest
	append   history.Append
	patience time.Duration
}

// draw draws an append to a run for the Appender.
func (w *worker) draw(run string) queued {
	req, a := w.request(run)
	return queued{req: own(req), append: a}
}

// shortPatience draws the deadline of a call that often has no answer yet when it ends.
func (w *worker) shortPatience() time.Duration {
	return w.patience() / time.Duration(1+w.rng.IntN(8))
}

// callQueued makes a call of the Appender. Several may run at the same time.
func (w *worker) callQueued(ctx context.Context, one queued) {
	op, ticket := w.callLibrary(one.append)
	ctx, cancel := context.WithTimeout(ctx, one.patience)
	defer cancel()
	w.sendQueued(ctx, one.req, &op.Appends[0])
	w.clients.recorder.Return(ticket, op)
}

// queue appends through the Appender from several goroutines, often to one run, so that appends
// share messages. Some stop waiting early.
func (w *worker) queue(ctx context.Context, _ int) {
	run, one := w.run(), w.rng.IntN(2) == 0
	var callers sync.WaitGroup
	for range 2 + w.rng.IntN(4) {
		var calls []queued
		var after []time.Duration
		for range 1 + w.rng.IntN(4) {
			if !one {
				run = w.run()
			}
			c := w.draw(run)
			after = append(after, gap(w.rng))
			c.patience = w.shortPatience()
			calls = append(calls, c)
		}
		callers.Go(func() {
			for i, c := range calls {
				if pause(ctx, after[i]); ctx.Err() != nil {
					return
				}
				w.callQueued(ctx, c)
			}
		})
	}
	callers.Wait()
}

func gap(rng *rand.Rand) time.Duration { return time.Duration(rng.ExpFloat64() * float64(queueGap)) }
