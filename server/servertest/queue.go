package servertest

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// Queues returns a client of QueueService.
func (n *Node) Queues() runlogv1.QueueServiceClient { return runlogv1.NewQueueServiceClient(n.Conn) }

// RunRequest asks for a run in the queue default of acme/billing/prod.
func RunRequest(id string, change ...func(*runlogv1.RequestRunRequest)) *runlogv1.RequestRunRequest {
	r := &runlogv1.RequestRunRequest{
		RunRequestId: id, TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod",
		PlanRef: &runlogv1.PlanRef{PlanId: "invoices", PlanVersion: "7"},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

// Request requests a run as RunRequest describes it.
func (n *Node) Request(id string, change ...func(*runlogv1.RequestRunRequest)) *runlogv1.RequestRunResponse {
	n.T.Helper()
	resp, err := n.Queues().RequestRun(n.Context(), RunRequest(id, change...))
	if err != nil {
		n.T.Fatalf("request %s: %v", id, err)
	}
	return resp
}

// Lease leases runs of acme, and waits a while if there is none.
func (n *Node) Lease(change ...func(*runlogv1.LeaseRunsRequest)) []*runlogv1.Lease {
	n.T.Helper()
	req := &runlogv1.LeaseRunsRequest{TenantId: "acme", Worker: "w1"}
	for _, c := range change {
		c(req)
	}
	resp, err := n.Queues().LeaseRuns(n.Context(), req)
	if err != nil {
		n.T.Fatalf("lease: %v", err)
	}
	return resp.Leases
}

// RunEnd is an event that ends a run of RunRequest.
func RunEnd(eventType string) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		EventType: eventType, TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", PlanId: "invoices", PlanVersion: "7",
		LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
	}
}

// AtMost bounds how many runs are leased.
func AtMost(n uint32) func(*runlogv1.LeaseRunsRequest) {
	return func(r *runlogv1.LeaseRunsRequest) { r.Max = n }
}

// Named gives the requested run an id.
func Named(runID string) func(*runlogv1.RequestRunRequest) {
	return func(r *runlogv1.RequestRunRequest) { r.RunId = runID }
}
