package appender_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestAppenderKeepsOrder (APP-1, APP-10): through lost answers, duplicates, refusals, a transfer of
// the leadership and the loss of its node, each event is stored once and in the order of the calls.
func TestAppenderKeepsOrder(t *testing.T) {
	bubble.Test(t, testAppenderKeepsOrder)
}

func testAppenderKeepsOrder(t *testing.T) {
	srv := clienttest.Start(t, clienttest.InBubble(), clienttest.Nodes(3))
	c := srv.Client(client.Options{MinBackoff: 5 * time.Millisecond, MaxBackoff: 100 * time.Millisecond})
	a, err := c.NewAppender(client.AppenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	const runs, calls = 6, 60
	var writers sync.WaitGroup
	var mu sync.Mutex
	progress := 0
	reached := sync.NewCond(&mu)
	for i := range runs {
		run := &events.Run{ID: fmt.Sprint("run-", i), Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
		writers.Go(func() {
			for n := range calls {
				e, err := run.StepCompleted(fmt.Sprintf("step-%03d", n), events.Attempt{Logical: 1, Engine: 1}, nil)
				if err == nil {
					_, err = a.Append(ctx, e)
				}
				if err != nil {
					t.Errorf("run %d, call %d: %v", i, n, err)
				}
				mu.Lock()
				progress++
				mu.Unlock()
				reached.Broadcast()
			}
		})
	}
	for at, fault := range []func(){
		func() { srv.LoseAnswers(3) },
		func() { srv.DuplicateRequests(true) },
		func() { srv.StepDown() },
		func() { srv.Refuse(client.ReasonOverloaded, 2) },
		func() { l := srv.Leader(); srv.Down(l); srv.Up(l) },
		func() { srv.Refuse(client.ReasonNoLeader, 5) },
	} {
		mu.Lock()
		for progress < (at+1)*runs*calls/8 && !t.Failed() {
			reached.Wait()
		}
		mu.Unlock()
		fault()
	}
	writers.Wait()
	if err := a.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for i := range runs {
		n := 0
		for e, err := range c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: fmt.Sprint("run-", i)}) {
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("step-%03d", n); e.GetStepId() != want || e.GetRunSeq() != uint64(n+1) {
				t.Errorf("run %d: event %d is %s, want %s", i, e.GetRunSeq(), e.GetStepId(), want)
			}
			n++
		}
		if n != calls {
			t.Errorf("run %d has %d events, want %d", i, n, calls)
		}
	}
}

// TestAppenderLosesALease (QUE-8): a producer whose run was taken over gets LEASE_LOST, which no
// retry changes, and stores nothing.
func TestAppenderLosesALease(t *testing.T) {
	bubble.Test(t, testAppenderLosesALease)
}

func testAppenderLosesALease(t *testing.T) {
	srv := clienttest.Start(t, clienttest.InBubble())
	a, err := srv.Client(client.Options{}).NewAppender(client.AppenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run := &events.Run{ID: "run-1", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
	e, err := run.Started(events.Attempt{Logical: 1, Engine: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fence := uint64(7) // the run was never leased: its fence is 0
	_, err = a.AppendRequest(t.Context(), &runlogv1.AppendEventsRequest{RunId: run.ID, Events: []*runlogv1.EventWrite{e}, Fence: &fence})
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Reason != client.ReasonLeaseLost || refused.Unknown() || !refused.Final() {
		t.Errorf("got %v", err)
	}
	if _, err := a.Append(t.Context(), e); err != nil {
		t.Errorf("without a fence: %v", err)
	}
}
