package client

import (
	"context"

	runlogv1 "runlog/proto/runlog/v1"
)

// refetchBatch is how many re-read events are delivered at a time.
const refetchBatch = 256

// pass continues a watch of events past a hole before these events (WATCH-5). A hole is never taken
// for loss: pass reads the run again, from the last delivered event up to its snapshot. The
// snapshot comes with the token after these events; earlier messages have the token before the
// hole.
func (w *watch) pass(ctx context.Context, behind []*runlogv1.EventRecord, token string) bool {
	run := w.req.GetRunId()
	stale := &runlogv1.Watermark{RunId: run, LastEventSeq: w.last, Stale: true}
	if !w.hand(&runlogv1.WatchRunResponse{ResumeToken: w.token, Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: stale}}, nil) {
		return false
	}
	res, err := w.c.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: run, MinSeq: behind[len(behind)-1].GetRunSeq()})
	if err != nil {
		return w.hand(nil, err)
	}
	watermark := res.GetSnapshot().GetLastEventSeq()
	var batch []*runlogv1.EventRecord
	tell := func() bool {
		events := &runlogv1.EventBatch{Events: batch}
		batch = nil
		if len(events.GetEvents()) == 0 {
			return true
		}
		w.reached(events.GetEvents()[len(events.GetEvents())-1].GetRunSeq())
		return w.hand(&runlogv1.WatchRunResponse{ResumeToken: w.token, Kind: &runlogv1.WatchRunResponse_Events{Events: events}}, nil)
	}
	for e, err := range w.c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: run, AfterSeq: w.last, PayloadForm: w.req.GetPayloadForm()}) {
		if err != nil {
			return w.hand(nil, err)
		}
		if e.GetRunSeq() > watermark {
			break
		}
		if batch = append(batch, e); len(batch) == refetchBatch && !tell() {
			return false
		}
	}
	if !tell() {
		return false
	}
	w.token = token
	return w.hand(&runlogv1.WatchRunResponse{ResumeToken: token, Kind: &runlogv1.WatchRunResponse_Snapshot{Snapshot: res.GetSnapshot()}}, nil)
}
