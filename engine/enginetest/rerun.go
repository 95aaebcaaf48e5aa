package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// left is an event of a run that another engine has executed. Its payload is one of its kind.
func left(kind, step string, logical uint32) event {
	e := event{kind: kind, step: step, logical: logical, engine: 1}
	switch kind {
	case contract.StepCompleted:
		e.payload = json.RawMessage(`{"output":` + outputOf(step, logical) + `}`)
	case contract.StepFailed:
		e.payload = json.RawMessage(`{"error":{"code":"BROKEN","message":"a test","retryable":false}}`)
	case contract.StepSkipped:
		e.payload = json.RawMessage(`{"reasonCode":"` + plan.ReasonDependency + `"}`)
	}
	return e
}

// past stores a run of a plan that has failed, which another engine has executed, and returns its
// id. The process under test has no part in it.
func (b *bed) past(ref plan.Ref, list []event) string {
	b.t.Helper()
	run, engineType := fmt.Sprint("past-", len(b.runs)+1), "past"
	meta := &runlogv1.Run{RunId: run, TenantId: b.env.Tenant, ProjectId: b.env.Project, EnvironmentId: b.env.Environment,
		PlanRef: ref.Proto(), EngineType: &engineType}
	named := events.Run{ID: run, Tenant: b.env.Tenant, Project: b.env.Project, Environment: b.env.Environment, Plan: ref.PlanID, PlanVersion: ref.PlanVersion}
	started, err := engine.Started(meta, "past/"+run)
	if err != nil {
		b.t.Fatal(err)
	}
	writes := []*runlogv1.EventWrite{started}
	for _, e := range append(list[:len(list):len(list)], left(contract.RunFailed, "", 1)) {
		w, err := named.Event(e.kind, e.step, events.Attempt{Logical: e.logical, Engine: e.engine}, e.payload)
		if err != nil {
			b.t.Fatal(err)
		}
		writes = append(writes, w)
	}
	if _, err := b.log.CreateRun(b.t.Context(), &runlogv1.CreateRunRequest{Run: meta, Events: writes}); err != nil {
		b.t.Fatal(err)
	}
	return run
}

// rerun requests a run that reruns one that another engine has executed, and returns its id.
func (b *bed) rerun(ref plan.Ref, p *plan.Plan, list []event) string {
	b.t.Helper()
	of := b.past(ref, list)
	run := b.requestPlan(ref, p, func(r *runlogv1.RequestRunRequest) { r.RerunOf = &of })
	b.reruns[run] = of
	return run
}

// refusedRerun: a run that would take over an artifact which is gone fails, and says so. No step of
// it is executed, and none is taken over.
func refusedRerun(b *bed) {
	if !b.open(0, false).Capabilities().Reruns {
		return
	}
	kept := left(contract.StepCompleted, "a", 1)
	gone := left(contract.StepCompleted, "b", 1)
	gone.payload = json.RawMessage(`{"artifacts":[{"uri":"` + b.env.Base + `/gone"}]}`)
	run := b.rerun(b.store(b.document(steps(step("a", ""), step("b", "a"), step("c", "b")))), nil,
		[]event{left(contract.StepStarted, "a", 1), kept, left(contract.StepStarted, "b", 1), gone})
	list := b.awaitEnd(run, contract.RunFailed)
	if code := failureCode(list); code != "RERUN_REFUSED" || has(list, contract.StepCompleted) || len(b.of(run)) > 0 {
		b.t.Errorf("a rerun whose artifact is gone fails with the code %q, want RERUN_REFUSED and no step: %v", code, list)
	}
	b.verify()
}

// takenFrom is what a StepCompleted says of a step that was taken over.
type takenFrom struct {
	RunID            string
	RunSeq           uint64
	LogicalAttemptID uint32
}

// from returns where the result of a step was taken over from; nil: it was not.
func (e event) from() *takenFrom {
	var p struct{ TakenFrom *takenFrom }
	if e.kind != contract.StepCompleted || json.Unmarshal(e.payload, &p) != nil {
		return nil
	}
	return p.TakenFrom
}

// takeOver checks the end of a step that was taken over: it comes before the first step begins, and
// says what the run that is rerun has there.
func (c *checker) takeOver(e event, s *stepHistory, from *takenFrom) {
	if s.begun || c.begun {
		c.fault("%s is taken over after a step has begun", e)
	}
	s.taken = from.LogicalAttemptID
	for _, was := range c.past {
		if from.RunID == c.rerunOf && was.seq == from.RunSeq && was.kind == e.kind && was.step == e.step && was.logical == from.LogicalAttemptID &&
			bytes.Equal(outputIn(was), outputIn(e)) {
			return
		}
	}
	c.fault("%s is taken over from %+v with the output %s, and the run %s does not have that there", e, *from, outputIn(e), c.rerunOf)
}

// outputIn is the output of a step in its StepCompleted.
func outputIn(e event) json.RawMessage {
	var p struct{ Output json.RawMessage }
	_ = json.Unmarshal(e.payload, &p) // One that cannot be read has none.
	return p.Output
}
