package served_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/bench/target"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestConsumer: a consumer returns what is stored, and ends when it is closed, also in a call that
// waits.
func TestConsumer(t *testing.T) {
	bubble.Test(t, testConsumer)
}

func testConsumer(t *testing.T) {
	n := servertest.Start(t)
	r, err := target.Connect(n.Server.Addresses().GRPC, 1, n.Dialer())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	_, err = r.Append(t.Context(), &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{{
		EventType: "RunStarted", TenantId: "t", ProjectId: "p", EnvironmentId: "e", PlanId: "plan", PlanVersion: "1",
		LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(), ContractVersion: "2.0.0",
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{}`)},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Deliver(t.Context(), &runlogv1.CreateSubscriptionRequest{
		Start:    &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var runs []string
	c, err := s.Consume(func(e *runlogv1.EventRecord) { runs = append(runs, e.GetRunId()) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := c.Next(ctx); n != 1 || err != nil || len(runs) != 1 || runs[0] != "run" {
		t.Errorf("%d events, of runs %v: %v", n, runs, err)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := c.Next(ctx); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if <-ended; ctx.Err() != nil {
		t.Error("a call does not end with its consumer")
	}
	if n, err := c.Next(ctx); n != 0 || err == nil {
		t.Errorf("after the end: %d events, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
