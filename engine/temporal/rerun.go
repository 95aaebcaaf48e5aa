package temporal

import (
	"context"
	"encoding/json"
	"errors"

	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/rerun"
	"runlog/proto/contract/jsontext"
)

// takeOver appends the ends of the steps that have succeeded in the run that this one reruns. An
// activity that begins the run again goes on behind those that the log has. refused is the error of
// a run that can never take them over; nil: it has taken over what there is.
func (a *activities) takeOver(ctx context.Context, l *ledger, h *history, p *plan.Plan) (refused json.RawMessage, err error) {
	looked := seen(p)
	source := rerun.Source{Log: a.o.Log, Blobs: a.o.Blobs}
	err = source.TakeOver(ctx, &l.named, h.State, p, func(stepID string, payload json.RawMessage) error {
		if output, _ := jsontext.Lookup(payload, "output"); looked[stepID] && len(output) > maxSeenOutput {
			return rerun.Refused("conditions look at the output of step %.100q, which has %d bytes, and in a workflow at most %d: request a run of the plan instead",
				stepID, len(output), maxSeenOutput)
		}
		event, err := l.named.StepCompleted(stepID, events.Attempt{Logical: 1, Engine: 1}, payload)
		for err == nil && h.Step(stepID) == nil && h.ended() == "" {
			_, err = l.advance(ctx, h, event)
		}
		return err
	})
	if never, ok := errors.AsType[*engine.PermanentError](err); ok {
		return failureJSON(never.Code, never.Error()), nil
	}
	return nil, err
}
