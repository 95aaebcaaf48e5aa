package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// story is a run that is steered by signals. It is told once without a kill, and then with a kill
// at each action of a process.
type story struct {
	name  string
	steps string
	// holds says that the plan has the onFailure WAIT.
	holds bool
	// past are the events of the run that this one reruns, between its start and its failure. nil:
	// it is no rerun.
	past []event
	// do executes a step; nil: it succeeds.
	do func(ctx context.Context, b *bed, task executor.Task) error
	// react returns the signals that are due after some events. Each is sent once.
	react func(list []event) []ask
	// signals are the types that the adapter must claim.
	signals []string
	end     string
	// want are events that the run must have, and never those that it must not have. They are told
	// by their type and step, with or without attempts. exact ones are compared without a kill.
	want, exact, never []string
}

// ask is a signal to send.
type ask struct {
	kind, step string
	nth        int // of the type in the run
	// polls is how often the suite looks at the run before it sends the signal.
	polls int
}

func (a ask) key(run string) string { return fmt.Sprintf("%s-%s-%d", run, a.kind, a.nth) }

// gate returns a channel that is closed once a signal is accepted.
func (b *bed) gate(key string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.accepted[key] == nil {
		b.accepted[key] = make(chan struct{})
	}
	return b.accepted[key]
}

