package signals_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// attesting is a node with access control, on which the engine has started a run whose step "b"
// waits for an attestation.
type attesting struct {
	*servertest.Node
	root string
	// Contexts of calls: the engine produces, ann and bob attest, and the clerk attests in the
	// names of bob and the engine too.
	engine, ann, bob, clerk context.Context
}

func newAttesting(t *testing.T) *attesting {
	t.Helper()
	a := &attesting{}
	a.Node = servertest.Start(t, func(o *server.Options) { a.root = servertest.Secured(o) })
	mine := []string{"tenant"}
	a.engine = a.Bearing(a.Token(a.root, "engine", mine, runlogv1.Role_PRODUCER, runlogv1.Role_READER, runlogv1.Role_ATTESTER))
	a.ann = a.Bearing(a.Token(a.root, "ann", mine, runlogv1.Role_ATTESTER))
	a.bob = a.Bearing(a.Token(a.root, "bob", mine, runlogv1.Role_ATTESTER))
	clerk, err := a.Access().CreateToken(a.Bearing(a.root), &runlogv1.CreateTokenRequest{
		Name: "clerk", Tenants: mine, Roles: []runlogv1.Role_Value{runlogv1.Role_ATTESTER}, ActFor: []string{"token:engine", "token:bob"},
	})
	if err != nil {
		t.Fatal(err)
	}
	a.clerk = a.Bearing(clerk.Token)
	a.append("run", servertest.NewEvent("RunStarted"), waiting("b", 1))
	return a
}

// waiting is the wait of an attempt of a step, with a contract.
func waiting(step string, attempt uint32) *runlogv1.EventWrite {
	return servertest.NewEvent("StepWaitingForAttestation", servertest.Step(step), servertest.Attempt(attempt),
		servertest.Payload(`{"contract":{"executor":"farm"}}`))
}

func (a *attesting) append(run string, events ...*runlogv1.EventWrite) {
	a.T.Helper()
	for _, e := range events {
		e.RunId = run
	}
	if _, err := a.Events.AppendEvents(a.engine, &runlogv1.AppendEventsRequest{RunId: run, Events: events}); err != nil {
		a.T.Fatal(err)
	}
}

// attest attests the step "b" of the run, unless the request is changed.
func (a *attesting) attest(as context.Context, change ...func(*runlogv1.AttestStepRequest)) (*runlogv1.AttestStepResponse, error) {
	req := &runlogv1.AttestStepRequest{RunId: "run", StepId: "b", Outcome: runlogv1.AttestationOutcome_SUCCESS}
	for _, c := range change {
		c(req)
	}
	return signals(a.Node).AttestStep(as, req)
}

// types are the types of a run's events behind the first two.
func (a *attesting) types(run string) string {
	a.T.Helper()
	list, err := a.Events.ListEvents(a.engine, &runlogv1.ListEventsRequest{RunId: run, AfterSeq: 2})
	if err != nil {
		a.T.Fatal(err)
	}
	var types []string
	for _, e := range list.Events {
		types = append(types, e.EventType)
	}
	return strings.Join(types, " ")
}

