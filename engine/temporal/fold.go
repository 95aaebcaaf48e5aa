package temporal

import (
	"context"
	"encoding/json"
	"slices"

	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// The types of signals that have an effect.
const (
	signalPause  = contract.SignalPause
	signalResume = contract.SignalResume
	signalCancel = contract.SignalCancel
	signalStop   = contract.SignalEmergencyStop
	signalRetry  = contract.SignalRetryStep
	signalSkip   = contract.SignalSkipStep
	signalParams = contract.SignalUpdateParams
	runPaused    = contract.RunPaused
	runResumed   = contract.RunResumed
)

// history is what the events of a run say. The statuses of the run and of its steps are those of
// the snapshot (PRJ-4 to PRJ-8), if all events are read, or if those of the run are known before.
type history struct {
	*replay.State
	// params is the runSeq of RunQueued, which has the parameters of the run; 0: it is not there.
	params uint64
	// from is the runSeq up to which the signals are known to the workflow.
	from uint64
	// signals were accepted, and no event shows their effect yet.
	signals []Signal
}

// read folds all events of a run.
func (l *ledger) read(ctx context.Context) (*history, error) {
	h := &history{State: replay.New()}
	return h, h.readOn(ctx, l)
}

// readAfter folds the events of a run after a runSeq, at which the log had a status of the run, and
// a failed step held it or not. If the status is not known, all events are folded, and the signals
// up to there are left out.
func (l *ledger) readAfter(ctx context.Context, after uint64, status string, held bool) (*history, error) {
	h := &history{State: replay.New(), from: after}
	if known, ok := runlogv1.RunStatus_Value_value[status]; ok {
		h.State = replay.After(after, runlogv1.RunStatus_Value(known), held)
	}
	return h, h.readOn(ctx, l)
}

// readOn folds the events that have come since.
func (h *history) readOn(ctx context.Context, l *ledger) error {
	for r, err := range l.log.ReadEvents(ctx, replay.Request(l.run.RunID, h.LastSeq)) {
		if err != nil {
			return err
		}
		h.apply(r)
	}
	return nil
}

// started reports whether the run has started. One that ends before its start has not.
func (h *history) started() bool {
	return h.Status != runlogv1.RunStatus_PENDING && h.Status != runlogv1.RunStatus_APPROVED
}

// halted reports whether the run is to wait for a RESUME.
func halted(status string) bool {
	return status == runlogv1.RunStatus_PAUSED.String() || status == runlogv1.RunStatus_WAITING.String()
}

// ended returns how the run has ended; empty: it has not.
func (h *history) ended() engine.RunState {
	switch h.Status {
	case runlogv1.RunStatus_COMPLETED:
		return engine.RunCompleted
	case runlogv1.RunStatus_FAILED:
		return engine.RunFailed
	case runlogv1.RunStatus_CANCELLED:
		return engine.RunCancelled
	}
	return ""
}

// allows reports whether events have an effect now (PRJ-17). One that had none would be an
// inconsistency, and could not be appended again when it has one.
func (h *history) allows(events []Event) bool {
	status := contract.RunStatus(h.Status)
	for _, e := range events {
		next, legal := status.After(e.Type)
		if !legal {
			return false
		}
		status = next
	}
	return true
}

func (h *history) apply(r *runlogv1.EventRecord) {
	h.Apply(r)
	switch r.GetEventType() {
	case contract.RunQueued:
		h.params = r.GetRunSeq()
	case runPaused, runResumed:
		h.answered(r.GetCausedBySignalId())
	case contract.SignalAccepted:
		if r.GetRunSeq() > h.from {
			h.signal(r)
		}
	case contract.StepCompleted, contract.StepFailed, contract.StepSkipped, contract.StepAttested:
		// The effect of a SKIP_STEP is there, or it came too late.
		if h.step(r.GetStepId()).Status != "" {
			h.signals = slices.DeleteFunc(h.signals, func(x Signal) bool { return x.Type == signalSkip && x.StepID == r.GetStepId() })
		}
	}
}

// step returns what the interpreter knows of a step.
func (h *history) step(id string) (s Step) {
	of := h.Step(id)
	if of == nil {
		return s
	}
	if s.Cause = of.Cause; of.Attempt > 1 {
		s.Attempt = of.Attempt
	}
	result, ended := of.Result()
	if !ended {
		return s
	}
	if s.Status, s.ByPlan = result.Status, of.ByPlan(); s.Status == plan.Success {
		s.Seq = of.EndedSeq
	}
	return s
}

// cursor is what a workflow needs that begins, with the outputs of the steps that conditions look
// at.
func (h *history) cursor(seen map[string]bool) Cursor {
	c := Cursor{Begun: true, Seen: h.LastSeq, Status: h.Status.String(), Held: h.Held(), Params: h.params, Steps: map[string]Step{}}
	c.Paused = halted(c.Status)
	for _, of := range h.Steps {
		s := h.step(of.ID)
		// A longer one is of another engine, and would take the room of the answer.
		if s.Status == plan.Success && seen[of.ID] && len(of.Output) <= maxSeenOutput {
			s.Output = of.Output
		}
		c.Steps[of.ID] = s
	}
	return c
}

// answered takes a PAUSE or RESUME off the list that an event has followed, and those before it.
func (h *history) answered(id string) {
	last := slices.IndexFunc(h.signals, func(s Signal) bool { return s.ID == id })
	i := -1
	h.signals = slices.DeleteFunc(h.signals, func(s Signal) bool {
		i++
		return i <= last && (s.Type == signalPause || s.Type == signalResume)
	})
}

// signal takes an accepted signal.
func (h *history) signal(r *runlogv1.EventRecord) {
	var p struct {
		SignalID           string `json:"signalId"`
		SignalType         string `json:"signalType"`
		Reason             string `json:"reason"`
		NextLogicalAttempt uint32 `json:"nextLogicalAttemptId"`
	}
	if json.Unmarshal(r.GetPayloadJson(), &p) != nil {
		return // It is of another producer, and says no type.
	}
	id := r.GetCausedBySignalId()
	if id == "" {
		id = p.SignalID
	}
	h.signals = append(h.signals, Signal{ID: id, Type: p.SignalType, StepID: r.GetStepId(), Reason: p.Reason,
		Next: p.NextLogicalAttempt, Seq: r.GetRunSeq()})
}
