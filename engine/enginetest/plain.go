package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/proto/contract"
)

// plain are the scenarios beside the stories.
var plain = []scenario{
	{"Describes", describes}, {"Order", order}, {"SideBySide", sideBySide}, {"Exhausted", exhausted}, {"StartedTwice", startedTwice},
	{"UnknownReference", unknownReference}, {"CancelRun", cancelRun}, {"UnknownSignals", unknownSignals},
	{"PlanFaults", planFaults}, {"ExpiredPlan", expiredPlan}, {"SwappedPlan", swappedPlan},
	{"Attestation", attestation}, {"LostAnswers", lostAnswers}, {"ServerRestarts", serverRestarts}, {"RefusedRerun", refusedRerun},
}

// known are the signals that the log knows.
var known = []string{
	"PAUSE", "RESUME", "CANCEL", "RETRY_STEP", "SKIP_STEP", "UPDATE_PARAMS", "UPDATE_TARGET", "ESCALATE_ALERT", "INJECT_OVERRIDE", "EMERGENCY_STOP",
}

// describes: an adapter can be reached, and says what it can do.
func describes(b *bed) {
	p := b.open(0, false)
	if err := p.Ping(b.t.Context()); err != nil {
		b.t.Errorf("Ping: %v", err)
	}
	c := p.Capabilities()
	if c.Adapter == "" {
		b.t.Error("Capabilities.Adapter is empty: it is the engineType of runs")
	}
	if _, err := plan.ParseVersion(c.SchemaVersion); err != nil {
		b.t.Errorf("Capabilities.SchemaVersion: %v", err)
	}
	if !slices.Contains(c.Steps, "executor:test") {
		b.t.Errorf("Capabilities.Steps are %q, without executor:test", c.Steps)
	}
	for _, s := range c.Signals {
		if !slices.Contains(known, s) {
			b.t.Errorf("Capabilities.Signals has %s, which the log does not know", s)
		}
	}
	if c.Knows("PAUSE") != c.Knows("RESUME") {
		b.t.Error("Capabilities.Signals has one of PAUSE and RESUME without the other")
	}
}

// order: each step runs once, after those that it depends on and with their outputs. Conditions
// see outputs.
func order(b *bed) {
	p := b.open(0, false)
	run := b.request(steps(
		step("d", "c a"), step("a", ""), step("b", ""), step("c", "a b"),
		step("yes", "a", `,"when":[{"step":"a","output":"/of","equals":"a"}]`), step("no", "a", `,"when":[{"step":"a","output":"/of","equals":"b"}]`),
	))
	list := b.awaitEnd(run, contract.RunCompleted)
	for _, text := range []string{"StepCompleted d 1.1", "StepCompleted yes 1.1", "StepSkipped no"} {
		if !has(list, text) {
			b.t.Errorf("there is no %s among %v", text, list)
		}
	}
	if n := len(b.of(run)); n != 5 {
		b.t.Errorf("there are %d executions: %v", n, b.of(run))
	}
	b.awaitStatus(p, refIn(list), engine.RunCompleted)
	b.verify()
}

// awaitStatus waits until the adapter tells a state of a run.
func (b *bed) awaitStatus(p *opened, ref engine.EngineRunRef, want engine.RunState) {
	b.t.Helper()
	var w waiting
	for {
		s, err := p.RunStatus(b.t.Context(), ref)
		if err != nil {
			b.t.Fatalf("RunStatus: %v", err)
		}
		if s.State == want {
			return
		}
		b.pass(&w, string(ref), fmt.Sprintf("state %s, but %+v", want, s), nil)
	}
}

// sideBySide: runs at the same time do not disturb each other.
func sideBySide(b *bed) {
	b.open(0, false)
	b.open(0, false)
	b.do = func(_ context.Context, task executor.Task) error {
		if task.RunID == "run-3" && task.StepID == "a" {
			return executor.Fail("BROKEN", "this one")
		}
		return nil
	}
	for range 8 {
		b.request(steps(step("a", ""), step("b", "a"), step("c", "a"), step("d", "b c")))
	}
	for _, run := range b.runs {
		want := contract.RunCompleted
		if run == "run-3" {
			want = contract.RunFailed
		}
		b.awaitEnd(run, want)
	}
	b.verify()
}

