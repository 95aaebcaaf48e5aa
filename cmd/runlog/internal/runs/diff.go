package runs

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) diffCommand() *cobra.Command {
	req := &runlogv1.DiffRunRequest{}
	cmd := &cobra.Command{
		Use:   "diff RUN",
		Short: "Show what differs between two moments of a run",
		Long: `Show what differs between two moments of a run: its status and other fields, steps and their
attempts, artifacts, and decisions about signals. Without --from, the first moment is before the
first event. Without --to, the second one is now. Two moments that have passed always have the same
answer. With -o json it is one DiffRunResponse.

Moments for --from and --to are

` + session.RunMomentHelp,
		Example: `  runlog diff run-1 --from 120
  runlog diff run-1 --from -10m
  runlog diff run-1 --from 2026-02-11T10:30 --to 2026-02-11T10:45 -o json | jq .steps`,
		Args:              session.OneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.RunId = args[0]
			now := time.Now()
			for flag, text := range map[string]*string{"from": &req.From, "to": &req.To} {
				if !cmd.Flags().Changed(flag) {
					continue
				}
				var err error
				if *text, err = session.RunMoment(flag, *text, now); err != nil {
					return err
				}
			}
			return a.WithClient(func(c *client.Client) error { return a.showDiff(cmd.Context(), c, req) })
		},
	}
	cmd.Flags().StringVar(&req.From, "from", "", "the first moment")
	cmd.Flags().StringVar(&req.To, "to", "", "the second moment")
	localFlag(cmd, &req.Consistency)
	return cmd
}

func (a *app) showDiff(ctx context.Context, c *client.Client, req *runlogv1.DiffRunRequest) error {
	d, err := c.DiffRun(ctx, req)
	if err != nil {
		return err
	}
	if a.Format == output.JSON {
		return a.Object(d)
	}
	out := bufio.NewWriter(a.Stdout)
	output.Facts(out,
		[2]string{"Run", d.GetTo().GetRunId()},
		[2]string{"From", momentText(d.GetFrom(), d.GetFromPersistedAt())},
		[2]string{"To", momentText(d.GetTo(), d.GetToPersistedAt())},
	)
	fieldTable(out, a.StdoutWidth, d)
	stepDiffTable(out, a.StdoutWidth, d.GetSteps())
	attemptDiffTable(out, a.StdoutWidth, d.GetAttempts())
	artifactTable(out, a.StdoutWidth, d.GetArtifacts())
	signalTable(out, a.StdoutWidth, d.GetSignals())
	pendingTable(out, a.StdoutWidth, d.GetPendingSignals())
	settledTable(out, a.StdoutWidth, d.GetSettledSignals())
	newInconsistencyTable(out, a.StdoutWidth, d.GetInconsistencies())
	if len(d.GetChanged())+len(d.GetSteps())+len(d.GetAttempts())+len(d.GetSignals())+len(d.GetInconsistencies()) == 0 {
		fmt.Fprintln(out, "\nNothing differs.")
	}
	return out.Flush()
}

func momentText(s *runlogv1.RunSnapshot, at *timestamppb.Timestamp) string {
	if s.GetLastEventSeq() == 0 {
		return "before the first event"
	}
	return output.Words("runSeq "+strconv.FormatUint(s.GetLastEventSeq(), 10), output.Stamp(at), s.GetStatus().String())
}

// fieldTable prints the fields of the run that differ.
func fieldTable(out *bufio.Writer, width int, d *runlogv1.DiffRunResponse) {
	if len(d.GetChanged()) == 0 {
		return
	}
	fmt.Fprintln(out)
	rows := output.NewTable(out, width, "FIELD", "FROM", "TO")
	for _, name := range d.GetChanged() {
		rows.Row(name, fieldText(d.GetFrom(), name), fieldText(d.GetTo(), name))
	}
	rows.End()
}

