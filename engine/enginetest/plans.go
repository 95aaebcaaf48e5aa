package enginetest

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/route"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

const computing = `{"stepId":"c","type":"compute","dependsOn":["a"],"computeContract":` +
	`{"executor":"farm","inputs":["x"],"outputs":["y"],"verification":"operator_attest"}}`

// planFaults: a run whose plan can never be executed fails with the code of the fault, and no step
// of it is executed (PLAN-2, PLAN-3, PLAN-4). The code is the same for a plan that the engine has
// executed before, by another reference (PLAN-7).
func planFaults(b *bed) {
	b.open(0, false)
	id, body := b.document(step("a", ""))
	parsed, _, err := plan.Parse(body, plan.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	known := b.store(id, body)
	b.awaitEnd(b.requestPlan(known, parsed), contract.RunCompleted)
	other := func(change func(*plan.Ref)) func() plan.Ref {
		return func() plan.Ref {
			ref := known
			change(&ref)
			return ref
		}
	}
	good := func() (id, text string) {
		id, body := b.document(step("a", ""))
		return id, string(body)
	}
	swap := func(old, with string) func() plan.Ref {
		return func() plan.Ref {
			id, text := good()
			return b.store(id, []byte(strings.Replace(text, old, with, 1)))
		}
	}
	for _, tt := range []struct {
		name, code string
		ref        func() plan.Ref
	}{
		{"a cycle", plan.CodeInvalid, swap(`"steps":[`, `"steps":[`+step("b", "c")+`,`+step("c", "b")+`,`)},
		{"an unknown dependency", plan.CodeInvalid, swap(`"steps":[`, `"steps":[`+step("b", "nowhere")+`,`)},
		{"a step twice", plan.CodeInvalid, swap(`"steps":[`, `"steps":[`+step("a", "")+`,`)},
		{"an executor that is not there", plan.CodeInvalid, swap(`"type":"test"`, `"type":"teleport"`)},
		{"a compute step without a contract", plan.CodeInvalid, swap(`"type":"test"`, `"type":"compute"`)},
		{"a task queue of another tenant", route.CodeForeign, swap(`"type":"test"`, `"type":"test","dispatch":{"taskQueue":"tq-isolation-rival-prod"}`)},
		{"no JSON", plan.CodeInvalid, swap(`{`, `(`)},
		{"other bytes", plan.CodeIntegrity, func() plan.Ref {
			id, text := good()
			ref := b.store(id, []byte(text))
			b.put(ref.URI, []byte(strings.Replace(text, `"test"`, `"noop"`, 1)))
			return ref
		}},
		{"a truncated download", plan.CodeIntegrity, func() plan.Ref {
			id, text := good()
			ref := b.store(id, []byte(text))
			b.put(ref.URI, []byte(text)[:len(text)/2])
			return ref
		}},
		{"a newer minor version", plan.CodeVersionMismatch, func() plan.Ref {
			ref := swap(`"v1.2"`, `"v1.99"`)()
			ref.SchemaVersion = "v1.99"
			return ref
		}},
		{"another schema version", plan.CodeVersionMismatch, other(func(r *plan.Ref) { r.SchemaVersion = "v1.1" })},
		{"another size", plan.CodeIntegrity, other(func(r *plan.Ref) { r.SizeBytes = 5 })},
		{"an unknown scheme", plan.CodeFetchFailed, other(func(r *plan.Ref) { r.URI = "gs://nowhere/x" })},
		{"no such blob", plan.CodeFetchFailed, func() plan.Ref {
			id, text := good()
			ref := b.store(id, []byte(text))
			ref.URI += ".nowhere"
			return ref
		}},
	} {
		run := b.requestPlan(tt.ref(), nil)
		list := b.awaitEnd(run, contract.RunFailed)
		if code := failureCode(list); code != tt.code {
			b.t.Errorf("%s: the run fails with the code %q, want %q", tt.name, code, tt.code)
		}
		if n := len(b.of(run)); n > 0 {
			b.t.Errorf("%s: steps are executed: %v", tt.name, b.of(run))
		}
	}
	b.verify()
}

// expiredPlan: a plan that has expired starts no run (PLAN-7).
func expiredPlan(b *bed) {
	b.open(0, false)
	ref := b.store(b.document(step("a", "")))
	ref.ExpiresAt = time.Now().Add(-time.Second)
	list := b.awaitEnd(b.requestPlan(ref, nil), contract.RunFailed)
	if code := failureCode(list); code != plan.CodeInvalid || has(list, contract.RunStarted) {
		b.t.Errorf("the run fails with the code %q, want %q and no RunStarted: %v", code, plan.CodeInvalid, list)
	}
	b.verify()
}

// failureCode returns the code in RunFailed.
func failureCode(list []event) string {
	for _, e := range list {
		var p struct{ Error struct{ Code string } }
		if e.kind == contract.RunFailed && json.Unmarshal(e.payload, &p) == nil {
			return p.Error.Code
		}
	}
	return ""
}

// swappedPlan: a plan that is swapped while no worker lives fails its run (PLAN-2).
func swappedPlan(b *bed) {
	p := b.open(0, false)
	b.do = func(ctx context.Context, _ executor.Task) error {
		<-ctx.Done()
		return ctx.Err()
	}
	id, body := b.document(steps(step("a", ""), step("b", "a")))
	parsed, _, err := plan.Parse(body, plan.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	ref := b.store(id, body)
	run := b.requestPlan(ref, parsed)
	b.awaitEvent(run, "StepStarted a")
	b.bury(p)
	b.put(ref.URI, []byte(strings.Replace(string(body), `"dependsOn":["a"]`, `"dependsOn":[]`, 1)))
	b.do = nil
	b.open(0, false)
	list := b.awaitEnd(run, contract.RunFailed)
	if code := failureCode(list); code != plan.CodeIntegrity {
		b.t.Errorf("the run fails with the code %q, want %q", code, plan.CodeIntegrity)
	}
	if n := len(b.of(run)); n > 1 {
		b.t.Errorf("steps of the swapped plan are executed: %v", b.of(run))
	}
	b.verify()
}

// attestation: a compute step waits for its attestation, and the run for a RESUME. An engine
// without compute steps refuses the plan.
func attestation(b *bed) {
	p := b.open(0, false)
	able := false
	for _, c := range p.Capabilities().Steps {
		able = able || c == plan.Compute
	}
	text := steps(step("a", ""), computing, step("d", "c"))
	if !able {
		id, body := b.document(text)
		run := b.requestPlan(b.store(id, body), nil)
		if code := failureCode(b.awaitEnd(run, contract.RunFailed)); !strings.HasPrefix(code, "PLAN_") {
			b.t.Errorf("a plan with a compute step fails with the code %q, want one that begins with PLAN_", code)
		}
		b.verify()
		return
	}
	run := b.request(text)
	list := b.awaitEvent(run, "StepWaitingForAttestation c")
	b.attest(run)
	s := b.send(run, ask{kind: "RESUME", nth: 1})
	b.deliver(p, refIn(list), []engine.Signal{s})
	list = b.awaitEnd(run, contract.RunCompleted)
	if !has(list, contract.RunResumed) || !has(list, "StepCompleted d 1.1") {
		b.t.Errorf("run %s has no RunResumed or no StepCompleted d: %v", run, list)
	}
	for _, x := range b.of(run) {
		if x.step == "c" {
			b.t.Errorf("the compute step is executed: %v", x)
		}
	}
	b.verify()
}

// attest appends the attestation of the step c.
func (b *bed) attest(run string) {
	b.t.Helper()
	named := events.Run{ID: run, Tenant: b.env.Tenant, Project: b.env.Project, Environment: b.env.Environment,
		Plan: b.plans[run].PlanID, PlanVersion: "1", EmittedBy: "operator"}
	e, err := named.StepAttested("c", events.Attempt{Logical: 1, Engine: 1}, map[string]any{"outcome": "SUCCESS", "attestedBy": "jed"})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.log.AppendEvents(b.t.Context(), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{e}}); err != nil {
		b.t.Fatal(err)
	}
}
