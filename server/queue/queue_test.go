package queue_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestRequestRunQUE1: a request makes the run with its first event, and a worker gets both with its
// lease, with everything that the request said.
func TestRequestRunQUE1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		given, err := structpb.NewStruct(map[string]any{"invoice": "4711", "lines": []any{1.0, true, nil}})
		if err != nil {
			t.Fatal(err)
		}
		got := n.Request("r1", func(r *runlogv1.RequestRunRequest) {
			r.Queue, r.Priority, r.Context = "nightly", proto.Uint32(7), given
			r.EngineType, r.TriggeredBy, r.Labels = proto.String("temporal"), proto.String("anna"), map[string]string{"a": "b"}
		})
		key := sha256.Sum256([]byte("acme|billing|prod|invoices|7|r1"))
		if want := hex.EncodeToString(key[:])[:32]; got.Run.RunId != want || got.Idempotent || got.Disposition != runlogv1.Disposition_READY || got.Position != 1 {
			t.Errorf("answer %v; want run %s", got, want)
		}
		if r := got.Run; r.Status != runlogv1.RunStatus_PENDING || r.LastSeq != 1 || r.GetEngineType() != "temporal" ||
			r.GetTriggeredBy() != "anna" || r.Labels["a"] != "b" || r.PlanRef.PlanId != "invoices" {
			t.Errorf("run %v", r)
		}
		events := n.List(got.Run.RunId)
		const payload = `{"context":{"invoice":"4711","lines":[1,true,null]},"priority":7,"queue":"nightly","runRequestId":"r1"}`
		if len(events) != 1 || events[0].EventType != contract.RunQueued || string(events[0].GetPayloadJson()) != payload || events[0].GetEmittedBy() != "runlog" {
			t.Fatalf("events %v", events)
		}
		leases := n.Lease()
		if len(leases) != 1 {
			t.Fatalf("%d leases", len(leases))
		}
		l := leases[0]
		if l.RunId != got.Run.RunId || l.Fence != 2 || l.StartAttempt != 1 || l.Queue != "nightly" || !proto.Equal(l.Context, given) || l.Run.RunId != l.RunId {
			t.Errorf("lease %v", l)
		}
		if left := time.Until(l.ExpireTime.AsTime()); left > 30*time.Second || left < 0 {
			t.Errorf("the lease expires in %v", left)
		}
		if more := n.Lease(); len(more) != 0 {
			t.Errorf("leased again: %v", more)
		}
	})
}

// TestReleaseLeaseQUE7: a lease is renewed, and released once. The run that was started holds its
// slot, and writes under its fence alone.
func TestReleaseLeaseQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		run := n.Request("r1").Run.RunId
		l := n.Lease()[0]
		renewed, err := n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: run, Fence: l.Fence, Ttl: durationpb.New(time.Hour)})
		if err != nil || !renewed.ExpireTime.AsTime().After(l.ExpireTime.AsTime()) {
			t.Fatalf("renewed until %v, %v; before until %v", renewed, err, l.ExpireTime)
		}
		release := func(fence uint64, outcome runlogv1.LeaseOutcome_Value) (*runlogv1.ReleaseLeaseResponse, error) {
			return n.Queues().ReleaseLease(n.Context(), &runlogv1.ReleaseLeaseRequest{RunId: run, Fence: fence, Outcome: outcome})
		}
		_, err = release(l.Fence+1, runlogv1.LeaseOutcome_STARTED)
		servertest.Refused(t, err, contract.ReasonLeaseLost)
		for again := range 2 {
			got, err := release(l.Fence, runlogv1.LeaseOutcome_STARTED)
			if err != nil || got.State != runlogv1.QueuedRunState_RUNNING || got.Idempotent != (again > 0) {
				t.Fatalf("release: %v, %v", got, err)
			}
		}
		_, err = release(l.Fence, runlogv1.LeaseOutcome_FAILED)
		servertest.Refused(t, err, contract.ReasonLeaseLost)
		_, err = n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: run, Fence: l.Fence})
		servertest.Refused(t, err, contract.ReasonLeaseLost)
	})
}

// TestLeaseIsCurrentQUE6: a lease shows the run as it is, not as it was requested.
func TestLeaseIsCurrentQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("same", func(r *runlogv1.RequestRunRequest) { r.RunId, r.Queue = "same", "a" })
		n.Request("named", func(r *runlogv1.RequestRunRequest) { r.RunId, r.Queue = "named", "b" })
		n.Request("noted", func(r *runlogv1.RequestRunRequest) { r.RunId, r.Queue = "noted", "c" })
		_, err := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: "named", EngineRunRef: "engine/7"})
		if err != nil {
			t.Fatal(err)
		}
		n.Append("noted", servertest.NewEvent("Noted", func(e *runlogv1.EventWrite) {
			e.TenantId, e.ProjectId, e.EnvironmentId, e.PlanId, e.PlanVersion = "acme", "billing", "prod", "invoices", "7"
		}))
		for _, l := range n.Lease(func(r *runlogv1.LeaseRunsRequest) { r.Max = 3 }) {
			want := map[string]*runlogv1.Run{
				"same": {LastSeq: 1}, "named": {LastSeq: 1, EngineRunRef: proto.String("engine/7")}, "noted": {LastSeq: 2},
			}[l.RunId]
			if l.Run.LastSeq != want.LastSeq || l.Run.GetEngineRunRef() != want.GetEngineRunRef() {
				t.Errorf("lease of %s shows %v", l.RunId, l.Run)
			}
			read, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: l.RunId})
			if err != nil {
				t.Fatal(err)
			}
			servertest.WantProto(t, "run of the lease of "+l.RunId, l.Run, read.Run)
		}
	})
}
