package client

import (
	"context"

	runlogv1 "runlog/proto/runlog/v1"
)

// refetchBatch is how many events that were read again are told at a time.
const refetchBatch = 256

// pass takes a watch of events past a hole in front of these events (WATCH-5). A hole is never
// taken for loss: what the run has is read again, behind the last event that was told and up to
// where its snapshot is. With the snapshot comes the token that is behind these events; what comes
// before it has the one in front of the hole.
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
