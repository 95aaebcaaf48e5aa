package runs

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) snapshotCommand() *cobra.Command {
	req := &runlogv1.GetSnapshotRequest{}
	var at asOf
	cmd := &cobra.Command{
		Use:   "snapshot RUN",
		Short: "Show the state of a run",
		Long: `Show the status of a run and of its steps: the fold of its stored events. ATTEMPT is the logical
attempt; the engine's own count follows in parentheses once the engine has retried.

Times for --as-of-time are

` + session.MomentHelp,
		Example: `  runlog snapshot run-1
  runlog snapshot run-1 --min-seq 120 -o json | jq .status
  runlog snapshot run-1 --as-of-time 2026-02-11T10:45
  runlog snapshot run-1 --as-of-time -10m`,
		Args:              session.OneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.RunId = args[0]
			var err error
			if req.AsOfSeq, req.AsOfTime, err = at.moment(cmd.Flags(), time.Now()); err != nil {
				return err
			}
			req.AsOfPosition = at.position
			return a.WithClient(func(c *client.Client) error { return a.showSnapshot(cmd.Context(), c, req) })
		},
	}
	cmd.Flags().Uint64Var(&req.MinSeq, "min-seq", 0, "wait, within --timeout, until the run has reached this runSeq")
	at.addFlags(cmd.Flags(), "show the run")
	localFlag(cmd, &req.Consistency)
	return cmd
}

func (a *app) showSnapshot(ctx context.Context, c *client.Client, req *runlogv1.GetSnapshotRequest) error {
	res, err := c.GetSnapshot(ctx, req)
	if err != nil {
		return err
	}
	if a.Format == output.JSON {
		return a.Object(res.GetSnapshot())
	}
	out := bufio.NewWriter(a.Stdout)
	snapshotHeader(out, res.GetSnapshot())
	stepTable(out, a.StdoutWidth, res.GetSnapshot().GetSteps())
	signalTable(out, a.StdoutWidth, res.GetSnapshot().GetSignals())
	pendingTable(out, a.StdoutWidth, res.GetSnapshot().GetPendingSignals())
	inconsistencyTable(out, a.StdoutWidth, res.GetSnapshot())
	return out.Flush()
}

func snapshotHeader(out *bufio.Writer, s *runlogv1.RunSnapshot) {
	failed, stale := "", ""
	if s.GetFailedSteps() > 0 {
		failed = fmt.Sprintf("%d, attempts that failed: %d", s.GetFailedStepsNow(), s.GetFailedSteps())
	}
	if s.GetStale() {
		stale = "yes: the projection is being rebuilt; ask again"
	}
	output.Facts(out,
		[2]string{"Run", s.GetRunId()},
		[2]string{"Status", statusText(s)},
		[2]string{"Message", s.GetMessage()},
		[2]string{"Waiting for", waitingFor(s)},
		[2]string{"Stale", stale},
		[2]string{"Scope", scope(s)},
		[2]string{"Plan", planText(s.GetPlanRef(), s.GetPlanId(), s.GetPlanVersion())},
		[2]string{"Engine", output.Words(s.GetEngineType(), s.GetEngineRunRef())},
		[2]string{"Triggered", output.Words(s.GetTriggerSource(), s.GetTriggeredBy())},
		[2]string{"Started", output.Stamp(s.GetStartedAt())},
		[2]string{"Completed", output.Stamp(s.GetCompletedAt())},
		[2]string{"Duration", runDuration(s)},
		[2]string{"Last seq", strconv.FormatUint(s.GetLastEventSeq(), 10)},
		[2]string{"Failed steps", failed},
		[2]string{"Root cause", rootCause(s.GetRootCause())},
		[2]string{"Artifacts", artifactCount(s.GetArtifacts())},
		[2]string{"Digest", s.GetDigest()},
	)
}

func waitingFor(s *runlogv1.RunSnapshot) string {
	if s.WaitingFor == nil {
		return ""
	}
	return s.GetWaitingFor().String()
}

func runDuration(s *runlogv1.RunSnapshot) string {
	if s.TotalDurationMs == nil {
		return ""
	}
	return (time.Duration(s.GetTotalDurationMs()) * time.Millisecond).String()
}

func rootCause(cause *runlogv1.RootCause) string {
	if cause == nil {
		return ""
	}
	return output.Words(cause.GetStepId(), cause.GetCode(), cause.GetCategory(), cause.GetMessage())
}

