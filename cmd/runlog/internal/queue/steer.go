package queue

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) cancelCommand() *cobra.Command {
	req := &runlogv1.CancelQueuedRequest{}
	cmd := &cobra.Command{
		Use:   "cancel RUN",
		Short: "Cancel a run that was not started",
		Long: `Take a run out of its queue and end it with RunCancelled. A worker that is starting it loses its lease. A run
that was started is refused: runlog signal RUN CANCEL asks its engine to cancel it.`,
		Example: "  runlog queue cancel run-7 --reason \"replaced by run-8\"",
		Args:    session.OneRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.RunId = args[0]
			return a.WithClient(func(c *client.Client) error {
				res, err := c.CancelQueued(cmd.Context(), req)
				if err != nil {
					return err
				}
				return a.Tell(fmt.Sprintf("run %s is cancelled; its RunCancelled has the runSeq %d", req.RunId, res.GetRunSeq()), res)
			})
		},
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why, for the readers of the event")
	return cmd
}

func (a *app) requeueCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "requeue RUN",
		Short: "Put a run that was started back into its queue",
		Long: `Put a run that was started back into its queue, so that a worker leases it once more and goes on with it: because
its worker is gone, or because the run waited for something. The run keeps its priority and its age. What its last
worker still writes under its fence is refused.`,
		Example: "  runlog queue requeue run-7",
		Args:    session.OneRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(func(c *client.Client) error {
				res, err := c.RequeueRun(cmd.Context(), &runlogv1.RequeueRunRequest{RunId: args[0]})
				if err != nil {
					return err
				}
				how := "is back in its queue; it is"
				if res.GetIdempotent() {
					how = "was in its queue; it is"
				}
				return a.Tell(fmt.Sprintf("run %s %s %s", args[0], how, res.GetRun().GetState()), res)
			})
		},
	}
}

func (a *app) prioritizeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "prioritize RUN PRIORITY",
		Short:   "Change the priority of a run that was not started",
		Long:    "Change the priority of a run that was not started, from 0 (lowest) to 9. How long it has waited still counts.",
		Example: "  runlog queue prioritize run-7 9",
		Args:    session.Arguments(2, 2, "the id of a run and a priority"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil {
				return output.UsageError("priority %q is no number from 0 to 9", args[1])
			}
			priority := uint32(n)
			return a.WithClient(func(c *client.Client) error {
				res, err := c.Reprioritize(cmd.Context(), &runlogv1.ReprioritizeRequest{RunId: args[0], Priority: &priority})
				if err != nil {
					return err
				}
				return a.Tell(fmt.Sprintf("run %s has the priority %d; it is %s", args[0], res.GetRun().GetPriority(), res.GetRun().GetState()), res.GetRun())
			})
		},
	}
}