// exhausted: after its last attempt a step fails, once. An executor that panics or does not end in
// time is an attempt that has failed.
func exhausted(b *bed) {
	b.open(0, false)
	b.do = func(ctx context.Context, task executor.Task) error {
		switch task.StepID {
		case "busy":
			return executor.Retry("BUSY", "always")
		case "panics":
			panic("a test")
		case "hangs":
			if task.EngineAttempt == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
		}
		return nil
	}
	for _, tt := range []struct{ steps, end, want string }{
		{step("busy", ""), contract.RunFailed, "StepFailed busy 1.3"},
		{step("panics", ""), contract.RunFailed, "StepFailed panics"},
		{step("hangs", "", `,"timeout":"50ms"`), contract.RunCompleted, "StepCompleted hangs 1.2"},
	} {
		run := b.request(tt.steps)
		if list := b.awaitEnd(run, tt.end); !has(list, tt.want) {
			b.t.Errorf("run %s has no %s: %v", run, tt.want, list)
		}
	}
	b.verifyExecuted()
}

// verifyExecuted is verify for runs with executions that do not return to the suite.
func (b *bed) verifyExecuted() {
	b.t.Helper()
	b.mu.Lock()
	for _, e := range b.executions {
		e.failed = e.failed || !e.succeeded
	}
	b.mu.Unlock()
	b.verify()
}

