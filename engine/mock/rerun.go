package mock

import (
	"context"
	"encoding/json"
	"errors"

	"runlog/engine"
	"runlog/engine/rerun"
)

// takeOver appends the ends of the steps that have succeeded in the run that this one reruns. A run
// that can never take them over fails.
func (x *execution) takeOver(ctx context.Context) error {
	source := rerun.Source{Log: x.o.Log, Blobs: x.o.Blobs}
	err := source.TakeOver(ctx, &x.named, x.state, x.plan, func(stepID string, payload json.RawMessage) error {
		e, err := x.named.StepCompleted(stepID, once, payload)
		for err == nil && x.state.Step(stepID) == nil && !x.state.Ended() {
			_, err = x.append(ctx, e)
		}
		return err
	})
	never, ok := errors.AsType[*engine.PermanentError](err)
	if !ok {
		return err
	}
	e, err := engine.Failed(x.run, never)
	if err == nil {
		e.EmittedBy = x.o.Worker
		_, err = x.append(ctx, e)
	}
	return err
}
