package signals_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

func signals(n *servertest.Node) runlogv1.SignalServiceClient {
	return runlogv1.NewSignalServiceClient(n.Conn)
}

// signal is a signal to the run "run".
func signal(id, signalType string, change ...func(*runlogv1.SendSignalRequest)) *runlogv1.SendSignalRequest {
	req := &runlogv1.SendSignalRequest{RunId: "run", SignalId: id, SignalType: signalType}
	for _, c := range change {
		c(req)
	}
	return req
}

// toStep is the step that a signal is about.
func toStep(id string) func(*runlogv1.SendSignalRequest) {
	return func(req *runlogv1.SendSignalRequest) { req.StepId = id }
}

func send(n *servertest.Node, req *runlogv1.SendSignalRequest) *runlogv1.SendSignalResponse {
	n.T.Helper()
	return sendAs(n.Context(), n, req)
}

func sendAs(ctx context.Context, n *servertest.Node, req *runlogv1.SendSignalRequest) *runlogv1.SendSignalResponse {
	n.T.Helper()
	resp, err := signals(n).SendSignal(ctx, req)
	if err != nil {
		n.T.Fatalf("%s %s: %v", req.SignalId, req.SignalType, err)
	}
	return resp
}

// outcome is a decision in one word.
func outcome(resp *runlogv1.SendSignalResponse) string {
	if resp.Decision == runlogv1.Decision_ACCEPTED {
		return "ACCEPTED"
	}
	return resp.RejectReason
}

// TestSignalsSIG1SIG2SIG7: a decision is one event of the run with the signal, its sender, when
// and why, and the answer has its place. An accepted RETRY_STEP names the attempt that follows.
func TestSignalsSIG1SIG2SIG7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepFailed", servertest.Step("build"), servertest.Attempt(3)))
		pause := send(n, signal("s-1", "PAUSE", func(r *runlogv1.SendSignalRequest) { r.Reason = "the warehouse\nis down" }))
		again := send(n, signal("s-2", "PAUSE"))
		retry := send(n, signal("s-3", "RETRY_STEP", toStep("build")))
		servertest.WantEqual(t, "first pause", outcome(pause), "ACCEPTED")
		servertest.WantEqual(t, "second pause", outcome(again), "ALREADY_PAUSED")
		servertest.WantEqual(t, "retry", outcome(retry), "ACCEPTED")
		servertest.WantEqual(t, "next attempt", retry.NextLogicalAttemptId, 4)
		for i, resp := range []*runlogv1.SendSignalResponse{pause, again, retry} {
			servertest.WantEqual(t, "runSeq", resp.RunSeq, uint64(i+3))
			if resp.Idempotent || resp.Position == "" {
				t.Errorf("answer %v", resp)
			}
		}
		records := n.List("run")[2:]
		types := []string{"SignalAccepted", "SignalRejected", "SignalAccepted"}
		for i, r := range records {
			p := servertest.ParseObject(t, r.GetPayloadJson())
			id := fmt.Sprint("s-", i+1)
			if r.EventType != types[i] || r.GetCausedBySignalId() != id || p["signalId"] != id ||
				p["requestedBy"] != "local" || p["decidedBy"] == "" || p["decidedAt"] == "" {
				t.Errorf("decision %v", r)
			}
		}
		servertest.WantEqual(t, "next attempt in the payload", fmt.Sprint(servertest.ParseObject(t, records[2].GetPayloadJson())["nextLogicalAttemptId"]), "4")
		listed := n.Snapshot("run").Signals
		if len(listed) != 3 || listed[0].GetReason() != "the warehouse\nis down" || !strings.HasPrefix(listed[1].GetReason(), "ALREADY_PAUSED: ") {
			t.Errorf("the snapshot lists %v", listed)
		}
	})
}

// TestRepeatedSignalsSIG4: the same signalId gives the recorded decision, whatever the signal says
// now, at once and after a restart, and however many send it at the same time.
func TestRepeatedSignalsSIG4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		var racing sync.WaitGroup
		answers := make([]*runlogv1.SendSignalResponse, 40)
		for i := range answers {
			racing.Go(func() { answers[i] = send(n, signal("s", []string{"PAUSE", "RESUME"}[i%2])) })
		}
		racing.Wait()
		first := 0
		for _, a := range answers {
			if !a.Idempotent {
				first++
			}
			if a.RunSeq != 2 || outcome(a) != outcome(answers[0]) || a.Position != answers[0].Position {
				t.Errorf("answers %v and %v", a, answers[0])
			}
		}
		servertest.WantEqual(t, "decisions", first, 1)
		n.Append("run", servertest.NewEvent("RunCompleted"))
		n.Restart()
		last := send(n, signal("s", "CANCEL"))
		if !last.Idempotent || outcome(last) != outcome(answers[0]) || last.RunSeq != 2 || last.Position != answers[0].Position {
			t.Errorf("after a restart %v", last)
		}
		servertest.WantEqual(t, "events", len(n.List("run")), 3)
	})
}

// TestRefusedSignalsSIG1: a signal that is not valid, or to a run that does not exist, is refused
// with all of its faults, and stores nothing.
func TestRefusedSignalsSIG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		_, err := signals(n).SendSignal(n.Context(), signal("s", "PAUSE"))
		servertest.Refused(t, err, contract.ReasonRunNotFound)
		_, err = signals(n).SendSignal(n.Context(), &runlogv1.SendSignalRequest{
			RunId: "a|b", SignalType: "pause", StepId: " x", Reason: strings.Repeat("x", 5000),
		})
		e := servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		for _, field := range []string{"runId", "signalId", "signalType", "stepId", "reason"} {
			if e.Fields[field] == "" {
				t.Errorf("no violation of %s in %v", field, status.Convert(err).Message())
			}
		}
		if !strings.Contains(e.Fields["signalType"], "did you mean PAUSE?") {
			t.Errorf("signalType %s", e.Fields["signalType"])
		}
	})
}
