package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/temporal"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Types of errors that workflows tell apart. They are in histories.
const (
	typeForeign      = "RUN_OF_ANOTHER_ENGINE"
	typeInconsistent = "RUN_INCONSISTENT"
	typePlan         = "PLAN" // the details are the error of the run
	typeRefused      = "LOG_REFUSED"
)

// Names of the activities. They are in histories.
const (
	beginRunName     = "beginRun"
	fetchPlanName    = "fetchPlan"
	validatePlanName = "validatePlan"
	executeStepName  = "executeStep"
	concludeStepName = "concludeStep"
	tellRunName      = "tellRun"
	snapshotName     = "compileRunSnapshot"
)

// activities are what workflows have done outside of themselves.
type activities struct {
	o       Options
	plans   cache
	outputs outputs
}

// names returns the activities by their names.
func (a *activities) names() map[string]any {
	return map[string]any{
		beginRunName: a.beginRun, fetchPlanName: a.fetchPlan, validatePlanName: a.validatePlan, executeStepName: a.executeStep,
		concludeStepName: a.concludeStep, tellRunName: a.tellRun, snapshotName: a.compileRunSnapshot,
	}
}

// final makes errors that no other try can change not retryable.
func final(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errForeign) {
		return sdk.NewNonRetryableApplicationError(err.Error(), typeForeign, nil)
	}
	if errors.Is(err, errTaken) {
		return sdk.NewNonRetryableApplicationError(err.Error(), typeInconsistent, nil)
	}
	if failure, ok := errors.AsType[plan.Failure](err); ok && !failure.Retryable() {
		return planError(failure)
	}
	if e, ok := errors.AsType[*client.Error](err); ok && e.Final() && e.Reason != client.ReasonLeaseLost {
		return sdk.NewNonRetryableApplicationError(err.Error(), typeRefused, nil)
	}
	if e, ok := errors.AsType[*contract.Error](err); ok {
		return sdk.NewNonRetryableApplicationError(e.Error(), typeRefused, nil)
	}
	return err
}

// planError is the end of a run whose plan can never be executed (PLAN-2). Its details are the
// error of RunFailed.
func planError(failure plan.Failure) error {
	return sdk.NewNonRetryableApplicationError(failure.Error(), typePlan, nil, detailsOf(failure))
}

func detailsOf(failure plan.Failure) json.RawMessage {
	details, err := failure.MarshalJSON()
	if err != nil {
		details = failureJSON(failure.Code(), failure.Error())
	}
	return details
}

// failureJSON is the error of an event.
func failureJSON(code, message string) json.RawMessage {
	const most = 4 << 10
	if len(message) > most {
		message = message[:most] + "…"
	}
	text, err := json.Marshal(map[string]any{"code": code, "message": message, "retryable": false})
	if err != nil { // Texts have a JSON form.
		panic(err)
	}
	return text
}

type beginInput struct {
	Run   Scope  `json:"run"`
	Ref   string `json:"ref"`
	Fence uint64 `json:"fence,omitempty"`
	// Plan is to be read too. nil: an earlier version reads it by activities of its own.
	Plan *plan.Ref `json:"plan,omitempty"`
}

type begun struct {
	Cursor  Cursor          `json:"cursor"`
	Signals []Signal        `json:"signals,omitempty"`
	Ended   engine.RunState `json:"ended,omitempty"`
	Fence   uint64          `json:"fence,omitempty"`
	// Plan is nil if the workflow has not asked for it, if the run has ended, or if it is large.
	Plan *loaded `json:"plan,omitempty"`
}

// beginRun claims a run for its workflow, appends RunStarted, takes over what the run reruns, and
// returns how far the log has the run, with its plan. A run that has ended stays as it is.
func (a *activities) beginRun(ctx context.Context, in beginInput) (begun, error) {
	l := a.ledger(in.Run, in.Ref, in.Fence)
	h, err := l.begin(ctx)
	if err != nil {
		return begun{}, final(err)
	}
	// What follows may take long.
	defer a.startBeat(ctx).stop()
	var b begun
	var p *plan.Plan
	if in.Plan != nil && h.ended() == "" {
		if b.Plan, p, err = a.load(ctx, *in.Plan, in.Run); err != nil {
			return begun{}, final(err)
		}
	}
	if p != nil {
		refused, err := a.takeOver(ctx, l, h, p)
		if err != nil {
			return begun{}, final(err)
		}
		if refused != nil {
			b.Plan = &loaded{Error: refused}
		}
	}
	b.Signals, b.Ended, b.Fence = h.signals, h.ended(), l.fence
	b.Cursor = h.cursor(seen(p))
	b.fit()
	return b, nil
}

