package queue

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

// settings are the flags of queue put.
type settings struct {
	maxRunning, maxQueued        uint64
	onFull                       string
	delay, leaseTTL, agingPeriod session.Duration
	drainTimeout                 session.Duration
	maxStartAttempts             uint32
}

func (s *settings) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Uint64Var(&s.maxRunning, "max-running", 0, "how many runs may be leased or running; 0: no limit")
	f.Uint64Var(&s.maxQueued, "max-queued", 0, "how many runs may wait beyond the free slots; 0: no limit")
	f.StringVar(&s.onFull, "on-full", "", "what becomes of a request over --max-running: reject, queue (the default of a new queue) or delay")
	f.Var(&s.delay, "delay", "how long such a request waits at least, with --on-full delay")
	f.Var(&s.leaseTTL, "lease-ttl", "how long a lease lasts, 1s to 1h (30s in a new queue)")
	f.Uint32Var(&s.maxStartAttempts, "max-start-attempts", 0, "how often a run is leased before its start has failed, 1 to 1000 (5 in a new queue)")
	f.Var(&s.agingPeriod, "aging-period", "after how long a run that waits counts one priority higher, at least 1s (10m in a new queue)")
	f.Var(&s.drainTimeout, "drain-timeout", "how long a pause of a run may drain before PAUSE_DRAIN_TIMEOUT is raised; 0s: as long as the nodes' --drain-timeout")
	session.Complete(cmd, "on-full", "reject", "queue", "delay")
}

// message returns the settings that are given.
func (s *settings) message(flags *pflag.FlagSet) (*runlogv1.QueueSettings, error) {
	m := &runlogv1.QueueSettings{Delay: s.delay.Value, LeaseTtl: s.leaseTTL.Value, AgingPeriod: s.agingPeriod.Value, DrainTimeout: s.drainTimeout.Value}
	if flags.Changed("max-running") {
		m.MaxRunning = &s.maxRunning
	}
	if flags.Changed("max-queued") {
		m.MaxQueued = &s.maxQueued
	}
	if flags.Changed("max-start-attempts") {
		m.MaxStartAttempts = &s.maxStartAttempts
	}
	if flags.Changed("on-full") {
		m.OnFull = runlogv1.OnFull_Value(runlogv1.OnFull_Value_value[strings.ToUpper(s.onFull)])
		if m.OnFull == runlogv1.OnFull_VALUE_UNSPECIFIED {
			return nil, output.UsageError("--on-full %q is not reject, queue or delay", s.onFull)
		}
	}
	return m, nil
}

func (a *app) putCommand() *cobra.Command {
	var (
		s   scope
		set settings
	)
	cmd := &cobra.Command{
		Use:   "put [QUEUE]",
		Short: "Make a queue, or change its settings",
		Long: `Make a queue, or change the settings that are given; the others stay as they are. Without QUEUE, it is the one
called default. A queue that was never put exists from its first request on. This needs the role operator.`,
		Example: "  runlog queue put --tenant acme --project web --environment prod --max-running 10 --on-full delay --delay 30s",
		Args:    oneQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.one(cmd.Flags(), args); err != nil {
				return err
			}
			m, err := set.message(cmd.Flags())
			if err != nil {
				return err
			}
			req := &runlogv1.PutQueueRequest{TenantId: s.tenant, ProjectId: s.project, EnvironmentId: s.environment, Queue: s.queue, Settings: m}
			return a.WithClient(func(c *client.Client) error { return a.answered(c.PutQueue(cmd.Context(), req)) })
		},
	}
	s.addFlags(cmd.Flags(), "queue")
	set.addFlags(cmd)
	return cmd
}

func (a *app) pauseCommand() *cobra.Command {
	return a.switchCommand("pause", "Stop the leases of a queue",
		"Stop the leases of a queue. Requests are still taken, and runs that are leased or running go on.",
		func(ctx context.Context, c *client.Client, s *scope) error {
			return a.answered(c.PauseQueue(ctx, &runlogv1.PauseQueueRequest{TenantId: s.tenant, ProjectId: s.project, EnvironmentId: s.environment, Queue: s.queue}))
		})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.switchCommand("resume", "Let the runs of a paused queue be leased again", "",
		func(ctx context.Context, c *client.Client, s *scope) error {
			return a.answered(c.ResumeQueue(ctx, &runlogv1.ResumeQueueRequest{TenantId: s.tenant, ProjectId: s.project, EnvironmentId: s.environment, Queue: s.queue}))
		})
}

// switchCommand is a command that pauses or resumes a queue.
func (a *app) switchCommand(name, short, long string, call func(context.Context, *client.Client, *scope) error) *cobra.Command {
	var s scope
	cmd := &cobra.Command{
		Use:     name + " [QUEUE]",
		Short:   short,
		Long:    long,
		Example: "  runlog queue " + name + " nightly --tenant acme --project web --environment prod",
		Args:    oneQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.one(cmd.Flags(), args); err != nil {
				return err
			}
			return a.WithClient(func(c *client.Client) error { return call(cmd.Context(), c, &s) })
		},
	}
	s.addFlags(cmd.Flags(), "queue")
	return cmd
}
