package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft/rafttest/history"
)

// worker is a client that does one thing after another.
type worker struct {
	*caller
	rng  *rand.Rand
	last map[string]uint64 // runSeq that it was told last, by run
}

const (
	// Runs that are appended to at a time; from time to time, one gives way to another.
	openRuns = 4
	runLives = 20 * time.Second
	// How long a call may take, from and to.
	minPatience = 100 * time.Millisecond
	maxPatience = 4 * time.Second
	// Clients mostly think between two calls, and sometimes do not.
	thinkTime   = 150 * time.Millisecond
	burstCalls  = 20
	streamDepth = 6
)

// work does one thing after another until ctx ends.
func (c *worker) work(ctx context.Context) {
	things := []struct {
		weight int
		do     func(context.Context, int)
	}{
		{45, c.append}, {8, c.batch}, {2, c.stream}, {25, c.read}, {10, c.snapshot}, {2, c.window},
	}
	total := 0
	for _, t := range things {
		total += t.weight
	}
	for burst := 0; ctx.Err() == nil; burst-- {
		n := c.rng.IntN(total)
		for _, t := range things {
			if n -= t.weight; n < 0 {
				called, cancel := context.WithTimeout(ctx, minPatience+time.Duration(c.rng.Int64N(int64(maxPatience))))
				t.do(called, c.rng.IntN(len(c.conns)))
				cancel()
				break
			}
		}
		if burst <= 0 && c.rng.IntN(10*burstCalls) == 0 {
			burst = burstCalls
		}
		if burst <= 0 {
			pause(ctx, time.Duration(c.rng.ExpFloat64()*float64(thinkTime)))
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// run draws one of the runs of this time.
func (c *worker) run() string {
	n := int(time.Since(c.world.began)/runLives) + c.rng.IntN(openRuns)
	return "run-" + strconv.Itoa(n)
}

func (c *worker) call(node int, op history.Op) (history.Op, history.Ticket) {
	op.Client, op.Node = c.host, c.world.nodes[node].host
	return op, c.world.recorder.Call(op)
}

// request draws an append, which is often one that expects what the run has.
func (c *worker) request() (*runlogv1.AppendEventsRequest, history.Append) {
	run := c.run()
	req := &runlogv1.AppendEventsRequest{RunId: run, Events: c.world.drawEvents(run, c.rng)}
	a := history.Append{Run: run}
	if c.rng.IntN(5) == 0 {
		last := c.last[run] + []uint64{0, 0, 0, 1}[c.rng.IntN(4)]
		req.ExpectedLastSeq, a.Expected = &last, &last
	}
	for _, e := range req.GetEvents() {
		a.Events = append(a.Events, asSent(e))
	}
	return req, a
}

// answered fills in what an append was answered.
func (c *worker) answered(a *history.Append, results []*runlogv1.AppendResult, last uint64, err error) {
	if err != nil {
		a.Outcome = outcome(err)
		if a.Reason == contract.ReasonSequenceConflict {
			e := client.ErrorOf(status.Convert(err))
			a.LastSeq, _ = strconv.ParseUint(e.Metadata["last_seq"], 10, 64)
			c.last[a.Run] = a.LastSeq
		}
		return
	}
	a.Outcome, a.LastSeq = history.Outcome{Status: history.Acknowledged}, last
	c.last[a.Run] = last
	for _, r := range results {
		a.Results = append(a.Results, history.Result{
			EventID: r.GetEventId(), RunSeq: r.GetRunSeq(), PersistedAt: r.GetPersistedAt().AsTime().UnixNano(),
			Idempotent: r.GetIdempotent(), Diverged: r.GetDiverged(),
		})
	}
}

// append appends, and often does so again when it does not know what became of it.
func (c *worker) append(ctx context.Context, node int) {
	req, a := c.request()
	for {
		op, ticket := c.call(node, history.Op{Appends: []history.Append{a}})
		resp, err := c.events(node).AppendEvents(ctx, req)
		c.answered(&op.Appends[0], resp.GetResults(), resp.GetLastSeq(), err)
		c.world.recorder.Return(ticket, op)
		if op.Appends[0].Status != history.Unknown || c.rng.IntN(4) == 0 || c.world.ended() {
			return
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(c.world.working, minPatience+time.Duration(c.rng.Int64N(int64(maxPatience))))
		defer cancel()
		pause(ctx, time.Duration(c.rng.Int64N(int64(200*time.Millisecond))))
		if ctx.Err() != nil {
			return
		}
		node = c.rng.IntN(len(c.conns))
	}
}

// batch appends to several runs at once.
func (c *worker) batch(ctx context.Context, node int) {
	req := &runlogv1.BatchAppendRequest{}
	var appends []history.Append
	for range 1 + c.rng.IntN(4) {
		r, a := c.request()
		req.Requests, appends = append(req.Requests, r), append(appends, a)
	}
	op, ticket := c.call(node, history.Op{Appends: appends})
	resp, err := c.events(node).BatchAppend(ctx, req)
	for i := range op.Appends {
		if err != nil {
			c.answered(&op.Appends[i], nil, 0, err)
			continue
		}
		o := resp.GetOutcomes()[i]
		c.answered(&op.Appends[i], o.GetResults(), o.GetLastSeq(), status.ErrorProto(o.GetStatus()))
	}
	c.world.recorder.Return(ticket, op)
}

// stream appends over a stream, several requests at a time, which are answered in order.
func (c *worker) stream(ctx context.Context, node int) {
	s, err := c.events(node).AppendStream(ctx)
	if err != nil {
		return
	}
	type call struct {
		req    *runlogv1.AppendEventsRequest
		op     history.Op
		ticket history.Ticket
	}
	var calls []call
	for i := range 3 + c.rng.IntN(12) {
		req, a := c.request()
		req.RequestId = strconv.Itoa(i)
		calls = append(calls, call{req: req, op: history.Op{Appends: []history.Append{a}}})
	}
	under := make(chan call, streamDepth)
	go func() {
		defer close(under)
		for _, one := range calls {
			one.op, one.ticket = c.call(node, one.op)
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
		c.answered(&call.op.Appends[0], resp.GetResults(), resp.GetLastSeq(), status.ErrorProto(resp.GetStatus()))
		c.world.recorder.Return(call.ticket, call.op)
	}
}

// read reads a page of a run's events.
func (c *worker) read(ctx context.Context, node int) {
	r := &history.Read{Run: c.run(), Local: c.rng.IntN(3) == 0}
	req := &runlogv1.ListEventsRequest{RunId: r.Run, PageSize: uint32(1 + c.rng.IntN(50)), Consistency: runlogv1.Consistency_LINEARIZABLE}
	if last := c.last[r.Run]; last > 0 && c.rng.IntN(2) == 0 {
		r.AfterSeq = last - min(last, uint64(c.rng.IntN(5)))
	}
	if r.Local {
		req.Consistency = runlogv1.Consistency_LOCAL
		if c.rng.IntN(2) == 0 {
			r.MinSeq = c.last[r.Run]
		}
	}
	req.AfterSeq, req.MinSeq = r.AfterSeq, r.MinSeq
	op, ticket := c.call(node, history.Op{Read: r})
	resp, err := c.events(node).ListEvents(ctx, req)
	if err != nil {
		op.Read.Outcome = outcome(err)
	} else {
		op.Read.Outcome, op.Read.LastSeq, op.Read.More = history.Outcome{Status: history.Acknowledged}, resp.GetLastSeq(), resp.GetNextAfterSeq() > 0
		for _, e := range resp.GetEvents() {
			op.Read.Events = append(op.Read.Events, history.Seen{
				RunSeq: e.GetRunSeq(), PersistedAt: e.GetPersistedAt().AsTime().UnixNano(), EventID: e.GetEventId(), Key: e.GetIdempotencyKey(),
			})
		}
		c.last[r.Run] = max(c.last[r.Run], resp.GetLastSeq())
	}
	c.world.recorder.Return(ticket, op)
}

// snapshot reads a run's snapshot.
func (c *worker) snapshot(ctx context.Context, node int) {
	r := &history.Snapshot{Run: c.run(), Local: c.rng.IntN(3) == 0}
	req := &runlogv1.GetSnapshotRequest{RunId: r.Run, Consistency: runlogv1.Consistency_LINEARIZABLE}
	if r.Local {
		req.Consistency = runlogv1.Consistency_LOCAL
		r.MinSeq = c.last[r.Run] * uint64(c.rng.IntN(2))
		req.MinSeq = r.MinSeq
	}
	op, ticket := c.call(node, history.Op{Snapshot: r})
	resp, err := c.projections(node).GetSnapshot(ctx, req)
	if err != nil {
		op.Snapshot.Outcome = outcome(err)
	} else if err := seenSnapshot(op.Snapshot, resp.GetSnapshot()); err != nil {
		c.world.fault("snapshot of %s: %v", r.Run, err)
	}
	c.world.recorder.Return(ticket, op)
}

func seenSnapshot(to *history.Snapshot, s *runlogv1.RunSnapshot) error {
	to.Outcome, to.LastEventSeq, to.RunStatus = history.Outcome{Status: history.Acknowledged}, s.GetLastEventSeq(), s.GetStatus().String()
	return unhex(&to.Digest, s.GetDigest())
}

// asked is a window that was closed, for those who ask again.
type asked struct{ from, to time.Time }

// window asks for a window of time that is over for most clocks, or for one that was closed before.
func (c *worker) window(ctx context.Context, node int) {
	to := time.Now().Add(-time.Duration(c.rng.Int64N(int64(5 * time.Second))))
	a := asked{to.Add(-time.Duration(1 + c.rng.Int64N(int64(10*time.Second)))), to}
	if again, ok := c.world.askedBefore(c.rng); ok && c.rng.IntN(2) == 0 {
		a = again
	}
	w := &history.Window{}
	if c.rng.IntN(2) == 0 {
		w.Filter.TenantID = fmt.Sprint("tenant-", c.rng.IntN(tenants))
	}
	c.ask(ctx, node, a, w, uint32(1+c.rng.IntN(200)))
}

// ask asks for a window, page by page, each of another node, and records the whole as one answer.
func (c *worker) ask(ctx context.Context, node int, a asked, w *history.Window, page uint32) {
	req := &runlogv1.QueryEventsRequest{From: timestamppb.New(a.from), To: timestamppb.New(a.to), TenantId: w.Filter.TenantID, PageSize: page}
	w.From, w.To = a.from.UnixNano(), a.to.UnixNano()
	op, ticket := c.call(node, history.Op{Window: w})
	w = op.Window
	for {
		resp, err := c.audits(node).QueryEvents(ctx, req)
		if err != nil {
			w.Outcome, w.Events = outcome(err), nil
			break
		}
		for _, e := range resp.GetEvents() {
			w.Events = append(w.Events, e.GetEventId())
		}
		if next := resp.GetNextPageToken(); next != "" {
			req = proto.CloneOf(req)
			req.PageToken = next
			node = c.rng.IntN(len(c.conns))
			continue
		}
		w.Outcome, w.Count, w.Closed = history.Outcome{Status: history.Acknowledged}, resp.GetCount(), resp.GetClosed()
		w.From, w.To = resp.GetFrom().AsTime().UnixNano(), resp.GetTo().AsTime().UnixNano()
		w.CompleteThrough = resp.GetCompleteThrough().AsTime().UnixNano()
		if err := unhex(&w.Digest, resp.GetDigest()); err != nil {
			c.world.fault("digest of a window: %v", err)
		}
		if w.Closed {
			c.world.remember(a)
		}
		break
	}
	c.world.recorder.Return(ticket, op)
}
