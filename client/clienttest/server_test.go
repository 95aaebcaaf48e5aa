package clienttest

import (
	"testing"
	"time"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

func event(eventType, step string) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{EventType: eventType, StepId: step, LogicalAttemptId: 1, EngineAttemptId: 1,
		TenantId: "acme", ProjectId: "shop", EnvironmentId: "test", PlanId: "nightly", PlanVersion: "1", EmittedAt: timestamppb.Now()}
}

func TestStart(t *testing.T) {
	for _, n := range []int{1, 3} {
		begun := time.Now()
		srv := Start(t, Nodes(n))
		t.Logf("%d nodes are ready after %v", n, time.Since(begun))
		begun = time.Now()
		c := srv.Client(client.Options{})
		_, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "r", Events: []*runlogv1.EventWrite{event("RunStarted", "")}})
		t.Log(err, time.Since(begun))
		if n == 3 {
			t.Log(srv.Leader(), srv.StepDown(), srv.Leader(), time.Since(begun))
			begun = time.Now()
			srv.Restart(srv.Leader())
			t.Log(time.Since(begun))
		}
		begun = time.Now()
		srv.Restart()
		t.Log(time.Since(begun))
		begun = time.Now()
		srv.close()
		t.Log("close", time.Since(begun))
	}
}
