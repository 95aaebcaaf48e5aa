package workload

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

// read reads a page of a run's events.
func (w *worker) read(ctx context.Context, node int) {
	r := &history.Read{Run: w.run(), Local: w.rng.IntN(3) == 0}
	req := &runlogv1.ListEventsRequest{RunId: r.Run, PageSize: uint32(1 + w.rng.IntN(50)), Consistency: runlogv1.Consistency_LINEARIZABLE}
	if last := w.last[r.Run]; last > 0 && w.rng.IntN(2) == 0 {
		r.AfterSeq = last - min(last, uint64(w.rng.IntN(5)))
	}
	if r.Local {
		req.Consistency = runlogv1.Consistency_LOCAL
		if w.rng.IntN(2) == 0 {
			r.MinSeq = w.last[r.Run]
		}
	}
	req.AfterSeq, req.MinSeq = r.AfterSeq, r.MinSeq
	op, ticket := w.call(node, history.Op{Read: r})
	resp, err := w.events(node).ListEvents(ctx, req)
	if err != nil {
		op.Read.Outcome = outcome(err)
	} else {
		op.Read.Outcome, op.Read.LastSeq, op.Read.More = history.Outcome{Status: history.Acknowledged}, resp.GetLastSeq(), resp.GetNextAfterSeq() > 0
		for _, e := range resp.GetEvents() {
			op.Read.Events = append(op.Read.Events, history.Seen{
				RunSeq: e.GetRunSeq(), PersistedAt: e.GetPersistedAt().AsTime().UnixNano(), EventID: e.GetEventId(), Key: recordKey(e),
			})
		}
		w.last[r.Run] = max(w.last[r.Run], resp.GetLastSeq())
	}
	w.clients.recorder.Return(ticket, op)
}

// snapshot reads a run's snapshot.
func (w *worker) snapshot(ctx context.Context, node int) {
	r := &history.Snapshot{Run: w.run(), Local: w.rng.IntN(3) == 0}
	req := &runlogv1.GetSnapshotRequest{RunId: r.Run, Consistency: runlogv1.Consistency_LINEARIZABLE}
	if r.Local {
		req.Consistency = runlogv1.Consistency_LOCAL
		r.MinSeq = w.last[r.Run] * uint64(w.rng.IntN(2))
		req.MinSeq = r.MinSeq
	}
	op, ticket := w.call(node, history.Op{Snapshot: r})
	resp, err := w.projections(node).GetSnapshot(ctx, req)
	if err != nil {
		op.Snapshot.Outcome = outcome(err)
	} else if err := seenSnapshot(op.Snapshot, resp.GetSnapshot()); err != nil {
		w.clients.opts.Broken("snapshot of %s: %v", r.Run, err)
	}
	w.clients.recorder.Return(ticket, op)
}

func seenSnapshot(to *history.Snapshot, s *runlogv1.RunSnapshot) error {
	to.Outcome, to.LastEventSeq, to.RunStatus = history.Outcome{Status: history.Acknowledged}, s.GetLastEventSeq(), s.GetStatus().String()
	return unhex(&to.Digest, s.GetDigest())
}

// window queries a time window that is over for most clocks, or one that was closed before.
func (w *worker) window(ctx context.Context, node int) {
	to := time.Now().Add(-time.Duration(w.rng.Int64N(int64(5 * time.Second))))
	a := asked{to.Add(-time.Duration(1 + w.rng.Int64N(int64(10*time.Second)))), to}
	if again, ok := w.clients.askedBefore(w.rng); ok && w.rng.IntN(2) == 0 {
		a = again
	}
	win := &history.Window{}
	if w.rng.IntN(2) == 0 {
		win.Filter.TenantID = fmt.Sprint("tenant-", w.rng.IntN(tenants))
	}
	w.ask(ctx, node, a, win, uint32(1+w.rng.IntN(200)))
}

// ask queries a window page by page, each at another node, and records the pages as one answer.
func (w *worker) ask(ctx context.Context, node int, a asked, win *history.Window, page uint32) {
	req := &runlogv1.QueryEventsRequest{From: timestamppb.New(a.from), To: timestamppb.New(a.to), TenantId: win.Filter.TenantID, PageSize: page}
	win.From, win.To = a.from.UnixNano(), a.to.UnixNano()
	op, ticket := w.call(node, history.Op{Window: win})
	for {
		resp, err := w.audits(node).QueryEvents(ctx, req)
		if err != nil {
			win.Outcome, win.Events = outcome(err), nil
			break
		}
		for _, e := range resp.GetEvents() {
			win.Events = append(win.Events, e.GetEventId())
		}
		if next := resp.GetNextPageToken(); next != "" {
			req = proto.CloneOf(req)
			req.PageToken = next
			node = w.rng.IntN(len(w.conns))
			continue
		}
		win.Outcome, win.Count, win.Closed = history.Outcome{Status: history.Acknowledged}, resp.GetCount(), resp.GetClosed()
		win.From, win.To = resp.GetFrom().AsTime().UnixNano(), resp.GetTo().AsTime().UnixNano()
		win.CompleteThrough = resp.GetCompleteThrough().AsTime().UnixNano()
		if err := unhex(&win.Digest, resp.GetDigest()); err != nil {
			w.clients.opts.Broken("digest of a window: %v", err)
		}
		if win.Closed {
			w.clients.remember(a)
		}
		break
	}
	w.clients.recorder.Return(ticket, op)
}
