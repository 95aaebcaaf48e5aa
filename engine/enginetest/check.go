package enginetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// history is what is known of a run that has ended.
type history struct {
	run        string
	scope      string
	events     []event
	plan       *plan.Plan // nil: it cannot be executed
	executions []execution
	kills      int
	cancelled  bool // CancelRun was called
	rerunOf    string
	past       []event // of the run that it reruns
}

// checker compares the events of a run, one after the other, with what must hold.
type checker struct {
	history
	faults   []string
	started  bool
	begun    bool // a step has begun
	paused   bool
	held     bool // the run is paused because a step has failed
	end      string
	steps    map[string]*stepHistory
	accepted map[string]event // by the id of the signal
	answered map[string]bool  // signals, by the type of the answer and the id
}

// stepHistory is the newest logical attempt of a step.
type stepHistory struct {
	logical uint32
	begun   bool
	outcome plan.Status // empty: it has not ended
	taken   uint32      // the logical attempt in the run that it was taken over from; 0: it was not
	retry   uint32      // the logical attempt of an accepted RETRY_STEP
	skip    bool        // an accepted SKIP_STEP
}

// signalPayload is what the decision of a signal says.
type signalPayload struct {
	SignalID, SignalType string
	NextLogicalAttemptID uint32
}

// check returns everything that is wrong with a run.
func check(h history) []string {
	c := &checker{history: h, steps: map[string]*stepHistory{}, accepted: map[string]event{}, answered: map[string]bool{}}
	for i, e := range h.events {
		if e.seq != uint64(i+1) {
			c.fault("event %d has runSeq %d: there is a gap", i+1, e.seq)
		}
		if e.scope != h.scope {
			c.fault("%s is in %s, and the run in %s", e, e.scope, h.scope)
		}
		c.apply(e)
	}
	if c.end == "" {
		c.fault("the run does not end")
	}
	c.checkEnd()
	c.checkExecutions()
	return c.faults
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *checker) step(id string) *stepHistory {
	if c.steps[id] == nil {
		c.steps[id] = &stepHistory{logical: 1}
	}
	return c.steps[id]
}

func (c *checker) apply(e event) {
	if c.end != "" && e.kind != contract.SignalAccepted && e.kind != contract.SignalRejected && (e.step == "" || e.kind == contract.StepStarted) {
		c.fault("%s comes after %s", e, c.end)
	}
	if e.step != "" && !c.started && e.kind != contract.SignalAccepted && e.kind != contract.SignalRejected {
		c.fault("%s comes before RunStarted", e)
	}
	if e.engine == 0 || e.logical == 0 {
		c.fault("%s has an attempt 0", e)
	}
	switch e.kind {
	case contract.RunStarted:
		if c.started {
			c.fault("%s comes twice", e)
		}
		c.started = true
	case contract.RunPaused:
		if e.cause == "" {
			c.hold(e)
		} else {
			c.steer(e, c.paused, "PAUSE")
		}
		c.paused = true
	case contract.RunResumed:
		if c.held {
			c.steer(e, false, "RESUME", "RETRY_STEP")
		} else {
			c.steer(e, false, "RESUME")
		}
		c.paused, c.held = false, false
	case contract.RunCompleted, contract.RunFailed, contract.RunCancelled:
		if c.end == "" {
			c.end = e.kind
		}
	case contract.SignalAccepted:
		c.signal(e)
	case contract.StepStarted, contract.StepWaitingForAttestation:
		c.begin(e)
	case contract.StepRetrying:
		c.retrying(e)
	case contract.StepCompleted, contract.StepFailed, contract.StepSkipped, contract.StepAttested:
		c.finish(e)
	}
}

// retrying checks an event about a try that the platform repeats (IDM-11).
func (c *checker) retrying(e event) {
	if s := c.open(e); !s.begun || s.outcome != "" {
		c.fault("%s comes without a StepStarted, or after the step has ended as %s", e, s.outcome)
	}
	c.executed(e)
}

// hold checks a RunPaused without a signal: the plan asks for it when all steps have ended, and one
// has failed.
func (c *checker) hold(e event) {
	c.held = true
	if c.plan == nil {
		c.fault("%s comes without a signal, and the plan cannot be executed", e)
		return
	}
	failed := 0
	for i := range c.plan.Steps {
		switch c.step(c.plan.Steps[i].ID).outcome {
		case plan.Failed:
			failed++
		case "":
			c.fault("%s comes without a signal, before the end of step %s", e, c.plan.Steps[i].ID)
		}
	}
	if failed == 0 || !c.plan.Waits || c.paused {
		c.fault("%s comes without a signal, a failed step or a plan that waits, or in a pause", e)
	}
}

