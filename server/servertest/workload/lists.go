package workload

import (
	"context"
	"fmt"
	"strings"

	runlogv1 "runlog/proto/runlog/v1"
)

// listNew creates a run, and then lists it at another node: the run is in the list once CreateRun
// has answered (READ-6).
func (w *worker) listNew(ctx context.Context, node int) {
	id := fmt.Sprintf("listed-%d", w.clients.next())
	made := &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
		RunId: id, TenantId: tenantOf(id), ProjectId: "project", EnvironmentId: "prod", Labels: map[string]string{"listed": id},
		PlanRef: &runlogv1.PlanRef{Uri: "s3://plans/1", Sha256: strings.Repeat("a", 64), SchemaVersion: "1", PlanId: "plan", PlanVersion: "1"},
	}}
	if _, err := runlogv1.NewRunServiceClient(w.conns[node]).CreateRun(ctx, made); err != nil {
		return
	}
	reader := w.rng.IntN(len(w.conns))
	req := &runlogv1.ListRunsRequest{RunIdPrefix: id, PageSize: 2}
	if w.rng.IntN(2) == 0 {
		req = &runlogv1.ListRunsRequest{Labels: []string{"listed=" + id}, TenantId: tenantOf(id), PageSize: 2}
	}
	list, err := runlogv1.NewRunServiceClient(w.conns[reader]).ListRuns(ctx, req)
	if err != nil {
		return
	}
	for _, r := range list.GetRuns() {
		if r.GetRunId() == id {
			return
		}
	}
	w.clients.opts.Broken("fresh list: %s has acknowledged run %s, and the list of %s lacks it", w.clients.opts.Nodes[node], id, w.clients.opts.Nodes[reader])
}
