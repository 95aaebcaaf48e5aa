package clienttest_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	"runlog/client/clienttest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// startRun is what the test below is about.
func startRun(ctx context.Context, c *client.Client, run string) error {
	_, err := c.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{{
		EventType: "RunStarted", LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
		TenantId: "acme", ProjectId: "shop", EnvironmentId: "test", PlanId: "nightly", PlanVersion: "1"}}})
	return err
}

// testStartRun requires that a run starts once, although the first answer is lost.
func testStartRun(t *testing.T) {
	srv := clienttest.Start(t)
	c := srv.Client(client.Options{})
	srv.LoseAnswers(1)
	if err := startRun(t.Context(), c, "run"); err != nil {
		t.Fatal(err)
	}
	run, err := c.GetRun(t.Context(), &runlogv1.GetRunRequest{RunId: "run"})
	if err != nil || run.GetLastSeq() != 1 {
		t.Errorf("the run is %v, %v", run, err)
	}
}

// testStartLater does the same in fake time, where waiting costs nothing.
func testStartLater(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := clienttest.Start(t, clienttest.InBubble())
		c := srv.Client(client.Options{})
		srv.Delay(time.Hour) // the next answers come late
		began := time.Now()
		if err := startRun(t.Context(), c, "run"); err != nil || time.Since(began) < time.Hour {
			t.Errorf("the answer is %v, after %v", err, time.Since(began))
		}
	})
}

// A test in a bubble has a simulated network, and hours of a server take milliseconds.
func ExampleInBubble() {
	_ = []testing.InternalTest{{Name: "TestStartLater", F: testStartLater}} // go test runs it
}

// A test of an adapter starts a server, breaks something, and looks at what is stored.
func Example() {
	_ = []testing.InternalTest{{Name: "TestStartRun", F: testStartRun}} // go test runs it
}