// startedTwice: starts of a run from everywhere make one run with one reference (ENG-1).
func startedTwice(b *bed) {
	processes := []*opened{b.open(0, false), b.open(0, false)}
	begun := make(chan struct{}, 100)
	b.do = func(context.Context, executor.Task) error { begun <- struct{}{}; return nil }
	id, body := b.document(steps(step("a", ""), step("b", "a")))
	p, _, err := plan.Parse(body, plan.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	ref := b.store(id, body)
	run := b.requestPlan(ref, p)
	var mu sync.Mutex
	refs := map[engine.EngineRunRef]bool{}
	start := func(p *opened) {
		got, err := p.StartRun(b.t.Context(), ref, engine.RunContext{RunID: run, TenantID: b.env.Tenant, ProjectID: b.env.Project, EnvironmentID: b.env.Environment})
		mu.Lock()
		defer mu.Unlock()
		if refs[got] = true; err != nil {
			b.t.Errorf("StartRun: %v", err)
		}
	}
	var starting sync.WaitGroup
	for i := range 6 {
		starting.Go(func() { start(processes[i%2]) })
	}
	starting.Wait()
	list := b.awaitEnd(run, contract.RunCompleted)
	start(processes[0]) // The run has ended.
	refs[refIn(list)] = true
	if len(refs) != 1 {
		b.t.Errorf("the run has the references %v", refs)
	}
	if n := len(begun); n != 2 {
		b.t.Errorf("%d steps were executed, want 2: %v", n, b.of(run))
	}
	b.verify()
}

// unknownReference: an adapter does not know what it has not started.
func unknownReference(b *bed) {
	p := b.open(0, false)
	for _, ref := range []engine.EngineRunRef{"", "nowhere/1", refLike(b, p)} {
		_, err := p.RunStatus(b.t.Context(), ref)
		for name, err := range map[string]error{"RunStatus": err, "CancelRun": p.CancelRun(b.t.Context(), ref, "a test"), "Signal": p.Signal(b.t.Context(), ref, engine.Signal{ID: "s", Type: "CANCEL"})} {
			if !errors.Is(err, engine.ErrNoRun) {
				b.t.Errorf("%s of the reference %q: %v, want engine.ErrNoRun", name, ref, err)
			}
		}
	}
}

// refLike returns a reference as the adapter makes them, of a run that does not exist.
func refLike(b *bed, p *opened) engine.EngineRunRef {
	run := b.request(step("a", ""))
	return refIn(b.awaitEnd(run, contract.RunCompleted)) + "0"
}

// cancelRun: CancelRun ends a run with its executions, and changes nothing afterwards.
func cancelRun(b *bed) {
	p := b.open(0, false)
	b.do = func(ctx context.Context, task executor.Task) error {
		if task.RunID == "run-2" {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	run := b.request(steps(step("a", ""), step("b", "a")))
	ref := b.ref(run)
	b.awaitEvent(run, "StepStarted a")
	b.awaitStatus(p, ref, engine.RunRunning)
	b.mu.Lock()
	b.cancelled[run] = true
	b.mu.Unlock()
	if err := p.CancelRun(b.t.Context(), ref, "a test"); err != nil {
		b.t.Fatalf("CancelRun: %v", err)
	}
	b.awaitEnd(run, contract.RunCancelled)
	b.awaitStatus(p, ref, engine.RunCancelled)
	completed := b.request(step("a", ""))
	list := b.awaitEnd(completed, contract.RunCompleted)
	for run, ref := range map[string]engine.EngineRunRef{run: ref, completed: refIn(list)} {
		before := len(b.events(run))
		if err := p.CancelRun(b.t.Context(), ref, "again"); err != nil {
			b.t.Errorf("CancelRun of a run that has ended: %v", err)
		}
		if after := b.events(run); len(after) != before {
			b.t.Errorf("CancelRun of a run that has ended leaves %v", after[before:])
		}
	}
	b.verify()
}

// unknownSignals: signals that have no effect are refused, and leave the run alone.
func unknownSignals(b *bed) {
	p := b.open(0, false)
	free := make(chan struct{})
	b.do = func(ctx context.Context, _ executor.Task) error {
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	run := b.request(steps(step("a", ""), step("b", "a")))
	ref := b.ref(run)
	b.awaitEvent(run, "StepStarted a")
	for i, kind := range append([]string{"FROBNICATE", "", "pause"}, known...) {
		if !p.Capabilities().Knows(kind) {
			b.unsupported(p, ref, engine.Signal{ID: fmt.Sprint("unknown-", i), Type: kind, StepID: "a"})
		}
	}
	if p.Capabilities().Knows("UPDATE_PARAMS") {
		b.send(run, ask{kind: "UPDATE_PARAMS", nth: 1})
	}
	if p.Capabilities().Knows("SKIP_STEP") { // The log does not know the plan.
		if s := b.send(run, ask{kind: "SKIP_STEP", step: "nowhere", nth: 1}); !b.deliver(p, ref, []engine.Signal{s}) {
			b.t.Error("the signal is not delivered")
		}
	}
	close(free)
	b.awaitEnd(run, contract.RunCompleted)
	b.verify()
}

// lostAnswers: calls of the log that are sent twice, or whose answers are lost, change nothing.
func lostAnswers(b *bed) {
	b.open(0, false)
	b.env.Server.DuplicateRequests(true)
	b.do = func(_ context.Context, task executor.Task) error {
		b.env.Server.LoseAnswers(1)
		if task.StepID == "a" && task.EngineAttempt == 1 {
			return executor.Retry("BUSY", "not yet")
		}
		return nil
	}
	for range 3 {
		b.awaitEnd(b.request(steps(step("a", ""), step("b", "a"), step("c", ""))), contract.RunCompleted)
	}
	b.verify()
}

// serverRestarts: a run goes on when the server is back.
func serverRestarts(b *bed) {
	b.open(0, false)
	restarted := make(chan struct{})
	b.do = func(context.Context, executor.Task) error {
		<-restarted
		return nil
	}
	run := b.request(steps(step("a", ""), step("b", "a")))
	b.awaitEvent(run, "StepStarted a")
	b.env.Server.Restart()
	close(restarted)
	b.awaitEnd(run, contract.RunCompleted)
	b.verify()
}
