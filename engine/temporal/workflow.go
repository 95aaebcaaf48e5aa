package temporal

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"runlog/engine"
	"runlog/engine/plan"
	"runlog/proto/contract"
)

// WorkflowType is that of all runs.
const WorkflowType = "runlog"

// interpreter walks one plan.
type interpreter struct {
	in      Input
	cursor  Cursor
	plan    *plan.Plan
	seen    map[string]bool // steps whose outputs conditions look at
	flights []*flight
	landed  int // steps that have ended since the history began
	counter int // of steps that were scheduled since
	bells   bells
	version workflow.Version
	loaded  *loaded  // with the begin; nil: the plan is to be fetched
	summary *summary // with the end; nil: it is to be asked for
	// runCtx ends when the workflow is cancelled in Temporal; ctx never does, so that the end can
	// still be told.
	runCtx, ctx workflow.Context
	// stop is why the run ends before its plan does; nil: it does not.
	stop *ending
	// ended is how the log says that the run has ended; empty: it has not.
	ended engine.RunState
}

// ending is the end of a run that is not that of its plan.
type ending struct {
	kind    string // RunFailed or RunCancelled
	cause   string // signal
	payload json.RawMessage
	now     bool // steps are not waited for
}

// interpret is the workflow: it runs a plan to its end, or continues as new.
func interpret(runCtx workflow.Context, in Input) (summary, error) {
	ctx, _ := workflow.NewDisconnectedContext(runCtx)
	w := &interpreter{in: in, cursor: in.Cursor, runCtx: runCtx, ctx: ctx}
	w.bells.open(ctx)
	err := w.walk()
	if errors.Is(err, errContinue) {
		in.Cursor, in.Fence = w.cursor, w.in.Fence
		return summary{}, workflow.NewContinueAsNewError(runCtx, WorkflowType, in)
	}
	if err != nil {
		return summary{}, err
	}
	return w.result()
}

var errContinue = errors.New("continue as new")

