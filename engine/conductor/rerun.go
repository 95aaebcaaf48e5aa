package conductor

import (
	"context"
	"encoding/json"
	"errors"

	"runlog/engine"
	"runlog/engine/rerun"
)

// takeOver appends the ends of the steps that have succeeded in the run that this one reruns, and
// reports whether it has appended anything. A run that can never take them over fails.
func (e *Engine) takeOver(ctx context.Context, v *view) (changed bool, err error) {
	if v.plan == nil || !v.started() {
		return false, nil
	}
	source := rerun.Source{Log: e.o.Log, Blobs: e.o.Blobs}
	err = source.TakeOver(ctx, e.events(v.run), v.state, v.plan, func(stepID string, payload json.RawMessage) error {
		event, err := e.events(v.run).StepCompleted(stepID, once, payload)
		for err == nil && v.state.Step(stepID) == nil && !v.state.Ended() {
			changed = true
			if err = e.put(ctx, v, event); err == nil {
				v.state, err = e.memory.State(ctx, v.run.GetRunId())
			}
		}
		return err
	})
	never, ok := errors.AsType[*engine.PermanentError](err)
	if !ok {
		return changed, err
	}
	event, err := engine.Failed(v.run, never)
	if err == nil {
		event.EmittedBy = e.o.Worker
		err = e.put(ctx, v, event)
	}
	return true, err
}
