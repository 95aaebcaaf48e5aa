package workload

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/status"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

const (
	// openRuns is the number of runs that get appends at a time.
	openRuns = 4
	// minPatience is the shortest deadline of a call.
	minPatience = 100 * time.Millisecond
	// burstCalls is the length of a burst. Outside of bursts, clients pause between two calls.
	burstCalls  = 20
	streamDepth = 6
)

// work makes one call after another until ctx ends. Three appends of four go through the product's
// client, and the others (appendAt and the like) to one node, without its retries.
func (w *worker) work(ctx context.Context) {
	w.hired = ctx
	things := []struct {
		weight int
		do     func(context.Context, int)
	}{
		{34, w.append}, {11, w.appendAt}, {6, w.batch}, {2, w.batchAt}, {3, w.queue}, {1, w.streamAt}, {3, w.race},
		{25, w.read}, {10, w.snapshot}, {2, w.window}, {4, w.listNew},
	}
	total := 0
	for _, t := range things {
		total += t.weight
	}
	for burst := 0; ctx.Err() == nil; burst-- {
		n := w.rng.IntN(total)
		for _, t := range things {
			if n -= t.weight; n < 0 {
				called, cancel := context.WithTimeout(ctx, w.patience())
				t.do(called, w.rng.IntN(len(w.conns)))
				cancel()
				break
			}
		}
		if burst <= 0 && w.rng.IntN(10*burstCalls) == 0 {
			burst = burstCalls
		}
		if burst <= 0 {
			pause(ctx, time.Duration(w.rng.ExpFloat64()*float64(w.clients.opts.Think)))
		}
	}
}

// patience draws the deadline of a call.
func (w *worker) patience() time.Duration {
	return minPatience + time.Duration(w.rng.Int64N(int64(w.clients.opts.Patience)))
}

// run draws one of the current runs.
func (w *worker) run() string { return w.current(w.rng.IntN(openRuns)) }

// current returns one of the current runs, by its place among them.
func (w *worker) current(place int) string {
	return "run-" + strconv.Itoa(int(time.Since(w.clients.began)/w.clients.opts.RunLives)+place)
}

func (w *worker) call(node int, op history.Op) (history.Op, history.Ticket) {
	op.Client, op.Node = w.host, w.clients.opts.Nodes[node]
	return op, w.clients.recorder.Call(op)
}

// sender makes one append, and fills in its outcome. Several may run at the same time.
type sender func(context.Context, *runlogv1.AppendEventsRequest, *history.Append)

// sendAt returns a sender that calls one node.
func (w *worker) sendAt(node int) sender {
	return func(ctx context.Context, req *runlogv1.AppendEventsRequest, a *history.Append) {
		resp, err := w.events(node).AppendEvents(ctx, req)
		w.answered(a, resp.GetResults(), resp.GetLastSeq(), err)
	}
}

// request draws an append to a run. One in five is conditional, and most of those expect the last
// known sequence.
func (w *worker) request(run string) (*runlogv1.AppendEventsRequest, history.Append) {
	req := &runlogv1.AppendEventsRequest{RunId: run, Events: w.clients.drawEvents(run, w.rng)}
	a := history.Append{Run: run, Events: allAsSent(req)}
	if w.rng.IntN(5) == 0 {
		last := w.known(run) + []uint64{0, 0, 0, 1}[w.rng.IntN(4)]
		req.ExpectedLastSeq, a.Expected = &last, &last
	}
	return req, a
}

// answered fills in the answer of a node to an append.
func (w *worker) answered(a *history.Append, results []*runlogv1.AppendResult, last uint64, err error) {
	if err != nil {
		w.failed(a, outcome(err), client.ErrorOf(status.Convert(err)))
		return
	}
	w.stored(a, results, last)
}

// failed fills in the failure of an append.
func (w *worker) failed(a *history.Append, o history.Outcome, e *client.Error) {
	a.Outcome = o
	if o.Reason == contract.ReasonSequenceConflict {
		a.LastSeq, _ = strconv.ParseUint(e.Metadata["last_seq"], 10, 64)
		w.reached(a.Run, a.LastSeq)
	}
}

