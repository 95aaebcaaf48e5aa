package runner

import (
	"context"
	"encoding/json"

	"runlog/engine/rerun"
	runlogv1 "runlog/proto/runlog/v1"
)

// takeOver appends the ends of the steps that have succeeded in the run that this one reruns.
func (x *execution) takeOver(ctx context.Context) error {
	source := rerun.Source{Log: x.o.Client, Blobs: x.o.Blobs}
	return source.TakeOver(ctx, &x.named, x.state, x.plan, func(stepID string, payload json.RawMessage) error {
		return x.writeWhile(ctx, func() bool { return x.state.Step(stepID) == nil }, func() (*runlogv1.EventWrite, error) {
			return x.named.StepCompleted(stepID, once, payload)
		})
	})
}