// steer checks RunPaused and RunResumed: each has its own accepted signal.
func (c *checker) steer(e event, already bool, signals ...string) {
	if already || !c.started {
		c.fault("%s comes when the run is paused, or has not started", e)
	}
	var p signalPayload
	if cause, ok := c.accepted[e.cause]; !ok || json.Unmarshal(cause.payload, &p) != nil || !slices.Contains(signals, p.SignalType) {
		c.fault("%s is caused by the signal %q, which is no accepted %s", e, e.cause, strings.Join(signals, " or "))
	}
	if key := e.kind + " " + e.cause; c.answered[key] {
		c.fault("%s answers the signal %s again", e, e.cause)
	} else {
		c.answered[key] = true
	}
}

func (c *checker) signal(e event) {
	var p signalPayload
	if err := json.Unmarshal(e.payload, &p); err != nil {
		c.fault("%s cannot be read: %v", e, err)
		return
	}
	c.accepted[e.cause] = e
	switch p.SignalType {
	case "RETRY_STEP":
		c.step(e.step).retry = p.NextLogicalAttemptID
	case "SKIP_STEP":
		c.step(e.step).skip = true
	}
}

// begin checks an event with which a step begins.
func (c *checker) begin(e event) {
	if c.paused {
		c.fault("%s comes while the run is paused", e)
	}
	if c.plan == nil || c.plan.Step(e.step) == nil {
		c.fault("%s is of a step that the plan does not have, or the plan cannot be executed", e)
		return
	}
	s := c.open(e)
	if s.begun || s.outcome != "" {
		c.fault("%s comes again in its logical attempt, or after its end", e)
	}
	s.begun, c.begun = true, true
	of := c.plan.Step(e.step)
	for _, id := range of.DependsOn {
		on := c.step(id)
		if on.outcome == "" || on.outcome != plan.Success && len(of.When) == 0 {
			c.fault("%s comes while the step %s that it depends on is %q", e, id, on.outcome)
		}
	}
}

// open returns the attempt of a step that an event belongs to, which may begin with it.
func (c *checker) open(e event) *stepHistory {
	s := c.step(e.step)
	switch {
	case e.logical == s.logical:
	case e.logical == s.logical+1 && (s.retry == e.logical && s.outcome == plan.Failed || s.outcome == plan.Skipped && c.retried(e.step) ||
		s.skip && s.begun && s.outcome == "" && e.kind == contract.StepSkipped):
		*s = stepHistory{logical: e.logical, skip: s.skip}
	default:
		c.fault("%s has a logical attempt that no signal has asked for: the step is in attempt %d", e, s.logical)
		if e.logical > s.logical {
			*s = stepHistory{logical: e.logical}
		}
	}
	return s
}

// retried reports whether a step depends on one that is in a later logical attempt than its first.
func (c *checker) retried(id string) bool {
	if c.plan == nil || c.plan.Step(id) == nil {
		return false
	}
	for _, on := range c.plan.Step(id).DependsOn {
		if c.step(on).logical > 1 || c.retried(on) {
			return true
		}
	}
	return false
}

// finish checks an event with which a step ends.
func (c *checker) finish(e event) {
	s := c.open(e)
	if s.outcome != "" {
		c.fault("%s comes after the step has ended as %s", e, s.outcome)
		return
	}
	switch e.kind {
	case contract.StepSkipped:
		s.outcome = plan.Skipped
		if s.begun || !s.skip && !c.skippable(e.step) {
			c.fault("%s comes in an attempt that has begun, or without a SKIP_STEP and a step that has not succeeded", e)
		}
		return
	case contract.StepCompleted:
		s.outcome = plan.Success
		if from := e.from(); from != nil {
			c.takeOver(e, s, from)
			return
		}
	case contract.StepFailed:
		s.outcome = plan.Failed
	default:
		var p struct{ Outcome string }
		if s.outcome = plan.Failed; json.Unmarshal(e.payload, &p) == nil && p.Outcome == "SUCCESS" {
			s.outcome = plan.Success
		}
	}
	if !s.begun {
		c.fault("%s comes without a StepStarted", e)
	}
	if e.kind != contract.StepAttested {
		c.executed(e)
	}
}

// skippable reports whether the plan may skip a step: one that it depends on has not succeeded, or
// it has a condition, and all of them have ended.
func (c *checker) skippable(id string) bool {
	if c.plan == nil || c.plan.Step(id) == nil {
		return false
	}
	of, may := c.plan.Step(id), false
	for _, on := range of.DependsOn {
		if c.step(on).outcome == "" {
			return false
		}
		may = may || c.step(on).outcome != plan.Success
	}
	return may || len(of.When) > 0
}

// executed wants an execution with the attempts and the outcome of an event.
func (c *checker) executed(e event) {
	var seen []string
	for i := range c.executions {
		x := &c.executions[i]
		if x.step != e.step {
			continue
		}
		failed := x.failed && (!x.stopped || c.stopping() || c.plan != nil && c.plan.Step(x.step).Timeout > 0)
		if x.logical == e.logical && x.engine == e.engine && (e.kind == contract.StepCompleted && x.succeeded || e.kind != contract.StepCompleted && failed) {
			return
		}
		seen = append(seen, x.String())
	}
	c.fault("%s has the attempts of no execution that has ended so: %v", e, seen)
}

