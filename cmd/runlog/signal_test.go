package main

import (
	"context"
	"strings"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeSignals accepts what the test lets it, and keeps the last signal.
type fakeSignals struct {
	runlogv1.UnimplementedSignalServiceServer

	last     *runlogv1.SendSignalRequest
	attested *runlogv1.AttestStepRequest
}

func (f *fakeSignals) AttestStep(_ context.Context, req *runlogv1.AttestStepRequest) (*runlogv1.AttestStepResponse, error) {
	f.attested = req
	if req.StepId == "own" {
		return nil, asStatus(&contract.Error{Reason: contract.ReasonPermissionDenied, Message: `"token:jed" has requested or started run "run-1"`})
	}
	if req.StepId == "ready" {
		return nil, asStatus(&contract.Error{Reason: contract.ReasonStepNotWaiting, Message: `attempt 1 of step "ready" is not WAITING_FOR_ATTESTATION`})
	}
	if req.StepId == "shared" {
		return &runlogv1.AttestStepResponse{RunSeq: 7, LogicalAttemptId: 1, Idempotent: req.AttestationId == "a-1", Position: "P",
			Approvals: 1, ApprovalsNeeded: 3}, nil
	}
	return &runlogv1.AttestStepResponse{RunSeq: 7, LogicalAttemptId: 2, Idempotent: req.AttestationId == "a-1", Position: "P"}, nil
}

// TestGoldenAttestSEC10 shows what attesters see.
func TestGoldenAttestSEC10(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	fake := &fakeServer{}
	for _, args := range []string{
		"attest run-1 B --notes done --artifact y=s3://b/y --id a-0", "attest run-1 B --id a-1", "attest run-1 B --failed --by token:jed --attempt 2 --id a-2 -o json",
		"attest run-1 ready --id a-3", "attest run-1 own --id a-4", "attest run-1 shared --id a-5",
		"attest run-1 shared --id a-5 -o json", "attest run-1 shared --id a-1", "attest run-1", "attest run-1 B --artifact y", "attest run-1 B --by=", "attest --help",
	} {
		s := &invocation{args: strings.Fields(args)}
		s.do(t.Context(), t, fake)
		got.WriteString(s.text())
		if strings.Contains(args, "--failed") {
			req := fake.attested
			if req.Outcome != runlogv1.AttestationOutcome_FAIL || req.AttestedBy != "token:jed" || req.GetLogicalAttemptId() != 2 || req.RunId != "run-1" || req.StepId != "B" {
				t.Errorf("sent %v", req)
			}
		}
	}
	golden(t, "attest", got.String())
}

func (f *fakeSignals) SendSignal(_ context.Context, req *runlogv1.SendSignalRequest) (*runlogv1.SendSignalResponse, error) {
	f.last = req
	resp := &runlogv1.SendSignalResponse{Decision: runlogv1.Decision_ACCEPTED, RunSeq: 7, Position: "P"}
	switch {
	case req.RunId == "run-9":
		return nil, asStatus(&contract.Error{Reason: contract.ReasonRunNotFound, Message: `run "run-9" does not exist`})
	case req.SignalType == "RETRY_STEP":
		resp.NextLogicalAttemptId = 3
	case req.SignalType == "RESUME":
		resp.Decision, resp.RejectReason, resp.Idempotent = runlogv1.Decision_REJECTED, "NOT_PAUSED", true
	}
	return resp, nil
}

// TestGoldenSignalSIG1 shows what operators see of a decision.
func TestGoldenSignalSIG1(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	fake := &fakeServer{}
	for _, args := range []string{
		"signal run-1 PAUSE --id s-1", "signal run-1 pause --id s-1 -o json", "signal run-1 retry-step --step load --id s-2", "signal run-1 RESUME --id s-3",
		"signal run-1 RESUME --id s-3 -o json", "signal run-9 PAUSE --id s-4", "signal run-1", "signal run-1 PAUSE --id=", `signal run-1 UPDATE_PARAMS --parameters [1] --id s-5`, "signal --help",
	} {
		s := &invocation{args: strings.Fields(args)}
		s.do(t.Context(), t, fake)
		got.WriteString(s.text())
	}
	golden(t, "signal", got.String())
}

// TestSignalFlags: the request has what the flags say, and an id of its own without --id.
func TestSignalFlags(t *testing.T) {
	t.Parallel()
	fake := &fakeServer{}
	s := &invocation{args: []string{"signal", "run-1", "skip-step", "--step", "load", "--reason", "it is late", "--parameters", `{"n":1.5,"a":[null]}`}}
	s.do(t.Context(), t, fake)
	got := fake.last
	if got.GetRunId() != "run-1" || got.GetSignalType() != "SKIP_STEP" || got.GetStepId() != "load" || got.GetReason() != "it is late" ||
		got.GetParameters().GetFields()["n"].GetNumberValue() != 1.5 || len(got.GetSignalId()) != 36 {
		t.Errorf("sent %v", got)
	}
	if text := s.text(); !strings.Contains(text, "signal "+got.GetSignalId()+": SKIP_STEP accepted at runSeq 7") {
		t.Errorf("printed %s", text)
	}
}
