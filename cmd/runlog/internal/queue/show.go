package queue

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) lsCommand() *cobra.Command {
	var s scope
	var limit uint64
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List queues",
		Long: `List queues in the order of their names. READY runs may be leased, DELAYED ones wait for a time, and both
are the depth of the queue. LEASED and RUNNING ones occupy its slots, of which there are MAX.`,
		Example: "  runlog queue ls --tenant acme\n  runlog queue ls --tenant acme --project web -o json",
		Args:    session.NoArguments("runlog queue show QUEUE shows one queue"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.some(cmd.Flags(), nil); err != nil {
				return err
			}
			return a.WithClient(func(c *client.Client) error {
				req := &runlogv1.ListQueuesRequest{TenantId: s.tenant, ProjectId: s.project, EnvironmentId: s.environment, PageSize: session.PageSize(limit)}
				seq := client.Pages(cmd.Context(), req, c.ListQueues, (*runlogv1.ListQueuesResponse).GetQueues)
				return output.List(&a.Output, seq, limit, output.JSONLine, queueCells,
					"TENANT", "PROJECT", "ENVIRONMENT", "QUEUE", "STATE", "READY", "DELAYED", "LEASED", "RUNNING", "MAX", "OLDEST")
			})
		},
	}
	s.addFlags(cmd.Flags(), "queues; all if left out")
	session.LimitFlag(cmd.Flags(), &limit, 100, "limit of the number of queues")
	return cmd
}

func queueCells(q *runlogv1.Queue) []string {
	return []string{q.GetTenantId(), q.GetProjectId(), q.GetEnvironmentId(), q.GetQueue(), stateOf(q), output.Number(q.GetReady()), output.Number(q.GetDelayed()),
		output.Number(q.GetLeased()), output.Number(q.GetRunning()), limitText(q.GetSettings().GetMaxRunning()), output.Stamp(q.GetOldestAt())}
}

func stateOf(q *runlogv1.Queue) string {
	switch {
	case q.GetHeldReason() != "" && q.GetSettings().GetPaused():
		return "HELD, paused" // It stays paused once the cluster is released.
	case q.GetHeldReason() != "":
		return "HELD"
	case q.GetSettings().GetPaused():
		return "paused"
	}
	return "open"
}

// limitText formats a limit, of which 0 is none.
func limitText(n uint64) string {
	if n == 0 {
		return "no limit"
	}
	return output.Number(n)
}

func (a *app) showCommand() *cobra.Command {
	var (
		s      scope
		runs   bool
		states []string
		limit  uint64
	)
	cmd := &cobra.Command{
		Use:   "show [QUEUE]",
		Short: "Show a queue, or the runs in it",
		Long: `Show the counts and the settings of a queue; without QUEUE, of the one called default. With --runs, list its
runs instead: those that run, those that are leased, those that are ready in the order in which they are leased,
aging aside, and those that are delayed.`,
		Example: "  runlog queue show --tenant acme --project web --environment prod\n  runlog queue show nightly --tenant acme --project web --environment prod --runs --state ready,delayed",
		Args:    oneQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.one(cmd.Flags(), args); err != nil {
				return err
			}
			list := &runlogv1.ListQueuedRunsRequest{TenantId: s.tenant, ProjectId: s.project, EnvironmentId: s.environment, Queue: s.queue, PageSize: session.PageSize(limit)}
			for _, name := range states {
				state := runlogv1.QueuedRunState_Value(runlogv1.QueuedRunState_Value_value[strings.ToUpper(name)])
				if state == 0 || state == runlogv1.QueuedRunState_ENDED {
					return output.UsageError("--state %q is no state; want one of %s", name, strings.Join(stateNames, ", "))
				}
				list.State = append(list.State, state)
			}
			return a.WithClient(func(c *client.Client) error {
				if runs || len(states) > 0 {
					seq := client.Pages(cmd.Context(), list, c.ListQueuedRuns, (*runlogv1.ListQueuedRunsResponse).GetRuns)
					return output.List(&a.Output, seq, limit, output.JSONLine, runCells,
						"RUN", "STATE", "PRIORITY", "ENQUEUED", "NOT BEFORE", "ATTEMPTS", "WORKER", "LEASED UNTIL")
				}
				return a.answered(c.GetQueue(cmd.Context(), &runlogv1.GetQueueRequest{TenantId: s.tenant, ProjectId: s.project, EnvironmentId: s.environment, Queue: s.queue}))
			})
		},
	}
	s.addFlags(cmd.Flags(), "queue")
	cmd.Flags().BoolVar(&runs, "runs", false, "list the runs in the queue")
	cmd.Flags().StringSliceVar(&states, "state", nil, "list only runs in one of these states, separated by commas: "+strings.Join(stateNames, ", "))
	session.Complete(cmd, "state", stateNames...)
	session.LimitFlag(cmd.Flags(), &limit, 100, "limit of the number of runs")
	return cmd
}

