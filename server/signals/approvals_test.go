package signals_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// approving are attesters of a run whose step "b" waits for as many approvals as the contract asks
// for.
func approving(t *testing.T, approvals string) *attesting {
	t.Helper()
	a := newAttesting(t)
	a.append("run", servertest.NewEvent("StepWaitingForAttestation", servertest.Step("c"),
		servertest.Payload(`{"contract":{"executor":"farm","approvals":`+approvals+`}}`)))
	return a
}

// attester makes the context of an attester with a name.
func (a *attesting) attester(name string) context.Context {
	a.T.Helper()
	return a.Bearing(a.Token(a.root, name, []string{"tenant"}, runlogv1.Role_ATTESTER))
}

// onC attests the step "c".
func onC(change ...func(*runlogv1.AttestStepRequest)) func(*runlogv1.AttestStepRequest) {
	return func(r *runlogv1.AttestStepRequest) {
		r.StepId = "c"
		for _, c := range change {
			c(r)
		}
	}
}

func (a *attesting) payload(seq uint64) map[string]any {
	a.T.Helper()
	list, err := a.Events.ListEvents(a.engine, &runlogv1.ListEventsRequest{RunId: "run", AfterSeq: seq - 1})
	if err != nil || len(list.Events) == 0 {
		a.T.Fatalf("event %d: %v, %v", seq, list, err)
	}
	return servertest.ParseObject(a.T, list.Events[0].GetPayloadJson())
}

// approvals are those of the step "c" in the snapshot.
func (a *attesting) approvals() string {
	a.T.Helper()
	s, err := runlogv1.NewProjectionServiceClient(a.Conn).GetSnapshot(a.engine, &runlogv1.GetSnapshotRequest{RunId: "run"})
	if err != nil {
		a.T.Fatal(err)
	}
	over := a.HTTP("GET", "/v1/runs/run/snapshot", "", "Authorization", "Bearer "+a.root).OK(a.T)
	servertest.CheckDigestPRJ1(a.T, "run", over["snapshot"].(map[string]any))
	return fmt.Sprint(s.Snapshot.Steps[1].Approvals.GetAttesters())
}

// TestApprovalsSEC10: a contract with approvals takes so many different attesters. Each but the
// last one stores an approval, and the last one the attestation, with all of them.
func TestApprovalsSEC10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := approving(t, "3")
		want := func(what string, resp *runlogv1.AttestStepResponse, err error, seq uint64, approvals uint32, again bool) {
			t.Helper()
			if err != nil || resp.RunSeq != seq || resp.Approvals != approvals || resp.ApprovalsNeeded != 3 || resp.Idempotent != again {
				t.Errorf("%s: %v, %v; want runSeq %d, %d approvals", what, resp, err, seq, approvals)
			}
		}
		note := func(text string) func(*runlogv1.AttestStepRequest) {
			return func(r *runlogv1.AttestStepRequest) { r.Notes = text }
		}
		by := func(name string) func(*runlogv1.AttestStepRequest) {
			return func(r *runlogv1.AttestStepRequest) { r.AttestedBy = name }
		}
		resp, err := a.attest(a.ann, onC(note("seen")))
		want("the first", resp, err, 4, 1, false)
		resp, err = a.attest(a.ann, onC(note("seen")))
		want("the first again", resp, err, 4, 1, true)
		_, err = a.attest(a.ann, onC(note("other words")))
		servertest.Refused(t, err, contract.ReasonStepNotWaiting)
		// An approval is in the name of its attester, not in that of its caller.
		resp, err = a.attest(a.clerk, onC(by("token:bob")))
		want("for another", resp, err, 5, 2, false)
		_, err = a.attest(a.bob, onC(note("mine")))
		servertest.Refused(t, err, contract.ReasonStepNotWaiting)
		// The engine has started the run.
		_, err = a.attest(a.engine, onC())
		servertest.Refused(t, err, contract.ReasonPermissionDenied)
		servertest.WantEqual(t, "events", a.types("run"), "StepWaitingForAttestation StepAttestationApproved StepAttestationApproved")
		servertest.WantEqual(t, "approvals", a.approvals(), "[token:ann token:bob]")
		resp, err = a.attest(a.attester("cid"), onC(note("done")))
		want("the last", resp, err, 6, 3, false)
		servertest.WantEqual(t, "approvals", a.approvals(), "[]")
		_, err = a.attest(a.attester("dan"), onC())
		servertest.Refused(t, err, contract.ReasonStepNotWaiting)
		resp, err = a.attest(a.ann, onC(note("seen")))
		want("the first, late", resp, err, 4, 1, true)

		if p := a.payload(4); p["attestedBy"] != "token:ann" || p["notes"] != "seen" || p["approvals"] != json.Number("1") && p["approvals"] != 1.0 || p["contract"] != nil {
			t.Errorf("an approval: %v", p)
		}
		if p := a.payload(6); fmt.Sprint(p["approvers"]) != "[token:ann token:bob token:cid]" || p["contract"] == nil {
			t.Errorf("the attestation: %v", p)
		}
	})
}

