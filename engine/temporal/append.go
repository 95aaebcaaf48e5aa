package temporal

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine"
	runlogv1 "runlog/proto/runlog/v1"
)

// errForeign means that another engine, or another namespace, has the run.
var errForeign = errors.New("temporal: another engine has the run")

// errUnclaimed means that no engine has the run yet. The reconciler that leases it says which.
var errUnclaimed = errors.New("temporal: the log has no engine for the run yet")

// errTaken means that a run can never go on: another writer has taken the place of one of its
// events, and that had no effect (PRJ-4, IDM-1).
var errTaken = errors.New("temporal: another writer has taken the place of an event, without effect")

// ledger appends the events of one run under its fence. One activity uses it.
type ledger struct {
	log   engine.Log
	run   Scope
	ref   string
	fence uint64
	named events.Run
}

func (a *activities) ledger(run Scope, ref string, fence uint64) *ledger {
	return &ledger{log: a.o.Log, run: run, ref: ref, fence: fence, named: events.Run{
		ID: run.RunID, Tenant: run.TenantID, Project: run.ProjectID, Environment: run.EnvironmentID,
		Plan: run.PlanID, PlanVersion: run.PlanVersion, EmittedBy: a.o.Worker,
	}}
}

// append appends events, all or none; with an expectation, only if no other event has come since.
func (l *ledger) append(ctx context.Context, last *uint64, list ...*runlogv1.EventWrite) ([]*runlogv1.AppendResult, error) {
	for {
		req := &runlogv1.AppendEventsRequest{RunId: l.run.RunID, Events: list, ExpectedLastSeq: last}
		if l.fence > 0 {
			req.Fence = &l.fence
		}
		res, err := l.log.AppendEvents(ctx, req)
		if err == nil {
			return res.GetResults(), nil
		}
		if !hasReason(err, client.ReasonLeaseLost) {
			return nil, err
		}
		if err := l.own(ctx, err); err != nil {
			return nil, err
		}
	}
}

// advance appends events behind those that a history has folded, all or none, and reads it on.
// stored: the log has them; otherwise others came first. The events must have an effect now. If the
// log had one of them before, it had none, and no other try changes that.
func (l *ledger) advance(ctx context.Context, h *history, list ...*runlogv1.EventWrite) (stored bool, err error) {
	last := h.LastSeq
	results, err := l.append(ctx, &last, list...)
	if err != nil && !hasReason(err, client.ReasonSequenceConflict) {
		return false, err
	}
	for i, r := range results {
		if r.GetIdempotent() && r.GetRunSeq() <= last {
			return false, fmt.Errorf("%w: %s at runSeq %d: request another run, and keep that writer from it", errTaken, list[i].GetEventType(), r.GetRunSeq())
		}
	}
	return err == nil, h.readOn(ctx, l)
}

// own takes the current fence of the run, if the run is this engine's. The fence in the error is
// older than the answer of GetRun only if the run was leased in between: then it is refused again.
func (l *ledger) own(ctx context.Context, lost error) error {
	run, err := l.log.GetRun(ctx, &runlogv1.GetRunRequest{RunId: l.run.RunID})
	if err != nil {
		return err
	}
	switch run.GetEngineRunRef() {
	case l.ref:
	case "":
		return errUnclaimed
	default:
		return errForeign
	}
	e, _ := errors.AsType[*client.Error](lost)
	current, err := strconv.ParseUint(e.Metadata["current_fence"], 10, 64)
	if err != nil || current <= l.fence {
		return lost
	}
	l.fence = current
	return nil
}

// write returns an event that an activity appends for the workflow.
func (l *ledger) write(e Event, engineAttempt uint32) (*runlogv1.EventWrite, error) {
	payload := any(e.Payload)
	if len(e.Payload) == 0 {
		payload = nil
	}
	switch {
	case e.Logical > 0:
		w, err := l.named.Event(e.Type, e.StepID, events.Attempt{Logical: e.Logical, Engine: engineAttempt}, payload)
		if err == nil {
			w.CausedBySignalId = e.Cause
		}
		return w, err
	case e.Type == runPaused:
		return l.named.Paused(events.Cause{SignalID: e.Cause, Engine: engineAttempt}, payload)
	default:
		return l.named.Resumed(events.Cause{SignalID: e.Cause, Engine: engineAttempt}, payload)
	}
}

func hasReason(err error, reason client.Reason) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Reason == reason
}
