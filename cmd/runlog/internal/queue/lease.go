package queue

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) leaseCommand() *cobra.Command {
	var (
		s         scope
		wait, ttl session.Duration
		req       runlogv1.LeaseRunsRequest
	)
	cmd := &cobra.Command{
		Use:   "lease [QUEUE]",
		Short: "Lease the next runs of queues, to start them",
		Long: `Lease the next runs of the queues in a scope, or of QUEUE alone. Start each run, and then release its lease with
runlog queue release. A lease that is not released ends by itself, and the run is leased again with a higher fence.
No command renews a lease: choose a --ttl that is longer than the start.
A program gives the fence with each append to the run, as runlog append --fence does: it is refused once
another worker has the run.`,
		Example: "  runlog queue lease --tenant acme --worker host-1 --max 5 --wait 30s -o json",
		Args:    oneQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.some(cmd.Flags(), args); err != nil {
				return err
			}
			if err := require(cmd.Flags(), "worker"); err != nil {
				return err
			}
			req.TenantId, req.ProjectId, req.EnvironmentId, req.Queue, req.Wait, req.Ttl = s.tenant, s.project, s.environment, s.queue, wait.Value, ttl.Value
			// It bounds the answer, not the wait for a run.
			if a.Timeout > 0 && wait.Value.AsDuration() > 0 {
				a.Timeout += wait.Value.AsDuration()
			}
			return a.WithClient(func(c *client.Client) error {
				res, err := c.LeaseRuns(cmd.Context(), &req)
				if err != nil {
					return err
				}
				return output.List(&a.Output, output.All(res.GetLeases()), 0, output.JSONLine, leaseCells,
					"RUN", "FENCE", "LEASED UNTIL", "ATTEMPT", "QUEUE", "PLAN", "VERSION", "ENGINE RUN")
			})
		},
	}
	s.addFlags(cmd.Flags(), "queues; all if left out")
	f := cmd.Flags()
	f.StringVar(&req.Worker, "worker", "", "name of the worker, for people")
	f.Uint32Var(&req.Max, "max", 1, "how many runs to lease, 1 to 100")
	f.Var(&wait, "wait", "how long to wait for a run, up to 1m; not at all if left out")
	f.Var(&ttl, "ttl", "how long the leases last, 1s to 1h; as the queue says if left out")
	return cmd
}

func leaseCells(l *runlogv1.Lease) []string {
	plan := l.GetRun().GetPlanRef()
	return []string{l.GetRunId(), strconv.FormatUint(l.GetFence(), 10), output.Stamp(l.GetExpireTime()), strconv.FormatUint(uint64(l.GetStartAttempt()), 10),
		l.GetQueue(), plan.GetPlanId(), plan.GetPlanVersion(), l.GetRun().GetEngineRunRef()}
}

// outcomes are the outcomes of a lease.
var outcomes = []string{"started", "failed", "skipped"}

func (a *app) releaseCommand() *cobra.Command {
	var (
		req        runlogv1.ReleaseLeaseRequest
		outcome    string
		reference  string
		retryAfter session.Duration
	)
	cmd := &cobra.Command{
		Use:   "release RUN",
		Short: "End a lease, and say what became of the start",
		Long: `End a lease with its outcome. started: the engine has the run, which occupies a slot until its terminal event.
failed: the run waits and is leased again; after the last attempt it ends with RunFailed. skipped: the run must not
be started, and ends with RunCancelled. The same release again changes nothing.`,
		Example: "  runlog queue release run-7 --fence 2 --outcome started --engine-run-ref temporal://shop/run-7\n  runlog queue release run-7 --fence 2 --outcome failed --error \"no worker\" --retry-after 1m",
		Args:    session.OneRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.RunId, req.RetryAfter = args[0], retryAfter.Value
			if !cmd.Flags().Changed("fence") {
				return output.UsageError("--fence is required: runlog queue lease has shown it")
			}
			if err := require(cmd.Flags(), "outcome"); err != nil {
				return err
			}
			req.Outcome = runlogv1.LeaseOutcome_Value(runlogv1.LeaseOutcome_Value_value[strings.ToUpper(outcome)])
			if req.Outcome == runlogv1.LeaseOutcome_VALUE_UNSPECIFIED {
				return output.UsageError("--outcome %q is not one of %s", outcome, strings.Join(outcomes, ", "))
			}
			if cmd.Flags().Changed("engine-run-ref") {
				req.EngineRunRef = &reference
			}
			return a.WithClient(func(c *client.Client) error {
				res, err := c.ReleaseLease(cmd.Context(), &req)
				if err != nil {
					return err
				}
				text := fmt.Sprintf("run %s is %s", req.RunId, res.GetState())
				if res.NotBefore != nil {
					text += " until " + output.Stamp(res.GetNotBefore())
				}
				if res.GetIdempotent() {
					text += "; the lease was released before"
				}
				return a.Tell(text, res)
			})
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&req.Fence, "fence", 0, "the fence of the lease")
	f.StringVar(&outcome, "outcome", "", strings.Join(outcomes, ", "))
	f.StringVar(&reference, "engine-run-ref", "", "with started: the engine's own reference of the run")
	f.StringVar(&req.Error, "error", "", "why the run was not started, for people")
	f.Var(&retryAfter, "retry-after", "with failed: after how long the run is leased again, up to 24h; after a backoff if left out")
	session.Complete(cmd, "outcome", outcomes...)
	return cmd
}