// TestAttestStepSEC10ATT4: an attester attests a step that waits, once. The record has the
// attester, the words, and a copy of the contract; the run still waits. The same again is the same
// attestation, and another one is refused.
func TestAttestStepSEC10ATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAttesting(t)
		size := uint64(7)
		words := func(r *runlogv1.AttestStepRequest) {
			r.Notes = "refreshed <by hand>"
			r.Artifacts = []*runlogv1.AttestedArtifact{{Name: "model.xlsx", Uri: "s3://acme/model.xlsx", SizeBytes: &size}}
		}
		first, err := a.attest(a.ann, words)
		if err != nil || first.RunSeq != 3 || first.LogicalAttemptId != 1 || first.Idempotent || first.Position == "" {
			t.Fatalf("%v, %v", first, err)
		}
		again, err := a.attest(a.ann, words)
		if err != nil || !again.Idempotent || again.RunSeq != 3 || again.Position != first.Position {
			t.Errorf("again %v, %v", again, err)
		}
		_, err = a.attest(a.bob, words)
		servertest.Refused(t, err, contract.ReasonStepNotWaiting)
		_, err = a.attest(a.ann)
		servertest.Refused(t, err, contract.ReasonStepNotWaiting)
		servertest.WantEqual(t, "events", a.types("run"), "StepAttested")

		list, err := a.Events.ListEvents(a.engine, &runlogv1.ListEventsRequest{RunId: "run", AfterSeq: 2})
		if err != nil {
			t.Fatal(err)
		}
		e := list.Events[0]
		p := servertest.ParseObject(t, e.GetPayloadJson())
		if e.GetAppendedBy() != "token:ann" || p["attestedBy"] != "token:ann" || p["outcome"] != "SUCCESS" || p["notes"] != "refreshed <by hand>" ||
			fmt.Sprint(p["contract"]) != "map[executor:farm]" || p["attestedAt"] == "" {
			t.Errorf("record %v", e)
		}
		s, err := runlogv1.NewProjectionServiceClient(a.Conn).GetSnapshot(a.engine, &runlogv1.GetSnapshotRequest{RunId: "run"})
		if err != nil || s.Snapshot.Status != runlogv1.RunStatus_WAITING || s.Snapshot.Steps[0].Status != runlogv1.StepStatus_SUCCESS ||
			s.Snapshot.Steps[0].Artifacts[0].GetSizeBytes() != 7 {
			t.Errorf("snapshot %v, %v", s, err)
		}
	})
}

// TestAttestFailATT4: an attestation of FAIL ends the run in the same append.
func TestAttestFailATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAttesting(t)
		fail := func(r *runlogv1.AttestStepRequest) { r.Outcome = runlogv1.AttestationOutcome_FAIL }
		if _, err := a.attest(a.ann, fail); err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "events", a.types("run"), "StepAttested RunFailed")
		if again, err := a.attest(a.ann, fail); err != nil || !again.Idempotent {
			t.Errorf("again %v, %v", again, err)
		}
		_, err := a.attest(a.ann)
		servertest.Refused(t, err, contract.ReasonStepNotWaiting)
	})
}

// TestAttestRacesATT4: of attestations at the same time, together with appends to the run, one is
// stored.
func TestAttestRacesATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAttesting(t)
		var racing sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			as := []context.Context{a.ann, a.bob}[i%2]
			racing.Go(func() {
				_, errs[i] = a.attest(as, func(r *runlogv1.AttestStepRequest) { r.Notes = fmt.Sprint("n", i) })
			})
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
		servertest.WantEqual(t, "attestations", stored, 1)
		servertest.WantEqual(t, "events", strings.Count(a.types("run"), "StepAttested"), 1)
	})
}