func artifactCount(artifacts []*runlogv1.ArtifactRef) string {
	if len(artifacts) == 0 {
		return ""
	}
	return strconv.Itoa(len(artifacts))
}

// stepTable prints a line for each step with its current attempt.
func stepTable(out *bufio.Writer, width int, steps []*runlogv1.StepSnapshot) {
	if len(steps) == 0 {
		return
	}
	fmt.Fprintln(out)
	rows := output.NewTable(out, width, "STEP", "STATUS", "ATTEMPT", "STARTED", "DURATION", "ARTIFACTS", "DETAIL")
	for _, step := range steps {
		rows.Row(
			step.GetStepId(),
			stepStatus(step.GetStatus()),
			output.Attempt(step.GetLogicalAttemptId(), step.GetEngineAttemptId()),
			output.Stamp(step.GetStartedAt()),
			output.Elapsed(step.GetStartedAt(), step.GetCompletedAt()),
			artifactCount(step.GetArtifacts()),
			stepDetail(step),
		)
	}
	rows.End()
}

func stepStatus(status runlogv1.StepStatus_Value) string {
	if status == runlogv1.StepStatus_VALUE_UNSPECIFIED {
		return ""
	}
	return status.String()
}

func stepDetail(step *runlogv1.StepSnapshot) string {
	failure := step.GetError()
	if again := step.GetRetry(); again != nil {
		next := ""
		if again.NextAttemptAt != nil {
			next = "(next try " + output.Stamp(again.GetNextAttemptAt()) + ")"
		}
		return output.Words("retrying after", again.GetError().GetCode(), again.GetError().GetMessage(), next)
	}
	if approvals := step.GetApprovals().GetAttesters(); len(approvals) > 0 {
		return "approved by " + strings.Join(approvals, ", ")
	}
	if failure == nil {
		return step.GetReason()
	}
	retry := ""
	if failure.GetRetryable() {
		retry = "(retryable)"
	}
	return output.Words(failure.GetCode(), failure.GetMessage(), retry)
}

func signalTable(out *bufio.Writer, width int, signals []*runlogv1.SignalDecision) {
	if len(signals) == 0 {
		return
	}
	fmt.Fprintln(out, "\nSignals, the newest last:")
	rows := output.NewTable(out, width, "SEQ", "DECISION", "SIGNAL", "STEP", "BY", "REASON")
	for _, s := range signals {
		decision := "rejected"
		if s.GetAccepted() {
			decision = "accepted"
		}
		rows.Row(strconv.FormatUint(s.GetRunSeq(), 10), decision, output.Words(s.GetSignalType(), s.GetSignalId()),
			s.GetStepId(), s.GetDecidedBy(), s.GetReason())
	}
	rows.End()
}

func pendingTable(out *bufio.Writer, width int, pending []*runlogv1.PendingSignal) {
	if len(pending) == 0 {
		return
	}
	fmt.Fprintln(out, "\nAccepted signals without an effect yet:")
	rows := output.NewTable(out, width, "SEQ", "SIGNAL", "STEP", "NEXT ATTEMPT")
	for _, p := range pending {
		next := ""
		if p.NextLogicalAttemptId != nil {
			next = strconv.FormatUint(uint64(p.GetNextLogicalAttemptId()), 10)
		}
		rows.Row(strconv.FormatUint(p.GetRunSeq(), 10), output.Words(p.GetSignalType(), p.GetSignalId()), p.GetStepId(), next)
	}
	rows.End()
}

func inconsistencyTable(out *bufio.Writer, width int, s *runlogv1.RunSnapshot) {
	if s.GetInconsistencyCount() == 0 {
		return
	}
	shown := ""
	if listed := len(s.GetInconsistencies()); uint64(listed) < uint64(s.GetInconsistencyCount()) {
		shown = ", the first " + output.Number(listed)
	}
	fmt.Fprintf(out, "\n%s that the run's state did not allow%s:\n", output.Plural(s.GetInconsistencyCount(), "event"), shown)
	rows := output.NewTable(out, width, "SEQ", "KIND", "STATE", "ATTEMPTED", "EVENT")
	for _, i := range s.GetInconsistencies() {
		rows.Row(strconv.FormatUint(i.GetRunSeq(), 10), i.GetKind(), i.GetState(), i.GetAttempted(), i.GetEventId())
	}
	rows.End()
}