// fit leaves a plan out that has too little room beside the outputs of steps.
func (b *begun) fit() {
	if b.Plan == nil || b.Plan.Error != nil {
		return
	}
	size := len(b.Plan.Bones)
	for _, s := range b.Cursor.Steps {
		size += len(s.Output)
	}
	if size > maxAlong {
		b.Plan = nil
	}
}

func (l *ledger) begin(ctx context.Context) (*history, error) {
	run, err := l.log.GetRun(ctx, &runlogv1.GetRunRequest{RunId: l.run.RunID})
	if err != nil {
		return nil, err
	}
	switch run.GetEngineRunRef() {
	case l.ref:
	case "":
		if run.GetCompletedAt() != nil {
			break // Its end came before the claim, such as in the queue.
		}
		if err := l.claim(ctx); err != nil {
			return nil, err
		}
	default:
		return nil, errForeign
	}
	h, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	for !h.started() {
		event, err := engine.Started(run, l.ref)
		if err != nil {
			return nil, err
		}
		event.EmittedBy = l.named.EmittedBy
		if _, err := l.advance(ctx, h, event); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// claim stores that the workflow has the run. A lease that was lost leaves it to the next one.
func (l *ledger) claim(ctx context.Context) error {
	req := &runlogv1.SetEngineRunRefRequest{RunId: l.run.RunID, EngineRunRef: l.ref}
	if l.fence > 0 {
		req.Fence = &l.fence
	}
	_, err := l.log.SetEngineRunRef(ctx, req)
	switch {
	case hasReason(err, client.ReasonRunAlreadyExists):
		return errForeign
	case hasReason(err, client.ReasonLeaseLost):
		return l.own(ctx, err)
	}
	return err
}

type tellInput struct {
	Run   Scope  `json:"run"`
	Ref   string `json:"ref"`
	Fence uint64 `json:"fence,omitempty"`
	// Seen is the runSeq up to which the workflow knows the signals.
	Seen uint64 `json:"seen"`
	// Status is that of the run in the log at Seen; empty: an earlier version has not told it.
	Status string `json:"status,omitempty"`
	// Held: a failed step holds the run at Seen.
	Held   bool    `json:"held,omitempty"`
	Events []Event `json:"events,omitempty"`
	// Ends: the last event ends the run. It is not appended if there are new signals.
	Ends bool `json:"ends,omitempty"`
	// Holds: the plan waits for an operator. A step has failed, so that the run is held in place of
	// its end, unless a RESUME has conceded that.
	Holds bool `json:"holds,omitempty"`
	// Sum asks for the summary of a run that has ended. Earlier versions ask by another activity.
	Sum bool `json:"sum,omitempty"`
}

type told struct {
	Signals []Signal        `json:"signals,omitempty"`
	Seen    uint64          `json:"seen"`
	Status  string          `json:"status,omitempty"`
	Ended   engine.RunState `json:"ended,omitempty"`
	// Held: a failed step holds the run.
	Held bool `json:"held,omitempty"`
	// Stored: the log has the events.
	Stored  bool     `json:"stored,omitempty"`
	Fence   uint64   `json:"fence,omitempty"`
	Summary *summary `json:"summary,omitempty"`
}

// tellRun appends events of a run that has not ended, and returns the signals that the log has
// accepted since. Without events it only returns the signals.
func (a *activities) tellRun(ctx context.Context, in tellInput) (told, error) {
	l := a.ledger(in.Run, in.Ref, in.Fence)
	h, stored, err := l.tell(ctx, in)
	if err != nil {
		return told{}, final(err)
	}
	t := told{Signals: h.signals, Seen: h.LastSeq, Status: h.Status.String(), Ended: h.ended(), Held: h.Held(), Stored: stored, Fence: l.fence}
	if in.Sum && t.Ended != "" {
		s, err := a.compileRunSnapshot(ctx, in.Run, t.Seen)
		if err != nil {
			return told{}, err
		}
		t.Summary = &s
	}
	return t, nil
}

func (l *ledger) tell(ctx context.Context, in tellInput) (h *history, stored bool, err error) {
	if in.Holds { // All events of the run say whether it is to be held.
		in.Status = ""
	}
	if h, err = l.readAfter(ctx, in.Seen, in.Status, in.Held); err != nil {
		return nil, false, err
	}
	stored = len(in.Events) > 0 && h.has(in.Events)
	for !stored && len(in.Events) > 0 && h.ended() == "" && (!in.Ends || !h.blocked()) {
		list, err := in.due(h)
		if err != nil || !h.allows(list) {
			return h, false, err
		}
		var writes []*runlogv1.EventWrite
		for _, e := range list {
			w, err := l.write(e, engineAttempt(ctx))
			if err != nil {
				return nil, false, err
			}
			writes = append(writes, w)
		}
		if stored, err = l.advance(ctx, h, writes...); err != nil {
			return nil, false, err
		}
	}
	return h, stored, nil
}

// due returns the events that are to be appended behind a history.
func (in *tellInput) due(h *history) ([]Event, error) {
	if !in.Holds {
		return in.Events, nil
	}
	attempt, payload, holds := h.Hold(&plan.Plan{Waits: true})
	if !holds {
		return in.Events, nil
	}
	text, err := json.Marshal(payload)
	return []Event{{Type: runPaused, Logical: attempt, Payload: text}}, err
}

// has reports whether the log has these events, which skip steps: an earlier attempt of the
// activity has stored them.
func (h *history) has(events []Event) bool {
	for _, e := range events {
		if s := h.step(e.StepID); e.Type != contract.StepSkipped || s.attempt() != e.Logical || s.Status != plan.Skipped {
			return false
		}
	}
	return true
}

// blocked reports whether a signal may change how the run ends.
func (h *history) blocked() bool {
	for _, s := range h.signals {
		switch s.Type {
		case signalPause, signalResume, signalCancel, signalStop, signalRetry, signalSkip:
			return true
		}
	}
	return false
}

func engineAttempt(ctx context.Context) uint32 { return uint32(max(activity.GetInfo(ctx).Attempt, 1)) }

// summary is the result of a workflow. The snapshot itself is in the log.
type summary struct {
	RunID       string `json:"runId"`
	Status      string `json:"status"`
	LastSeq     uint64 `json:"lastEventSeq"`
	Digest      string `json:"digest"`
	FailedSteps uint32 `json:"failedSteps"`
}

// compileRunSnapshot returns what the log says of a run that has ended.
func (a *activities) compileRunSnapshot(ctx context.Context, run Scope, seen uint64) (summary, error) {
	res, err := a.o.Log.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: run.RunID, MinSeq: seen})
	if err != nil {
		return summary{}, final(err)
	}
	s := res.GetSnapshot()
	return summary{s.GetRunId(), s.GetStatus().String(), s.GetLastEventSeq(), s.GetDigest(), s.GetFailedSteps()}, nil
}