// TestWhoMayAttestSEC10: it takes the role attester, and the right to act for another identity. An
// identity that has requested or started the run attests nothing of it, in no name, unless the
// tenant allows that.
func TestWhoMayAttestSEC10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAttesting(t)
		by := func(name string) func(*runlogv1.AttestStepRequest) {
			return func(r *runlogv1.AttestStepRequest) { r.AttestedBy = name }
		}
		ops := a.Bearing(a.Token(a.root, "ops", []string{"tenant"}, runlogv1.Role_OPERATOR, runlogv1.Role_READER, runlogv1.Role_PRODUCER,
			runlogv1.Role_ADMIN, runlogv1.Role_DECIDER))
		requester := a.Bearing(a.Token(a.root, "requester", []string{"tenant"}, runlogv1.Role_PRODUCER, runlogv1.Role_ATTESTER))
		if _, err := runlogv1.NewQueueServiceClient(a.Conn).RequestRun(requester, &runlogv1.RequestRunRequest{
			RunRequestId: "r", RunId: "requested", TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{PlanId: "plan", PlanVersion: "1"},
		}); err != nil {
			t.Fatal(err)
		}
		a.append("requested", servertest.NewEvent("RunStarted"), waiting("b", 1))
		requested := func(r *runlogv1.AttestStepRequest) { r.RunId = "requested" }

		// Runs that the attester has made, or that no event has started.
		if _, err := runlogv1.NewRunServiceClient(a.Conn).CreateRun(requester, &runlogv1.CreateRunRequest{
			Run: &runlogv1.Run{RunId: "made", TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
				PlanRef: &runlogv1.PlanRef{PlanId: "plan", PlanVersion: "1"}},
			Events: []*runlogv1.EventWrite{servertest.NewEvent("Noted")},
		}); err != nil {
			t.Fatal(err)
		}
		a.append("made", servertest.NewEvent("RunStarted"), waiting("b", 1))
		made := func(r *runlogv1.AttestStepRequest) { r.RunId = "made" }
		// It has appended no event. A later change of the metadata is another identity's.
		create := &runlogv1.CreateRunRequest{Run: servertest.NewRun("created")}
		for _, as := range []context.Context{requester, a.engine} {
			if _, err := runlogv1.NewRunServiceClient(a.Conn).CreateRun(as, create); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := runlogv1.NewRunServiceClient(a.Conn).SetEngineRunRef(a.engine, &runlogv1.SetEngineRunRefRequest{RunId: "created", EngineRunRef: "e://1"}); err != nil {
			t.Fatal(err)
		}
		a.append("created", servertest.NewEvent("RunStarted"), waiting("b", 1))
		created := func(r *runlogv1.AttestStepRequest) { r.RunId = "created" }
		a.append("adopted", servertest.NewEvent("Noted"))
		if _, err := runlogv1.NewRunServiceClient(a.Conn).CreateRun(requester, &runlogv1.CreateRunRequest{Run: servertest.NewRun("adopted")}); err != nil {
			t.Fatal(err)
		}
		a.append("adopted", servertest.NewEvent("RunStarted"), waiting("b", 1))
		adopted := func(r *runlogv1.AttestStepRequest) { r.RunId = "adopted" }
		a.append("idle", servertest.NewEvent("Noted"), waiting("b", 1))
		_, err := a.attest(a.ann, func(r *runlogv1.AttestStepRequest) { r.RunId = "idle" })
		servertest.Refused(t, err, contract.ReasonStepNotWaiting)

		for name, refused := range map[string]struct {
			as     context.Context
			change []func(*runlogv1.AttestStepRequest)
		}{
			"every role but attester":        {ops, nil},
			"in the name of another":         {a.ann, []func(*runlogv1.AttestStepRequest){by("token:bob")}},
			"who has started it":             {a.engine, nil},
			"in the name of who started it":  {a.clerk, []func(*runlogv1.AttestStepRequest){by("token:engine")}},
			"who has made it":                {requester, []func(*runlogv1.AttestStepRequest){made}},
			"who has created it":             {requester, []func(*runlogv1.AttestStepRequest){created}},
			"who has created what was there": {requester, []func(*runlogv1.AttestStepRequest){adopted}},
			"who has requested it":           {requester, []func(*runlogv1.AttestStepRequest){requested}},
			"who has started a request":      {a.engine, []func(*runlogv1.AttestStepRequest){requested}},
			"acting for an unnamed identity": {a.clerk, []func(*runlogv1.AttestStepRequest){by("token:ann")}},
		} {
			_, err := a.attest(refused.as, refused.change...)
			r := servertest.Refused(t, err, contract.ReasonPermissionDenied)
			// Without the tenant, the command would be about all of them.
			if strings.HasPrefix(name, "who has") && !strings.Contains(r.Message, `runlog tenant limits "tenant" --self-attestation allowed`) {
				t.Errorf("%s: %s", name, r.Message)
			}
		}
		servertest.WantEqual(t, "events", a.types("run"), "")
		if _, err := a.attest(a.clerk, by("token:bob")); err != nil {
			t.Errorf("in a name that the token may act for: %v", err)
		}
		self := func(tenant string, v runlogv1.SelfAttestation_Value) {
			if _, err := a.Access().SetTenantLimits(a.Bearing(a.root), &runlogv1.SetTenantLimitsRequest{
				TenantId: tenant, Limits: &runlogv1.TenantLimits{SelfAttestation: v},
			}); err != nil {
				t.Fatal(err)
			}
		}
		self("*", runlogv1.SelfAttestation_ALLOWED)
		self("tenant", runlogv1.SelfAttestation_FORBIDDEN)
		if _, err := a.attest(requester, requested); err == nil || servertest.RefusalOf(t, err).Reason != contract.ReasonPermissionDenied {
			t.Errorf("where the tenant forbids what the default allows: %v", err)
		}
		self("tenant", runlogv1.SelfAttestation_VALUE_UNSPECIFIED)
		if _, err := a.attest(requester, requested); err != nil {
			t.Errorf("where the default allows it: %v", err)
		}
		self("*", runlogv1.SelfAttestation_FORBIDDEN)
		self("tenant", runlogv1.SelfAttestation_ALLOWED)
		if _, err := a.attest(requester, made); err != nil {
			t.Errorf("where the tenant allows it: %v", err)
		}
	})
}