// after waits until the log has accepted a signal to a run, or ctx ends.
func (b *bed) after(ctx context.Context, run, kind string, nth int) error {
	select {
	case <-b.gate(ask{kind: kind, nth: nth}.key(run)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends a signal to the log, which must accept it.
func (b *bed) send(run string, a ask) engine.Signal {
	b.t.Helper()
	res, err := b.log.SendSignal(b.t.Context(), &runlogv1.SendSignalRequest{
		RunId: run, SignalId: a.key(run), SignalType: a.kind, StepId: a.step, Reason: "a test"})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		b.t.Fatalf("run %s does not accept %s: %s %v; its events are %v", run, a.kind, res.GetRejectReason(), err, b.events(run))
	}
	close(b.gate(a.key(run)))
	return engine.Signal{ID: a.key(run), Type: a.kind, StepID: a.step, Reason: "a test", LogicalAttemptID: res.GetNextLogicalAttemptId()}
}

// tell drives a run to its end. Whenever a process is killed, another one goes on, which is killed
// at the next action of kills. Unless engine.Signals hands signals over, all of them are delivered
// again with each new one, and to each new process.
func (b *bed) tell(run string, s *story, kills ...int) []event {
	b.t.Helper()
	var w waiting
	var signals []engine.Signal
	asked, seen, delivered := map[ask]bool{}, map[ask]int{}, false
	for {
		p, list := b.live(), b.events(run)
		if p.Killed() {
			b.bury(p)
			next := 0
			if len(kills) > 0 {
				next, kills = kills[0], kills[1:]
			}
			b.open(next, next%2 == 0)
			w, delivered = waiting{}, false
			continue
		}
		if ended(list) {
			return list
		}
		if s.react != nil {
			for _, a := range s.react(list) {
				if seen[a]++; asked[a] || seen[a] <= a.polls {
					continue
				}
				asked[a], delivered = true, false
				signals = append(signals, b.send(run, a))
			}
		}
		if !delivered && !b.bridged {
			delivered = b.deliver(p, refIn(list), signals)
		}
		b.pass(&w, run, "end", list)
	}
}

// deliver hands signals over to the adapter of a process, and reports whether it has taken all.
func (b *bed) deliver(p *opened, ref engine.EngineRunRef, signals []engine.Signal) bool {
	b.t.Helper()
	for _, s := range signals {
		if err := p.Signal(p.ctx, ref, s); err != nil {
			if !p.Killed() {
				b.t.Fatalf("the adapter does not take %s: %v", s.Type, err)
			}
			return false
		}
	}
	return true
}

// play tells a story once, and checks its events.
func (b *bed) play(s *story, kills ...int) {
	b.t.Helper()
	b.do = func(ctx context.Context, task executor.Task) error {
		if s.do == nil {
			return nil
		}
		return s.do(ctx, b, task)
	}
	ref, p := b.planned(s.steps, s.members())
	var run string
	if s.past == nil {
		run = b.requestPlan(ref, p)
	} else {
		run = b.rerun(ref, p, s.past)
	}
	list := b.tell(run, s, kills...)
	want := append([]string{s.end}, s.want...)
	if b.kills == 0 {
		want = append(want, s.exact...)
	}
	for _, text := range want {
		if !has(list, text) {
			b.t.Errorf("run %s has no %s: %v", run, text, list)
		}
	}
	for _, text := range s.never {
		if has(list, text) {
			b.t.Errorf("run %s has a %s: %v", run, text, list)
		}
	}
}

// members are those of the plan beside its steps.
func (s *story) members() string {
	if s.holds {
		return `,"onFailure":"WAIT"`
	}
	return ""
}

// claims reports whether the adapter of a process claims all signals of a story, its plan, and to
// take over what it reruns.
func (s *story) claims(p *opened) bool {
	if s.holds && !slices.Contains(p.Capabilities().Steps, plan.CapabilityWait) {
		return false
	}
	if s.past != nil && !p.Capabilities().Reruns {
		return false
	}
	for _, signal := range s.signals {
		if !p.Capabilities().Knows(signal) {
			return false
		}
	}
	return true
}

// once tells a story without a kill.
func (s *story) once(b *bed) {
	p := b.open(0, false)
	switch {
	case s.holds && !s.claims(p):
		id, body := b.document(s.steps, s.members())
		if code := failureCode(b.awaitEnd(b.requestPlan(b.store(id, body), nil), contract.RunFailed)); !strings.HasPrefix(code, "PLAN_") {
			b.t.Errorf("a plan with the onFailure WAIT fails with the code %q, want one that begins with PLAN_", code)
		}
		b.verify()
		return
	case s.past != nil && !s.claims(p):
		return // The engine executes all steps of each run.
	case !s.claims(p):
		s.refused(b, p)
		return
	}
	b.play(s)
	b.verify()
}

// bridge tells a story in which engine.Signals of each process hands signals over.
func bridge(tell func(*bed)) func(*bed) {
	return func(b *bed) {
		b.bridged = true
		tell(b)
	}
}

// refused wants the adapter to refuse the signals that it does not claim, without an effect on the
// run.
func (s *story) refused(b *bed, p *opened) {
	begun, free := make(chan struct{}, 1), make(chan struct{})
	b.do = func(ctx context.Context, _ executor.Task) error {
		select {
		case begun <- struct{}{}:
		default:
		}
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	run := b.request(step("a", ""))
	ref := b.ref(run)
	b.awaitEvent(run, "StepStarted a")
	for _, kind := range s.signals {
		if !p.Capabilities().Knows(kind) {
			b.unsupported(p, ref, engine.Signal{ID: "refused-" + kind, Type: kind, StepID: "a"})
		}
	}
	close(free)
	b.awaitEnd(run, contract.RunCompleted)
	b.verify()
}

func (b *bed) unsupported(p *opened, ref engine.EngineRunRef, signal engine.Signal) {
	b.t.Helper()
	err := p.Signal(b.t.Context(), ref, signal)
	if _, ok := errors.AsType[*engine.UnsupportedError](err); !ok {
		b.t.Errorf("the adapter does not claim %s, and answers it with %v, want an *engine.UnsupportedError", signal.Type, err)
	}
}

// minActions is less than what any run takes: a step is executed, and three events are appended.
const minActions = 5

// killed tells a story with a process that is killed at each of its actions, before and after the
// effect, until a process lives to the end of its run.
func (s *story) killed(b *bed) {
	for action := b.first; ; action += b.stride {
		if action > 500 {
			b.t.Fatalf("a run of %s takes more than 500 actions", s.name)
		}
		lived := 0
		for _, late := range []bool{false, true} {
			p := b.open(action, late)
			if !s.claims(p) {
				return // once has shown the refusal
			}
			b.play(s, again(action)...)
			if b.t.Failed() {
				b.verify()
				b.t.Fatalf("killed at action %d, late %v", action, late)
			}
			if !p.Killed() {
				lived++
			}
			b.bury(b.live())
		}
		if lived == 2 {
			if action < minActions {
				b.t.Errorf("a process makes less than %d actions: the suite does not see what the engine does", action)
			}
			break
		}
	}
	b.verify()
}

// again returns when the process after the first one is killed: in each third round, early.
func again(action int) []int {
	if action%3 == 0 {
		return []int{1 + action/3%7}
	}
	return nil
}

// step is a step of a plan that depends on others.
func step(id, dependsOn string, more ...string) string {
	deps := ""
	if dependsOn != "" {
		deps = `,"dependsOn":["` + strings.ReplaceAll(dependsOn, " ", `","`) + `"]`
	}
	return `{"stepId":"` + id + `","type":"test","retry":{"maxAttempts":3,"initial":"1ms","max":"1ms"}` + deps + strings.Join(more, "") + `}`
}

// steps joins steps to a plan.
func steps(list ...string) string { return strings.Join(list, ",") }

func count(list []event, kind string) (n int) {
	for _, e := range list {
		if e.kind == kind {
			n++
		}
	}
	return n
}