// stopping reports whether the run is to be cancelled: then its executions end.
func (c *checker) stopping() bool {
	for _, e := range c.accepted {
		var p signalPayload
		if json.Unmarshal(e.payload, &p) == nil && (p.SignalType == "CANCEL" || p.SignalType == "EMERGENCY_STOP") {
			return true
		}
	}
	return c.cancelled
}

// checkEnd compares the end of a run with its steps and its signals.
func (c *checker) checkEnd() {
	if (c.end == contract.RunCancelled) != c.stopping() {
		c.fault("the run ends with %s, and to be cancelled is %v", c.end, c.stopping())
	}
	if c.plan == nil || c.end == contract.RunCancelled || strings.HasPrefix(failureCode(c.events), "PLAN_") {
		return
	}
	var failed []string
	for i := range c.plan.Steps {
		switch c.step(c.plan.Steps[i].ID).outcome {
		case plan.Failed:
			failed = append(failed, c.plan.Steps[i].ID)
		case "":
			c.fault("the run ends with %s, and step %s has not ended", c.end, c.plan.Steps[i].ID)
		}
	}
	if (c.end == contract.RunFailed) != (len(failed) > 0) {
		c.fault("the run ends with %s, and the steps that have failed are %v", c.end, failed)
	}
}

// checkExecutions compares what was executed with the rest of the run.
func (c *checker) checkExecutions() {
	successes, last := map[string]int{}, map[string]uint32{}
	for i := range c.executions {
		x := &c.executions[i]
		attempt := fmt.Sprintf("%s %d", x.step, x.logical)
		if x.succeeded {
			successes[attempt]++
		}
		if in := x.process + " " + attempt; x.engine <= last[in] {
			c.fault("%s is executed after attempt %d of the same process", x, last[in])
		} else {
			last[in] = x.engine
		}
		if c.step(x.step).taken > 0 {
			c.fault("%s is executed, and the run has taken the step over", x)
		}
		c.checkUpstream(x)
	}
	for attempt, n := range successes {
		if n > 1+c.kills {
			c.fault("logical attempt %s was executed %d times to its success, over %d kills", attempt, n, c.kills)
		}
	}
}

// checkUpstream wants the outputs of the steps that a step depends on.
func (c *checker) checkUpstream(x *execution) {
	if c.plan == nil || c.plan.Step(x.step) == nil {
		c.fault("%s is executed, and the plan does not have it", x)
		return
	}
	for _, id := range c.plan.Step(x.step).DependsOn {
		if c.plan.Step(id).Type == plan.Compute || c.step(id).outcome != plan.Success {
			continue
		}
		var got struct {
			Of      string
			Logical uint32
		}
		logical := cmp.Or(c.step(id).taken, c.step(id).logical)
		if err := json.Unmarshal(x.upstream[id], &got); err != nil || got.Of != id || got.Logical != logical {
			c.fault("%s is executed with the output %s of step %s, want %s", x, x.upstream[id], id, outputOf(id, logical))
		}
	}
}

// verify checks all runs of the scenario.
func (b *bed) verify() {
	b.t.Helper()
	for _, run := range b.runs {
		h := history{run: run, events: b.events(run), plan: b.plans[run], executions: b.of(run), kills: b.kills, rerunOf: b.reruns[run]}
		if h.rerunOf != "" {
			h.past = b.events(h.rerunOf)
		}
		planID := ""
		got, err := b.log.GetRun(b.t.Context(), &runlogv1.GetRunRequest{RunId: run})
		if err != nil {
			b.t.Fatal(err)
		}
		planID = got.GetPlanRef().GetPlanId()
		h.scope = strings.Join([]string{b.env.Tenant, b.env.Project, b.env.Environment, planID, "1"}, "/")
		b.mu.Lock()
		h.cancelled = b.cancelled[run]
		faults := append(check(h), b.faults[run]...)
		b.mu.Unlock()
		if ref := string(refIn(h.events)); ref != got.GetEngineRunRef() && got.GetEngineRunRef() != "" {
			faults = append(faults, fmt.Sprintf("RunStarted has the reference %q, and the run %q", ref, got.GetEngineRunRef()))
		}
		snapshot, err := b.log.GetSnapshot(b.t.Context(), &runlogv1.GetSnapshotRequest{RunId: run})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, i := range snapshot.GetSnapshot().GetInconsistencies() {
			faults = append(faults, fmt.Sprintf("the snapshot has an inconsistency: %v", i))
		}
		for _, f := range faults {
			b.t.Errorf("run %s: %s", run, f)
		}
		if len(faults) > 0 {
			b.t.Errorf("run %s has the events %v", run, h.events)
		}
	}
}