// fieldText returns a field of a message by its JSON name; empty: it is not set.
func fieldText(m proto.Message, name string) string {
	f := m.ProtoReflect().Descriptor().Fields().ByJSONName(name)
	if f == nil || f.HasPresence() && !m.ProtoReflect().Has(f) {
		return "" // A newer server may know more fields.
	}
	value := m.ProtoReflect().Get(f)
	switch {
	case f.IsList():
		return strconv.Itoa(value.List().Len())
	case f.Enum() != nil:
		if e := f.Enum().Values().ByNumber(value.Enum()); e != nil {
			return string(e.Name())
		}
		return strconv.Itoa(int(value.Enum()))
	case f.Message() != nil:
		if t, ok := value.Message().Interface().(*timestamppb.Timestamp); ok {
			return output.Stamp(t)
		}
		var parts []string
		fields := f.Message().Fields()
		for i := range fields.Len() {
			if text := fieldText(value.Message().Interface(), fields.Get(i).JSONName()); text != "" {
				parts = append(parts, text)
			}
		}
		return strings.Join(parts, "  ")
	}
	return value.String()
}

func stepDiffTable(out *bufio.Writer, width int, steps []*runlogv1.StepDiff) {
	if len(steps) == 0 {
		return
	}
	fmt.Fprintln(out)
	rows := output.NewTable(out, width, "STEP", "STATUS", "ATTEMPT", "CHANGED", "DETAIL")
	for _, d := range steps {
		to := d.GetTo()
		rows.Row(d.GetStepId(), became(stepStatus(d.GetFrom().GetStatus()), stepStatus(to.GetStatus())),
			became(attemptText(d.GetFrom()), attemptText(to)), changedText(d), stepDetail(to))
	}
	rows.End()
}

// changedText names the fields of a step that differ, other than those with columns of their own.
func changedText(d *runlogv1.StepDiff) string {
	var names []string
	for _, name := range d.GetChanged() {
		switch name {
		case "status", "logicalAttemptId", "engineAttemptId":
		default:
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func attemptText(s *runlogv1.StepSnapshot) string {
	if s == nil {
		return ""
	}
	return output.Attempt(s.GetLogicalAttemptId(), s.GetEngineAttemptId())
}

// became shows a value that may have changed.
func became(from, to string) string {
	switch from {
	case to, "":
		return to
	}
	return from + " -> " + output.Dash(to)
}

func attemptDiffTable(out *bufio.Writer, width int, attempts []*runlogv1.AttemptDiff) {
	if len(attempts) == 0 {
		return
	}
	fmt.Fprintln(out, "\nEarlier attempts that differ:")
	rows := output.NewTable(out, width, "STEP", "ATTEMPT", "STATUS", "STARTED", "COMPLETED", "DETAIL")
	for _, d := range attempts {
		to := d.GetTo()
		if to == nil {
			to = d.GetFrom()
		}
		failure := to.GetError()
		rows.Row(d.GetStepId(), output.Attempt(d.GetLogicalAttemptId(), to.GetEngineAttemptId()),
			became(stepStatus(d.GetFrom().GetStatus()), stepStatus(d.GetTo().GetStatus())),
			output.Stamp(to.GetStartedAt()), output.Stamp(to.GetCompletedAt()), output.Words(failure.GetCode(), failure.GetMessage(), to.GetReason()))
	}
	rows.End()
}

func artifactTable(out *bufio.Writer, width int, artifacts []*runlogv1.ArtifactRef) {
	if len(artifacts) == 0 {
		return
	}
	fmt.Fprintln(out, "\nNew artifacts of the run:")
	rows := output.NewTable(out, width, "KIND", "URI")
	for _, x := range artifacts {
		rows.Row(x.GetKind(), x.GetUri())
	}
	rows.End()
}

func settledTable(out *bufio.Writer, width int, settled []*runlogv1.PendingSignal) {
	if len(settled) == 0 {
		return
	}
	fmt.Fprintln(out, "\nSignals that have had their effect:")
	rows := output.NewTable(out, width, "SEQ", "SIGNAL", "STEP")
	for _, p := range settled {
		rows.Row(strconv.FormatUint(p.GetRunSeq(), 10), output.Words(p.GetSignalType(), p.GetSignalId()), p.GetStepId())
	}
	rows.End()
}

func newInconsistencyTable(out *bufio.Writer, width int, list []*runlogv1.Inconsistency) {
	if len(list) > 0 {
		inconsistencyTable(out, width, &runlogv1.RunSnapshot{Inconsistencies: list, InconsistencyCount: uint32(len(list))})
	}
}