// TestRefusedAttestations: what cannot be attested is refused with all of its faults, and stores
// nothing.
func TestRefusedAttestations(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAttesting(t)
		zero, two := uint32(0), uint32(2)
		_, err := a.attest(a.ann, func(r *runlogv1.AttestStepRequest) {
			r.StepId, r.Outcome, r.LogicalAttemptId, r.Notes = "a|b", 0, &zero, strings.Repeat("x", 20_000)
			r.Artifacts = []*runlogv1.AttestedArtifact{{Uri: "here", Sha256: "ABC"}}
		})
		e := servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		for _, field := range []string{"stepId", "outcome", "logicalAttemptId", "notes", "artifacts[0].name", "artifacts[0].uri", "artifacts[0].sha256"} {
			if e.Fields[field] == "" {
				t.Errorf("no violation of %s in %v", field, err)
			}
		}
		all := a.clerkFor("*")
		for _, odd := range []string{"*", "local", " token:ann", "token:a b", "a\tb"} {
			_, err = a.attest(all, func(r *runlogv1.AttestStepRequest) { r.AttestedBy = odd })
			if e := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); e.Fields["attestedBy"] == "" {
				t.Errorf("in the name %q: %v", odd, err)
			}
		}
		_, err = a.attest(a.ann, func(r *runlogv1.AttestStepRequest) { r.StepId = "z" })
		servertest.Refused(t, err, contract.ReasonStepNotFound)
		_, err = a.attest(a.ann, func(r *runlogv1.AttestStepRequest) { r.RunId = "none" })
		servertest.Refused(t, err, contract.ReasonRunNotFound)
		_, err = a.attest(a.ann, func(r *runlogv1.AttestStepRequest) { r.LogicalAttemptId = &two })
		servertest.Refused(t, err, contract.ReasonStepNotWaiting)

		// A decider's attestation of before the wait has no effect, and takes the place of another.
		decider := a.Bearing(a.Token(a.root, "decider", []string{"tenant"}, runlogv1.Role_PRODUCER, runlogv1.Role_DECIDER))
		early := servertest.NewEvent("StepAttested", servertest.Step("c"), servertest.Payload(`{"outcome":"SUCCESS","attestedBy":"token:ann"}`))
		early.RunId = "run"
		if _, err := a.Events.AppendEvents(decider, &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{early}}); err != nil {
			t.Fatal(err)
		}
		a.append("run", waiting("c", 1))
		// Also in the words of the early one.
		for _, by := range []string{"token:decider", "token:ann"} {
			_, err = a.attest(a.clerkFor(by), func(r *runlogv1.AttestStepRequest) { r.StepId, r.AttestedBy = "c", by })
			if e := servertest.Refused(t, err, contract.ReasonStepNotWaiting); !strings.Contains(err.Error(), "SKIP_STEP") {
				t.Errorf("%v, %v", e, err)
			}
		}
		a.append("run", servertest.NewEvent("RunCancelled"))
		_, err = a.attest(a.ann)
		servertest.Refused(t, err, contract.ReasonStepNotWaiting)
		servertest.WantEqual(t, "events", a.types("run"), "StepAttested StepWaitingForAttestation RunCancelled")
	})
}