// stored fills in the results of an append.
func (w *worker) stored(a *history.Append, results []*runlogv1.AppendResult, last uint64) {
	w.clients.acked.Add(1)
	a.Outcome, a.LastSeq = history.Outcome{Status: history.Acknowledged}, last
	w.reached(a.Run, last)
	for i, r := range results {
		w.clients.checkAssigned(a, i, r)
		a.Results = append(a.Results, history.Result{
			EventID: r.GetEventId(), RunSeq: r.GetRunSeq(), PersistedAt: r.GetPersistedAt().AsTime().UnixNano(),
			Idempotent: r.GetIdempotent(), Diverged: r.GetDiverged(),
		})
	}
}

// reached records the last runSeq of a run in an answer.
func (w *worker) reached(run string, last uint64) {
	w.answering.Lock()
	defer w.answering.Unlock()
	w.last[run] = last
}

// known returns the last runSeq of a run in an answer.
func (w *worker) known(run string) uint64 {
	w.answering.Lock()
	defer w.answering.Unlock()
	return w.last[run]
}

// appendAt appends to one run, at one node after another.
func (w *worker) appendAt(ctx context.Context, node int) {
	req, a := w.request(w.run())
	w.untilKnown(ctx, node, func(ctx context.Context, node int) history.Status {
		op, ticket := w.call(node, history.Op{Appends: []history.Append{a}})
		w.sendAt(node)(ctx, req, &op.Appends[0])
		w.clients.recorder.Return(ticket, op)
		return op.Appends[0].Status
	})
}

// untilKnown makes a call, and usually repeats it while its outcome is unknown.
func (w *worker) untilKnown(ctx context.Context, node int, call func(context.Context, int) history.Status) {
	for call(ctx, node) == history.Unknown && w.rng.IntN(4) > 0 && w.hired.Err() == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(w.hired, w.patience())
		defer cancel()
		pause(ctx, time.Duration(w.rng.Int64N(int64(200*time.Millisecond))))
		if ctx.Err() != nil {
			return
		}
		node = w.rng.IntN(len(w.conns))
	}
}

// drawBatch draws appends to several runs at once.
func (w *worker) drawBatch() (*runlogv1.BatchAppendRequest, []history.Append) {
	req := &runlogv1.BatchAppendRequest{}
	var appends []history.Append
	for range 1 + w.rng.IntN(4) {
		r, a := w.request(w.run())
		req.Requests, appends = append(req.Requests, r), append(appends, a)
	}
	return req, appends
}

// batchAt appends to several runs at once, at one node.
func (w *worker) batchAt(ctx context.Context, node int) {
	req, appends := w.drawBatch()
	op, ticket := w.call(node, history.Op{Appends: appends})
	resp, err := w.events(node).BatchAppend(ctx, req)
	for i := range op.Appends {
		if err != nil {
			w.answered(&op.Appends[i], nil, 0, err)
			continue
		}
		o := resp.GetOutcomes()[i]
		w.answered(&op.Appends[i], o.GetResults(), o.GetLastSeq(), status.ErrorProto(o.GetStatus()))
	}
	w.clients.recorder.Return(ticket, op)
}

// streamAt appends over a stream to one node, several requests at a time. The answers come in
// order.
func (w *worker) streamAt(ctx context.Context, node int) {
	s, err := w.events(node).AppendStream(ctx)
	if err != nil {
		return
	}
	// Context disables gRPC's own retries. In one, Recv waits for a connection with a mutex that
	// Send needs, and the time of a bubble stands still.
	_ = s.Context()
	type call struct {
		req    *runlogv1.AppendEventsRequest
		op     history.Op
		ticket history.Ticket
	}
	var calls []call
	for i := range 3 + w.rng.IntN(12) {
		req, a := w.request(w.run())
		req.RequestId = strconv.Itoa(i)
		calls = append(calls, call{req: req, op: history.Op{Appends: []history.Append{a}}})
	}
	under := make(chan call, streamDepth)
	go func() {
		defer close(under)
		for _, one := range calls {
			one.op, one.ticket = w.call(node, one.op)
			select {
			case under <- one:
			case <-s.Context().Done():
				return
			}
			if s.Send(one.req) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	for call := range under {
		if err != nil {
			continue // unknown
		}
		var resp *runlogv1.AppendStreamResponse
		if resp, err = s.Recv(); err != nil {
			continue
		}
		w.answered(&call.op.Appends[0], resp.GetResults(), resp.GetLastSeq(), status.ErrorProto(resp.GetStatus()))
		w.clients.recorder.Return(call.ticket, call.op)
	}
}
