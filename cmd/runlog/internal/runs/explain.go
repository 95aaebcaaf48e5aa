package runs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) explainCommand() *cobra.Command {
	req := &runlogv1.ExplainStepRequest{PageSize: 10_000}
	var at asOf
	cmd := &cobra.Command{
		Use:   "explain RUN STEP",
		Short: "Show the events that led to the state of a step",
		Long: `Show the events that name a step, in runSeq order: what each changed of the step, the identity that
appended it, and what it was caused by. EFFECT is the status that the step got, "earlier attempt",
"no change", or "invalid" with the state that did not allow the event. With -o json each line is one
ExplainedEvent.

Times for --as-of-time are

` + session.MomentHelp,
		Example: `  runlog explain run-1 load
  runlog explain run-1 load --as-of-seq 120 -o json | jq .step`,
		Args:              session.Arguments(2, 2, "the id of one run and one step"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req.RunId, req.StepId = args[0], args[1]
			if req.AsOfSeq, req.AsOfTime, err = at.moment(cmd.Flags(), time.Now()); err != nil {
				return err
			}
			req.AsOfPosition = at.position
			return a.WithClient(func(c *client.Client) error { return a.explainStep(cmd.Context(), c, req) })
		},
	}
	at.addFlags(cmd.Flags(), "explain the step")
	localFlag(cmd, &req.Consistency)
	return cmd
}

func (a *app) explainStep(ctx context.Context, c *client.Client, req *runlogv1.ExplainStepRequest) error {
	events := client.Pages(ctx, req, c.ExplainStep, (*runlogv1.ExplainStepResponse).GetEvents)
	return output.List(&a.Output, events, 0, output.JSONLine, explainedCells,
		"SEQ", "PERSISTED", "TYPE", "ATTEMPT", "EFFECT", "CHANGED", "APPENDED BY", "CAUSED BY")
}

func explainedCells(e *runlogv1.ExplainedEvent) []string {
	changed := changedText(e.GetStep())
	for _, x := range e.GetAttempts() {
		text := fmt.Sprintf("attempts[%d]", x.GetLogicalAttemptId())
		if !strings.Contains(changed, text) {
			changed = strings.TrimPrefix(changed+", "+text, ", ")
		}
	}
	return []string{
		strconv.FormatUint(e.GetRunSeq(), 10),
		output.Stamp(e.GetPersistedAt()),
		e.GetEventType(),
		output.Attempt(e.GetLogicalAttemptId(), e.GetEngineAttemptId()),
		effectText(e),
		changed,
		output.Author(&runlogv1.EventRecord{AppendedBy: e.AppendedBy, AppendedByTokenId: e.AppendedByTokenId}),
		causeText(e.GetCausedBy()),
	}
}

func effectText(e *runlogv1.ExplainedEvent) string {
	text := "no change"
	switch e.GetEffect() {
	case runlogv1.ExplainedEffect_INVALID:
		text = "invalid (" + e.GetState() + ")"
	case runlogv1.ExplainedEffect_CHANGED:
		if text = "earlier attempt"; e.GetStep() != nil {
			text = became(stepStatus(e.GetStep().GetFrom().GetStatus()), stepStatus(e.GetStep().GetTo().GetStatus()))
		}
	}
	if s := e.GetRunStatus(); s != nil {
		text = output.Words(text, "run "+became(s.GetFrom().String(), s.GetTo().String()))
	}
	return text
}

// causeText names the cause of an event, with its runSeq where it is an event of the run.
func causeText(c *runlogv1.EventCause) string {
	if c == nil {
		return ""
	}
	place := func(name, id string, seq *uint64) string {
		if id == "" {
			return ""
		}
		if seq == nil {
			return name + " " + id
		}
		return fmt.Sprintf("%s %s (%d)", name, id, *seq)
	}
	return output.Words(place("signal", c.GetSignalId(), c.SignalSeq), place("event", c.GetParentEventId(), c.ParentSeq))
}