// clerkFor is an attester that may act for an identity.
func (a *attesting) clerkFor(name string) context.Context {
	a.T.Helper()
	resp, err := a.Access().CreateToken(a.Bearing(a.root), &runlogv1.CreateTokenRequest{
		Name: "for-" + strings.NewReplacer("token:", "", "*", "all").Replace(name), Tenants: []string{"tenant"}, Roles: []runlogv1.Role_Value{runlogv1.Role_ATTESTER}, ActFor: []string{name},
	})
	if err != nil {
		a.T.Fatal(err)
	}
	return a.Bearing(resp.Token)
}

// TestAttestationIDsATT4: an id is that of one attestation. A retry that comes when another attempt
// waits is answered with the first, and other words under the id are refused.
func TestAttestationIDsATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAttesting(t)
		id := func(notes string) func(*runlogv1.AttestStepRequest) {
			return func(r *runlogv1.AttestStepRequest) { r.AttestationId, r.Notes = "a-1", notes }
		}
		if _, err := a.attest(a.ann, id("done")); err != nil {
			t.Fatal(err)
		}
		a.append("run", waiting("b", 2))
		again, err := a.attest(a.ann, id("done"))
		if err != nil || !again.Idempotent || again.RunSeq != 3 || again.LogicalAttemptId != 1 {
			t.Errorf("a late retry: %v, %v", again, err)
		}
		_, err = a.attest(a.ann, id("other"))
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		servertest.WantEqual(t, "events", a.types("run"), "StepAttested StepWaitingForAttestation")
		long := "s3://acme/" + strings.Repeat("x", 2000)
		resp, err := a.attest(a.ann, func(r *runlogv1.AttestStepRequest) {
			r.Artifacts = []*runlogv1.AttestedArtifact{{Name: "y", Uri: long}}
		})
		if err != nil || resp.LogicalAttemptId != 2 {
			t.Errorf("a long URI: %v, %v", resp, err)
		}
	})
}

// TestAttestersAreCountedSIG5SEC4: calls of one tenant use up nothing of a run of another, and
// attestations use up no signals. Each call counts, also one that stores nothing.
func TestAttestersAreCountedSIG5SEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAttesting(t)
		foreign := a.Bearing(a.Token(a.root, "foreign", []string{"other"}, runlogv1.Role_ATTESTER))
		ops := a.Bearing(a.Token(a.root, "ops", []string{"tenant"}, runlogv1.Role_OPERATOR))
		step := func(n int) func(*runlogv1.AttestStepRequest) {
			return func(r *runlogv1.AttestStepRequest) { r.StepId = fmt.Sprint("z", n) }
		}
		for n := range 70 {
			_, err := a.attest(foreign, step(n))
			servertest.Refused(t, err, contract.ReasonRunNotFound)
		}
		for n := range 60 {
			_, err := a.attest(a.ann, step(n/2))
			servertest.Refused(t, err, contract.ReasonStepNotFound)
		}
		_, err := a.attest(a.ann)
		servertest.Refused(t, err, contract.ReasonSignalRateLimited)
		servertest.WantEqual(t, "a signal", outcome(sendAs(ops, a.Node, signal("s", "EMERGENCY_STOP"))), "ACCEPTED")
	})
}

// TestAttestInTheOpen: without access control everything is allowed, and no identity is recorded.
func TestAttestInTheOpen(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), waiting("b", 1))
		if _, err := signals(n).AttestStep(n.Context(), &runlogv1.AttestStepRequest{
			RunId: "run", StepId: "b", Outcome: runlogv1.AttestationOutcome_SUCCESS, AttestedBy: "jed",
		}); err != nil {
			t.Fatal(err)
		}
		e := n.List("run")[2]
		if p := servertest.ParseObject(t, e.GetPayloadJson()); p["attestedBy"] != "jed" || e.AppendedBy != nil {
			t.Errorf("record %v", e)
		}
	})
}