// cache keeps the newest plans of a worker, by the keys of their references.
type cache struct {
	mu    sync.Mutex
	plans map[string]*plan.Plan
	order []string
}

// maxCached bounds the plans of a worker in memory.
const maxCached = 32

func (c *cache) get(key string) *plan.Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plans[key]
}

func (c *cache) put(key string, p *plan.Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plans == nil {
		c.plans = map[string]*plan.Plan{}
	}
	if c.plans[key] == nil {
		c.order = append(c.order, key)
	}
	c.plans[key] = p
	if len(c.order) > maxCached {
		delete(c.plans, c.order[0])
		c.order = c.order[1:]
	}
}

// plan returns the plan of a reference. One that was fetched by the same reference is not fetched
// again. What a fetch would say of another reference is not known (PLAN-7).
func (a *activities) plan(ctx context.Context, ref plan.Ref) (*plan.Plan, error) {
	key := ref.Key()
	if p := a.plans.get(key); p != nil && ref.SHA256 != "" {
		if err := ref.Expired(time.Now()); err != nil {
			return nil, err
		}
		return p, nil
	}
	p, err := a.o.Plans.Fetch(ctx, ref)
	if err != nil {
		return nil, err
	}
	a.plans.put(key, p)
	return p, nil
}

// after returns a context that outlives the end of another one for a while: what has happened is
// still appended.
func after(ctx context.Context) (context.Context, context.CancelFunc) {
	kept, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(time.Minute, cancel) })
	return kept, func() { stop(); cancel() }
}