// TestApprovalsOfOneIdentitySEC10: an identity does not approve in its own name and in that of
// another.
func TestApprovalsOfOneIdentitySEC10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := approving(t, "2")
		both := a.clerkFor("token:bob")
		for _, first := range []func(*runlogv1.AttestStepRequest){onC(), onC(func(r *runlogv1.AttestStepRequest) { r.AttestedBy = "token:bob" })} {
			if _, err := a.attest(both, first); err != nil && servertest.RefusalOf(t, err).Reason != contract.ReasonStepNotWaiting {
				t.Fatal(err)
			}
		}
		servertest.WantEqual(t, "events", a.types("run"), "StepWaitingForAttestation StepAttestationApproved")
	})
}

// TestTokensOfOneNameSEC10: a token that replaces another one of its name is the same identity. It
// attests no run that the other one has started, and approves no attempt that the other has.
func TestTokensOfOneNameSEC10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := approving(t, "2")
		if _, err := a.attest(a.ann, onC()); err != nil {
			t.Fatal(err)
		}
		list, err := a.Access().ListTokens(a.Bearing(a.root), &runlogv1.ListTokensRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range list.Tokens {
			if _, err := a.Access().RevokeToken(a.Bearing(a.root), &runlogv1.RevokeTokenRequest{TokenId: token.TokenId}); err != nil {
				t.Fatal(err)
			}
		}
		if resp, err := a.attest(a.attester("ann"), onC()); err != nil || resp.Approvals != 1 {
			t.Errorf("the second token: %v, %v", resp, err)
		}
		a.engine = a.Bearing(a.Token(a.root, "engine", []string{"tenant"}, runlogv1.Role_READER, runlogv1.Role_ATTESTER))
		_, err = a.attest(a.engine, onC())
		servertest.Refused(t, err, contract.ReasonPermissionDenied)
		servertest.WantEqual(t, "events", a.types("run"), "StepWaitingForAttestation StepAttestationApproved")
	})
}

// TestApprovalsFailSEC10: any one attester ends the run, also one that has approved.
func TestApprovalsFailSEC10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := approving(t, "2")
		if _, err := a.attest(a.ann, onC()); err != nil {
			t.Fatal(err)
		}
		resp, err := a.attest(a.ann, onC(func(r *runlogv1.AttestStepRequest) { r.Outcome = runlogv1.AttestationOutcome_FAIL }))
		if err != nil || resp.ApprovalsNeeded != 0 {
			t.Errorf("%v, %v", resp, err)
		}
		servertest.WantEqual(t, "events", a.types("run"), "StepWaitingForAttestation StepAttestationApproved StepAttested RunFailed")
	})
}

// TestApprovalsRaceSEC10: of attesters at the same time, together with appends to the run, as many
// approve as are needed, and the last of them ends the wait.
func TestApprovalsRaceSEC10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := approving(t, "3")
		var racing sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			as := a.attester(fmt.Sprint("racer-", i))
			racing.Go(func() { _, errs[i] = a.attest(as, onC()) })
			racing.Go(func() { a.append("run", servertest.NewEvent("Noted", servertest.Step(fmt.Sprint("n", i)))) })
		}
		racing.Wait()
		stored := 0
		for _, err := range errs {
			if err == nil {
				stored++
			} else {
				servertest.Refused(t, err, contract.ReasonStepNotWaiting)
			}
		}
		servertest.WantEqual(t, "answers", stored, 3)
		servertest.WantEqual(t, "approvals", strings.Count(a.types("run"), contract.StepAttestationApproved), 2)
		servertest.WantEqual(t, "attestations", strings.Count(a.types("run"), "StepAttested"), 1)
	})
}

// TestApprovalsThatAreNoneSEC10: a contract whose number cannot be read is not attested by one.
func TestApprovalsThatAreNoneSEC10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for i, odd := range []string{"0", "-1", "21", "1.5", `"2"`, "[]", "1e30"} {
			a := approving(t, odd)
			if _, err := a.attest(a.ann, onC()); err == nil || servertest.RefusalOf(t, err).Reason != contract.ReasonStepNotWaiting || !strings.Contains(err.Error(), "SKIP_STEP") ||
				strings.Contains(err.Error(), "does not wait") {
				t.Errorf("%d: %s: %v", i, odd, err)
			}
			if _, err := a.attest(a.ann, onC(func(r *runlogv1.AttestStepRequest) { r.Outcome = runlogv1.AttestationOutcome_FAIL })); err != nil {
				t.Errorf("%s: a failure: %v", odd, err)
			}
		}
		a := approving(t, `1,"Approvals":5`) // Names count as they are written.
		if resp, err := a.attest(a.ann, onC()); err != nil || resp.Approvals != 1 || resp.ApprovalsNeeded != 1 {
			t.Errorf("one approval: %v, %v", resp, err)
		}
		a = approving(t, `2},"Contract":{"approvals":1`)
		if resp, err := a.attest(a.ann, onC()); err != nil || resp.ApprovalsNeeded != 2 {
			t.Errorf("two approvals: %v, %v", resp, err)
		}
	})
}
