package signals_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// decisions are the types that only calls which decide store.
var decisions = []string{"SignalAccepted", "SignalRejected", "StepAttested", "StepAttestationApproved", "RunQueued"}

// decided is an event of a decision, as if another had made it.
func decided(run, eventType string) *runlogv1.EventWrite {
	e := servertest.NewEvent(eventType, servertest.Payload(`{"signalId":"x","signalType":"RESUME","attestedBy":"token:jed","outcome":"SUCCESS"}`))
	e.RunId, e.EmittedBy = run, "token:jed"
	if contract.ScopeOf(eventType) == contract.ScopeStep {
		e.StepId = "b"
	}
	return e
}

// appends are the calls that store events of a producer. Each appends one in a run of its own,
// behind one that is no decision, if the call takes two.
func appends(n *servertest.Node) map[string]func(ctx context.Context, run string, e *runlogv1.EventWrite) error {
	noted := func(run string) *runlogv1.EventWrite {
		e := servertest.NewEvent("Noted")
		e.RunId = run
		return e
	}
	request := func(run string, e *runlogv1.EventWrite) *runlogv1.AppendEventsRequest {
		return &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{noted(run), e}}
	}
	return map[string]func(ctx context.Context, run string, e *runlogv1.EventWrite) error{
		"AppendEvents": func(ctx context.Context, run string, e *runlogv1.EventWrite) error {
			_, err := n.Events.AppendEvents(ctx, request(run, e))
			return err
		},
		"BatchAppend": func(ctx context.Context, run string, e *runlogv1.EventWrite) error {
			resp, err := n.Events.BatchAppend(ctx, &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{request(run, e)}})
			if err != nil {
				return err
			}
			return status.ErrorProto(resp.Outcomes[0].Status)
		},
		"AppendStream": func(ctx context.Context, run string, e *runlogv1.EventWrite) error {
			stream, err := n.Events.AppendStream(ctx)
			if err != nil {
				return err
			}
			if err := stream.Send(request(run, e)); err != nil {
				return err
			}
			resp, err := stream.Recv()
			if err != nil {
				return err
			}
			return status.ErrorProto(resp.Status)
		},
		"CreateRun": func(ctx context.Context, run string, e *runlogv1.EventWrite) error {
			_, err := runlogv1.NewRunServiceClient(n.Conn).CreateRun(ctx, &runlogv1.CreateRunRequest{
				Run: &runlogv1.Run{RunId: run, TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
					PlanRef: &runlogv1.PlanRef{PlanId: "plan", PlanVersion: "1"}},
				Events: []*runlogv1.EventWrite{noted(run), e},
			})
			return err
		},
		"ReleaseLease": func(ctx context.Context, run string, e *runlogv1.EventWrite) error {
			queues := runlogv1.NewQueueServiceClient(n.Conn)
			if _, err := queues.RequestRun(ctx, &runlogv1.RequestRunRequest{
				RunRequestId: run, RunId: run, TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod", Queue: run,
				PlanRef: &runlogv1.PlanRef{PlanId: "plan", PlanVersion: "1"},
			}); err != nil {
				return err
			}
			leases, err := queues.LeaseRuns(ctx, &runlogv1.LeaseRunsRequest{TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod", Queue: run, Worker: "w", Max: 1})
			if err != nil {
				return err
			}
			_, err = queues.ReleaseLease(ctx, &runlogv1.ReleaseLeaseRequest{
				RunId: run, Fence: leases.Leases[0].Fence, Outcome: runlogv1.LeaseOutcome_STARTED, Events: []*runlogv1.EventWrite{noted(run), e},
			})
			return err
		},
	}
}

// TestReservedEventTypesSEC9: an append of a decision is refused on every call that appends, for
// every role but decider, and stores nothing of its request. The access log has the refusal. A
// decider may append decisions, and so may a caller of a node without access control.
func TestReservedEventTypesSEC9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		every := []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER, runlogv1.Role_OPERATOR, runlogv1.Role_ADMIN, runlogv1.Role_ATTESTER}
		forger := n.Bearing(n.Token(root, "forger", []string{"*"}, every...))
		decider := n.Bearing(n.Token(root, "decider", []string{"tenant"}, runlogv1.Role_PRODUCER, runlogv1.Role_DECIDER))
		for call, do := range appends(n) {
			for _, eventType := range decisions {
				run := call + "-" + eventType
				err := do(forger, run, decided(run, eventType))
				e := servertest.Refused(t, err, contract.ReasonReservedEventType)
				if e.Metadata["event_type"] != eventType || e.Code != codes.PermissionDenied {
					t.Errorf("%s of %s: %v", call, eventType, e)
				}
				if list, err := n.Events.ListEvents(forger, &runlogv1.ListEventsRequest{RunId: run}); err == nil && len(list.Events) > 0 {
					for _, e := range list.Events {
						if e.EventType != "RunQueued" || e.RunSeq != 1 || call != "ReleaseLease" {
							t.Errorf("%s of %s has stored %s", call, eventType, e.EventType)
						}
					}
				}
				run += "-decided"
				if err := do(decider, run, decided(run, eventType)); err != nil {
					t.Errorf("%s of %s by a decider: %v", call, eventType, err)
				}
			}
		}
		open := servertest.Start(t)
		for _, eventType := range decisions {
			if _, err := open.TryAppend("run", decided("run", eventType)); err != nil {
				t.Errorf("%s without access control: %v", eventType, err)
			}
		}
	})
}
