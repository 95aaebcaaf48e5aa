package workload

import (
	"context"
	"fmt"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// watchRun watches one run after another, over as many connections as it takes, and records every
// watermark.
func (w *worker) watchRun(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		subscriber, run, after := fmt.Sprintf("%s/watch-%d", w.host, n), w.run(), uint64(0)
		watching, cancel := context.WithTimeout(ctx, w.clients.opts.RunLives)
		for watching.Err() == nil {
			after = w.watchOnce(watching, subscriber, run, after)
			pause(watching, 100*time.Millisecond)
		}
		cancel()
	}
}

// watchOnce watches a run over one connection, and returns the last watermark.
func (w *worker) watchOnce(ctx context.Context, subscriber, run string, after uint64) uint64 {
	ctx, cancel := context.WithTimeout(ctx, time.Second+time.Duration(w.rng.Int64N(int64(5*time.Second))))
	defer cancel()
	node := w.rng.IntN(len(w.conns))
	s, err := w.projections(node).WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: run, AfterSeq: after, View: runlogv1.WatchView_WATERMARK})
	for err == nil {
		var resp *runlogv1.WatchRunResponse
		if resp, err = s.Recv(); err != nil {
			break
		}
		mark := resp.GetWatermark()
		if caught := resp.GetCaughtUp(); caught != nil {
			mark = caught.GetWatermark()
		}
		if beat := resp.GetHeartbeat(); beat != nil {
			mark = beat.GetWatermark()
		}
		if mark.GetLastEventSeq() > 0 {
			w.clients.recorder.Mark(subscriber, w.clients.opts.Nodes[node], run, mark.GetLastEventSeq())
			after = max(after, mark.GetLastEventSeq())
		}
	}
	return after
}

// watchRuns watches all runs of a tenant, and resumes where the last connection ended.
func (w *worker) watchRuns(ctx context.Context) {
	token, tenant := "", fmt.Sprint("tenant-", w.rng.IntN(tenants))
	for n := 0; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
		token = w.watchTenant(ctx, fmt.Sprintf("%s/tenant-%d", w.host, n), tenant, token)
		if token == "" {
			n++ // a new subscriber: the next node may be behind the last one
		}
	}
}

func (w *worker) watchTenant(ctx context.Context, subscriber, tenant, token string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second+time.Duration(w.rng.Int64N(int64(5*time.Second))))
	defer cancel()
	node := w.rng.IntN(len(w.conns))
	s, err := w.projections(node).WatchRuns(ctx, &runlogv1.WatchRunsRequest{TenantId: tenant, ResumeToken: token, IncludeExisting: token == ""})
	for err == nil {
		var resp *runlogv1.WatchRunsResponse
		if resp, err = s.Recv(); err != nil {
			break
		}
		if t := resp.GetResumeToken(); t != "" {
			token = t
		}
		if mark := resp.GetWatermark(); mark.GetLastEventSeq() > 0 {
			w.clients.recorder.Mark(subscriber, w.clients.opts.Nodes[node], mark.GetRunId(), mark.GetLastEventSeq())
		}
	}
	if outcome(err).Reason == "RESUME_TOKEN_INVALID" {
		return ""
	}
	return token
}
