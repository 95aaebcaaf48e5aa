// Package signal has the commands of decisions about runs: signal and attest.
package signal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the commands signal and attest.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	var (
		req        runlogv1.SendSignalRequest
		parameters string
	)
	cmd := &cobra.Command{
		Use:   "signal RUN TYPE",
		Short: "Send a signal to a run, such as PAUSE or CANCEL",
		Long: fmt.Sprintf(`Send a signal to a run, and print what was decided. The decision is an event of the run, which its engine
reads. TYPE is one of
  %s
or one that the server accepts besides. If a run that waits in a queue accepts CANCEL or EMERGENCY_STOP,
it ends and leaves the queue.

A signal has an id. Without --id the command makes one and prints it. The same id again returns the recorded
decision. If the signal is rejected, the exit code is %d.`, strings.Join(contract.SignalTypes(), " "), output.ExitRejected),
		Example: `  runlog signal run-1 PAUSE --reason "the warehouse is down"
  runlog signal run-1 RETRY_STEP --step load --id retry-load-1
  runlog signal run-1 UPDATE_PARAMS --parameters '{"warehouse": "WH_XL"}'`,
		Args: session.Arguments(2, 2, "the name of a run and the type of a signal"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return contract.SignalTypes(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := session.RefuseEmpty(cmd.Flags(), "id", "step", "parameters"); err != nil {
				return err
			}
			req.RunId, req.SignalType = args[0], strings.ToUpper(strings.ReplaceAll(args[1], "-", "_"))
			var err error
			if req.Parameters, err = parseParameters(parameters); err != nil {
				return err
			}
			if req.SignalId == "" {
				req.SignalId = uuid.Must(uuid.NewV7()).String()
			}
			return a.WithClient(func(c *client.Client) error { return a.send(cmd.Context(), c, &req) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.SignalId, "id", "", "id of the signal, unique in the run; the same one for a retry (default: generated)")
	f.StringVar(&req.StepId, "step", "", "step that the signal is about; required for RETRY_STEP and SKIP_STEP")
	f.StringVar(&req.Reason, "reason", "", "why, for people")
	f.StringVar(&parameters, "parameters", "", "JSON object for the engine")
	session.Complete(cmd, "step")
	return []*cobra.Command{cmd, a.attestCommand()}
}

// parseParameters parses --parameters; nil: there are none.
func parseParameters(text string) (*structpb.Struct, error) {
	if text == "" {
		return nil, nil
	}
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), s); err != nil {
		return nil, output.UsageError(`--parameters is no JSON object; write one such as '{"name": "value"}'`)
	}
	return s, nil
}

// line is the JSON form of a decision.
type line struct {
	SignalID    string `json:"signalId"`
	Decision    string `json:"decision"`
	RunSeq      uint64 `json:"runSeq,string"`
	Reject      string `json:"rejectReason,omitempty"`
	NextAttempt uint32 `json:"nextLogicalAttemptId,omitempty"`
	Idempotent  bool   `json:"idempotent"`
	Position    string `json:"position"`
}

func (a *app) send(ctx context.Context, c *client.Client, req *runlogv1.SendSignalRequest) error {
	resp, err := c.SendSignal(ctx, req)
	if err != nil {
		return withRetry(err, "signal", req.SignalId)
	}
	err = a.Tell(sentence(req, resp), line{req.SignalId, resp.GetDecision().String(), resp.GetRunSeq(), resp.GetRejectReason(),
		resp.GetNextLogicalAttemptId(), resp.GetIdempotent(), resp.GetPosition()})
	if err == nil && resp.GetDecision() != runlogv1.Decision_ACCEPTED {
		err = output.Errorf(output.ExitRejected, "signal rejected: %s; runlog events %s --type SignalRejected tells more", resp.GetRejectReason(), req.RunId)
	}
	return err
}

// withRetry adds to the error of a call how to retry it with its id. It adds nothing if the server
// would refuse the same call again.
func withRetry(err error, what, id string) error {
	e, ok := errors.AsType[*client.Error](err)
	if ok && (e.Final() || e.Code == codes.PermissionDenied || e.Code == codes.Unauthenticated) {
		return err
	}
	return output.WithHint(err, fmt.Sprintf("to retry the same %s, add --id %s", what, id))
}

// sentence describes a decision to people.
func sentence(req *runlogv1.SendSignalRequest, resp *runlogv1.SendSignalResponse) string {
	text := fmt.Sprintf("signal %s: %s %s", req.SignalId, req.SignalType, strings.ToLower(resp.GetDecision().String()))
	if resp.GetIdempotent() { // The decision may be about another type and another step.
		text = fmt.Sprintf("signal %s was decided before: %s", req.SignalId, strings.ToLower(resp.GetDecision().String()))
	}
	text += fmt.Sprintf(" at runSeq %d", resp.GetRunSeq())
	if why := resp.GetRejectReason(); why != "" {
		text += ", " + why
	}
	if next := resp.GetNextLogicalAttemptId(); next != 0 {
		text += fmt.Sprintf(", next attempt %d", next)
		if !resp.GetIdempotent() {
			text += " of step " + req.StepId
		}
	}
	return text
}