// stateNames are the states of runs that are in a queue.
var stateNames = []string{"ready", "delayed", "leased", "running", "exhausted"}

func runCells(r *runlogv1.QueuedRun) []string {
	return []string{r.GetRunId(), r.GetState().String(), strconv.FormatUint(uint64(r.GetPriority()), 10), output.Stamp(r.GetEnqueuedAt()),
		output.Stamp(r.GetNotBefore()), strconv.FormatUint(uint64(r.GetStartAttempts()), 10), r.GetWorker(), output.Stamp(r.GetLeaseExpireTime())}
}

// answered prints the queue that a call has returned.
func (a *app) answered(res interface{ GetQueue() *runlogv1.Queue }, err error) error {
	if err != nil {
		return err
	}
	q := res.GetQueue()
	s := q.GetSettings()
	waiting := output.Number(q.GetDepth())
	if q.GetDepth() > 0 {
		waiting += fmt.Sprintf(" (%s ready, %s delayed)", output.Number(q.GetReady()), output.Number(q.GetDelayed()))
	}
	return a.Show(q,
		[2]string{"Queue", q.GetQueue()},
		[2]string{"Scope", q.GetTenantId() + " / " + q.GetProjectId() + " / " + q.GetEnvironmentId()},
		[2]string{"State", stateOf(q)},
		[2]string{"Held", q.GetHeldReason()},
		[2]string{"Waiting", waiting},
		[2]string{"Oldest", output.Stamp(q.GetOldestAt())},
		[2]string{"By priority", byPriority(q.GetReadyByPriority())},
		[2]string{"Leased", output.Number(q.GetLeased())},
		[2]string{"Running", output.Number(q.GetRunning())},
		[2]string{"Total", fmt.Sprintf("%s requested, %s started, %s ended",
			output.Number(q.GetRequestsTotal()), output.Number(q.GetStartsTotal()), output.Number(q.GetEndsTotal()))},
		[2]string{"Max running", limitText(s.GetMaxRunning())},
		[2]string{"Max queued", limitText(s.GetMaxQueued())},
		[2]string{"On full", onFullText(s)},
		[2]string{"Lease TTL", s.GetLeaseTtl().AsDuration().String()},
		[2]string{"Start attempts", output.Number(s.GetMaxStartAttempts())},
		[2]string{"Aging period", s.GetAgingPeriod().AsDuration().String()},
		[2]string{"Drain timeout", drainText(s.GetDrainTimeout())},
		[2]string{"Created", output.Stamp(q.GetCreatedAt())},
	)
}

// drainText shows the drain timeout of a queue; nil: it has none of its own.
func drainText(d *durationpb.Duration) string {
	if d == nil {
		return "that of the nodes"
	}
	return d.AsDuration().String()
}

// byPriority lists the ready runs by priority, the highest first.
func byPriority(counts []uint64) string {
	var parts []string
	for p := len(counts) - 1; p >= 0; p-- {
		if counts[p] > 0 {
			parts = append(parts, fmt.Sprintf("%d: %s", p, output.Number(counts[p])))
		}
	}
	return strings.Join(parts, ", ")
}

func onFullText(s *runlogv1.QueueSettings) string {
	text := strings.ToLower(s.GetOnFull().String())
	if s.GetOnFull() == runlogv1.OnFull_DELAY {
		text += " for " + s.GetDelay().AsDuration().String()
	}
	return text
}