func (w *interpreter) walk() error {
	if err := w.begin(); err != nil || w.ended != "" {
		return err
	}
	if err := w.fetch(); err != nil || w.ended != "" {
		return err
	}
	for w.ended == "" {
		if err := w.listen(); err != nil {
			return err
		}
		if w.runCtx.Err() != nil && w.stop == nil {
			w.end(&ending{kind: contract.RunCancelled, payload: object("reason", "the workflow was cancelled in Temporal")})
		}
		next := w.look()
		w.schedule(next.run)
		switch {
		case w.ended != "":
		case w.stop != nil && (len(w.flights) == 0 || w.stop.now):
			if _, err := w.tell(true, Event{Type: w.stop.kind, Logical: 1, Cause: w.stop.cause, Payload: w.stop.payload}); err != nil {
				return err
			}
		case w.stop == nil && next.skips(w.cursor.Paused):
			if err := w.skip(next); err != nil {
				return err
			}
		case w.stop == nil && !w.cursor.Paused && next.over:
			if err := w.conclusion(next); err != nil {
				return err
			}
		case len(w.flights) == 0 && w.full():
			return errContinue
		default:
			if err := w.wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin reads how far the log has the run. A continuation knows it.
func (w *interpreter) begin() error {
	// Each change of behaviour gets a version of its own. A replay test has histories of all.
	// 2: the plan comes with the begin, and the summary with the end.
	w.version = workflow.GetVersion(w.ctx, "interpreter", workflow.DefaultVersion, 2)
	if w.cursor.Steps == nil {
		w.cursor.Steps = map[string]Step{}
	}
	if w.cursor.Begun {
		w.bells.rung = true // Signals may have come in between.
		return nil
	}
	var b begun
	in := beginInput{Run: w.in.Run, Ref: w.in.Ref, Fence: w.in.Fence}
	if w.version >= 2 {
		in.Plan = &w.in.Plan
	}
	if err := w.do(beginRunName, &b, in); err != nil {
		return err
	}
	w.cursor, w.ended, w.loaded = b.Cursor, b.Ended, b.Plan
	w.fence(b.Fence)
	if w.cursor.Steps == nil {
		w.cursor.Steps = map[string]Step{}
	}
	w.bells.signals = b.Signals
	return nil
}

// fetch takes the plan. One that can never be executed ends the run (PLAN-2).
func (w *interpreter) fetch() (err error) {
	if w.loaded == nil {
		if w.loaded, err = w.download(); err != nil {
			return err
		}
	}
	if w.loaded.Error != nil {
		w.end(&ending{kind: contract.RunFailed, payload: raw("error", w.loaded.Error)})
		return nil
	}
	if w.plan, err = w.loaded.Bones.plan(); err != nil {
		// The skeleton of a valid plan is valid. A panic fails the task, and not the workflow.
		panic(err)
	}
	w.seen = seen(w.plan)
	if w.plan.Waits {
		w.needHold()
	}
	return nil
}

// needHold keeps workers that know nothing of onFailure from going on with the workflow, and from
// ending its run in place of holding it: a replay fails where the history has a side effect that
// they do not have. A marker of workflow.GetVersion would not do, because a replay skips those that
// are not asked for.
func (w *interpreter) needHold() {
	workflow.SideEffect(w.ctx, func(workflow.Context) any { return plan.OnFailureWait })
}

// download has activities read the plan: that of a continuation, or one that is large.
func (w *interpreter) download() (*loaded, error) {
	var l loaded
	var r report
	err := w.do(fetchPlanName, &l.Bones, w.in.Plan)
	if err == nil {
		err = w.do(validatePlanName, &r, w.in.Plan, w.in.Run)
	}
	if l.Error = r.Error; err != nil {
		l.Error = planDetails(err)
	}
	if l.Error != nil {
		return &l, nil
	}
	return &l, err
}

// planDetails returns the error of RunFailed from an error about the plan; nil: it is another one.
func planDetails(err error) json.RawMessage {
	app, ok := errors.AsType[*sdk.ApplicationError](err)
	if !ok || app.Type() != typePlan {
		return nil
	}
	var details json.RawMessage
	if app.Details(&details) != nil {
		return failureJSON("PLAN_INVALID", app.Message())
	}
	return details
}

// decided are the decisions of the walk: steps to run, to be skipped, and whether it is over.
type decided struct {
	run    []*plan.Step
	skip   []plan.Decision
	over   bool // nothing runs, or will
	failed bool
}

const reasonSignal = "SIGNAL"

// skips reports whether steps are to be skipped now. While a step has failed and others go on, a
// RETRY_STEP may change what depends on it.
// A pause holds up what follows from the plan alone.
func (d *decided) skips(paused bool) bool {
	for _, next := range d.skip {
		if next.Reason == reasonSignal || !paused && (!d.failed || d.over) {
			return true
		}
	}
	return false
}

// look walks the plan with what is known (PLAN-5).
func (w *interpreter) look() (d decided) {
	if w.plan == nil { // It can never be executed.
		return d
	}
	walk := plan.NewWalk(w.plan)
	open := 0
	for next, ok := walk.Next(); ok; next, ok = walk.Next() {
		id := next.Step.ID
		s := w.cursor.Steps[id]
		switch {
		case next.Kind == plan.Skip:
			if s.Status == "" {
				d.skip = append(d.skip, next)
			}
		case s.ByPlan: // A step that it depends on was retried, and it runs now.
			w.cursor.Steps[id] = Step{Attempt: s.attempt() + 1}
			d.run = append(d.run, next.Step)
		case s.Status != "":
			d.failed = d.failed || s.Status == plan.Failed
			// The walk has just decided the step, so that it takes the result.
			_ = walk.Done(id, plan.Result{Status: s.Status, Output: s.Output})
		case w.flying(id):
			open++
		case s.Skip != "":
			// What depends on it is decided once it is told.
			d.skip = append(d.skip, plan.Decision{Kind: plan.Skip, Step: next.Step, Reason: reasonSignal})
			open++
		default:
			d.run = append(d.run, next.Step)
		}
	}
	d.over = open == 0 && len(d.run) == 0
	return d
}

func (w *interpreter) flying(id string) bool {
	for _, f := range w.flights {
		if f.step.ID == id {
			return true
		}
	}
	return false
}

// wait returns once a step has ended, a bell has rung, or the workflow was cancelled.
func (w *interpreter) wait() error {
	s := workflow.NewSelector(w.ctx)
	var err error
	for _, f := range w.flights {
		s.AddFuture(f.future, func(workflow.Future) {
			if err == nil {
				err = w.land(f)
			}
		})
	}
	w.bells.add(w.ctx, s)
	if w.stop == nil {
		s.AddReceive(w.runCtx.Done(), func(workflow.ReceiveChannel, bool) {})
	}
	s.Select(w.ctx)
	return err
}

func (w *interpreter) skipped(d plan.Decision) *Event {
	s := w.cursor.Steps[d.Step.ID]
	return &Event{Type: contract.StepSkipped, StepID: d.Step.ID, Logical: s.attempt(), Cause: s.Skip,
		Payload: object("reason", skipText[d.Reason], "reasonCode", d.Reason)}
}

var skipText = map[string]string{
	plan.ReasonDependency: "a step that it depends on has not succeeded", plan.ReasonCondition: "its condition does not hold",
	reasonSignal: "an operator has skipped it",
}

// skip tells of the steps that are skipped. While a step may still be retried, what depends on it
// is not skipped: only the end of the run does it, unless a signal comes before.
func (w *interpreter) skip(d decided) error {
	const most = 500 // events of an append
	var list []plan.Decision
	var events []Event
	for _, next := range d.skip {
		if next.Reason == reasonSignal { // It may have begun.
			return w.leaveOut(next)
		}
		if len(list) < most {
			list, events = append(list, next), append(events, *w.skipped(next))
		}
	}
	stored, err := w.tell(d.failed, events...)
	if err != nil || !stored {
		return err
	}
	for _, next := range list {
		s := w.cursor.Steps[next.Step.ID]
		s.Status, s.ByPlan = plan.Skipped, true
		w.cursor.Steps[next.Step.ID] = s
	}
	return nil
}

// leaveOut skips a step that an operator wants to be skipped.
func (w *interpreter) leaveOut(d plan.Decision) error {
	in := concludeInput{Step: stepInput{Run: w.in.Run, Ref: w.in.Ref, Fence: w.in.Fence, StepID: d.Step.ID,
		Attempt: w.cursor.Steps[d.Step.ID].attempt()}, Event: w.skipped(d)}
	var end stepEnd
	if err := w.do(concludeStepName, &end, in); err != nil {
		return err
	}
	if end.Status == "" { // The run has ended.
		_, err := w.tell(false)
		return err
	}
	w.take(d.Step.ID, end)
	return nil
}

// conclusion ends a run at the end of its plan, or holds it if a step has failed and the plan
// waits.
func (w *interpreter) conclusion(d decided) error {
	in := w.tellInput(true, w.verdict(d))
	in.Holds = d.failed && w.plan.Waits
	_, err := w.ask(in)
	return err
}

// verdict is the event that ends a run at the end of its plan.
func (w *interpreter) verdict(d decided) Event {
	if !d.failed {
		return Event{Type: contract.RunCompleted, Logical: 1}
	}
	var names []string
	for i := range w.plan.Steps {
		if id := w.plan.Steps[i].ID; w.cursor.Steps[id].Status == plan.Failed && len(names) < 10 {
			names = append(names, id)
		}
	}
	return Event{Type: contract.RunFailed, Logical: 1, Payload: raw("error", failureJSON("STEP_FAILED", "steps have failed: "+strings.Join(names, ", ")))}
}

// end ends the run once its steps have ended, which it cancels.
func (w *interpreter) end(why *ending) {
	if w.stop == nil || why.now {
		w.stop = why
	}
	for _, f := range w.flights {
		f.cancel()
	}
}

// tell appends events, and takes the signals that have come since. An event that ends the run is
// not appended if there are any that matter.
func (w *interpreter) tell(ends bool, events ...Event) (stored bool, err error) {
	return w.ask(w.tellInput(ends, events...))
}

func (w *interpreter) tellInput(ends bool, events ...Event) tellInput {
	// A CANCEL has come before this end; whatever else has come is too late.
	return tellInput{Run: w.in.Run, Ref: w.in.Ref, Fence: w.in.Fence, Seen: w.cursor.Seen, Status: w.cursor.Status, Held: w.cursor.Held,
		Events: events, Ends: ends && w.stop == nil, Sum: w.version >= 2}
}

// ask has an activity tell, and takes its answer.
func (w *interpreter) ask(in tellInput) (stored bool, err error) {
	var t told
	if err := w.do(tellRunName, &t, in); err != nil {
		return false, err
	}
	w.fence(t.Fence)
	w.cursor.Seen, w.cursor.Status, w.ended = t.Seen, t.Status, t.Ended
	w.summary = t.Summary
	w.follow(t.Status)
	w.cursor.Held = w.cursor.Paused && t.Held
	w.bells.signals = append(w.bells.signals, t.Signals...)
	return t.Stored, nil
}

// follow takes a pause or a resume that another writer has appended. Histories of earlier versions
// have no status.
func (w *interpreter) follow(status string) {
	if status == "" || w.ended != "" || halted(status) == w.cursor.Paused {
		return
	}
	if w.cursor.Paused = halted(status); w.cursor.Paused {
		w.show("PAUSED")
	} else {
		w.show("RUNNING")
	}
}

// show puts the status where people search for workflows. The attribute is registered: the start of
// the workflow has set it.
func (w *interpreter) show(status string) {
	if err := workflow.UpsertTypedSearchAttributes(w.ctx, statusAttribute.ValueSet(status)); err != nil {
		panic(err)
	}
}

func (w *interpreter) fence(fence uint64) { w.in.Fence = max(w.in.Fence, fence) }

// maxDownload bounds a try to download a plan.
const maxDownload = 10 * time.Minute

// do has an activity done that only the log or the source of plans can hold up. It is tried until
// it succeeds, or until no other try can.
func (w *interpreter) do(name string, answer any, input ...any) error {
	o := workflow.ActivityOptions{
		StartToCloseTimeout: w.in.Settings.Heartbeat,
		RetryPolicy:         &sdk.RetryPolicy{InitialInterval: 200 * time.Millisecond, MaximumInterval: 5 * time.Second},
	}
	switch name {
	case beginRunName, fetchPlanName, validatePlanName: // A download may take long.
		o.StartToCloseTimeout, o.HeartbeatTimeout = maxDownload, w.in.Settings.Heartbeat
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(w.ctx, o), name, input...).Get(w.ctx, answer)
}

// result is what Temporal shows of a run that has ended.
func (w *interpreter) result() (s summary, err error) {
	if w.summary != nil {
		s = *w.summary
	} else if err := w.do(snapshotName, &s, w.in.Run, w.cursor.Seen); err != nil {
		return s, err
	}
	switch w.ended {
	case engine.RunFailed:
		return s, sdk.NewNonRetryableApplicationError("the run has failed: see its snapshot", "RUN_FAILED", nil, s)
	case engine.RunCancelled:
		return s, sdk.NewCanceledError(s)
	}
	return s, nil
}

// object returns a JSON object of texts, from names and values in turn.
func object(pairs ...string) json.RawMessage {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	text, err := json.Marshal(m)
	if err != nil { // Texts have a JSON form.
		panic(err)
	}
	return text
}

func raw(name string, value json.RawMessage) json.RawMessage {
	text, err := json.Marshal(map[string]json.RawMessage{name: value})
	if err != nil {
		panic(err)
	}
	return text
}
