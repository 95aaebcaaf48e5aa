package runner_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/client"
	"runlog/engine/executor"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// dying returns options of a client that ends its process at the append of its nth event, before
// the append takes effect or after. It counts events: how many of them share an append depends on
// the scheduler.
func dying(nth int, late bool, kill func()) client.Options {
	var mu sync.Mutex
	return client.Options{MinBackoff: 5 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, name string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if strings.HasSuffix(name, "/AppendEvents") {
				mu.Lock()
				last := nth > 0
				nth -= len(req.(*runlogv1.AppendEventsRequest).GetEvents())
				last = last && nth <= 0
				mu.Unlock()
				if last && late {
					_ = invoke(ctx, name, req, reply, cc, opts...) // Its answer is lost.
				}
				if last {
					go kill()
					<-ctx.Done()
					return ctx.Err()
				}
			}
			return invoke(ctx, name, req, reply, cc, opts...)
		},
	)}}
}

// TestKilledRetriesENG2 kills the runner before and after each of its events, in a run with a
// RETRY_STEP and a SKIP_STEP. Another one goes on: each attempt is there once, no step that has
// succeeded is executed again, and all runs end alike.
func TestKilledRetriesENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testKilledRetriesENG2)
}

func testKilledRetriesENG2(t *testing.T) {
	const events = 13 // of a runner that is not killed
	b := newBed(t)
	b.ttl = time.Second
	step := 1
	if testing.Short() {
		step = 5
	}
	turns := make(chan struct{}, 4)
	var all sync.WaitGroup
	for i := 0; i < 2*events; i += step {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			b.killedRetry(t, i)
		})
	}
	all.Wait()
}

// killedRetry is one round: the first runner is killed at one of its events.
func (b *bed) killedRetry(t *testing.T, round int) {
	c := b.srv.Client(client.Options{})
	do := func(ctx context.Context, task executor.Task) error {
		for e, err := range c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: task.RunID}) {
			if err == nil && e.GetEventType() == "StepCompleted" && e.GetStepId() == task.StepID {
				t.Errorf("round %d: step %s has succeeded, and is executed again", round, task.StepID)
			}
		}
		if task.StepID == "A" && task.LogicalAttempt == 1 {
			return executor.Fail("BROKEN", "by hand")
		}
		return nil
	}
	var first *process
	o := b.scripted(t, b.srv.Client(client.Options{}), do)
	o.Queue = fmt.Sprint("round-", round)
	api, next, begun, killed := b.serve(t, o), o, make(chan struct{}), make(chan struct{})
	next.Client = b.srv.Client(client.Options{MinBackoff: 5 * time.Millisecond})
	o.Client = b.srv.Client(dying(1+round/2, round%2 == 0, func() {
		<-begun
		first.kill()
		b.run(t, next)
		close(killed)
	}))
	first = b.run(t, o)
	close(begun)
	steps := fmt.Sprintf(`{"step_key":"A","input":%d},{"step_key":"B","depends_on":["A"]},{"step_key":"W","step_type":"compute",%s},{"step_key":"D","depends_on":["W"]}`, round, contractB)
	id := api.request(steps)
	b.operate(t, c, id)
	select {
	case <-killed: // The last kill comes with the end of the run.
	case <-time.After(bubble.Limit):
		t.Errorf("round %d: the runner was not killed", round)
	}
	got := b.story(t, id)
	for _, want := range []string{"StepFailed A 1", "StepStarted A 2", "StepCompleted A 2", "StepSkipped B 1", "StepCompleted B 2", "StepWaitingForAttestation W 1",
		"StepSkipped W 2", "StepSkipped D 1", "RunResumed", "RunCompleted"} {
		n := 0
		for _, text := range got {
			if strings.HasPrefix(text, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("round %d: %d times %s among\n%s", round, n, want, strings.Join(got, "\n"))
		}
	}
	b.clean(t, id)
}

// operate does what operators do with a run, until it has ended: they retry what has failed, skip
// what waits, and resume.
func (b *bed) operate(t *testing.T, c *client.Client, runID string) {
	t.Helper()
	send := func(signalType, step string) {
		// It may come too late. A repeat changes nothing.
		if _, err := c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: runID, SignalId: signalType, SignalType: signalType, StepId: step}); err != nil {
			t.Error(err)
		}
	}
	for deadline := time.Now().Add(bubble.Limit); ; time.Sleep(20 * time.Millisecond) {
		res, err := c.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: runID})
		if err != nil || time.Now().After(deadline) {
			t.Error(err, b.story(t, runID))
			return
		}
		s := res.GetSnapshot()
		if s.GetStatus() == runlogv1.RunStatus_COMPLETED || s.GetStatus() == runlogv1.RunStatus_FAILED {
			return
		}
		is := func(step string, status runlogv1.StepStatus_Value) bool {
			return slices.ContainsFunc(s.GetSteps(), func(x *runlogv1.StepSnapshot) bool { return x.GetStepId() == step && x.GetStatus() == status })
		}
		if is("A", runlogv1.StepStatus_FAILED) && is("B", runlogv1.StepStatus_SKIPPED) {
			send("RETRY_STEP", "A")
		}
		if is("W", runlogv1.StepStatus_WAITING_FOR_ATTESTATION) {
			send("SKIP_STEP", "W")
		}
		if is("W", runlogv1.StepStatus_SKIPPED) && s.GetStatus() == runlogv1.RunStatus_WAITING {
			send("RESUME", "")
		}
	}
}
