package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/cmd/runlog/internal/access"
	"runlog/cmd/runlog/internal/audit"
	"runlog/cmd/runlog/internal/backup"
	"runlog/cmd/runlog/internal/cluster"
	"runlog/cmd/runlog/internal/intake"
	"runlog/cmd/runlog/internal/outbox"
	"runlog/cmd/runlog/internal/queue"
	"runlog/cmd/runlog/internal/runs"
	"runlog/cmd/runlog/internal/serve"
	"runlog/cmd/runlog/internal/signal"
	"runlog/cmd/runlog/internal/subscription"
	"runlog/cmd/runlog/internal/tenant"
	"runlog/cmd/runlog/internal/witness"
)

// run executes one command line, prints its error, and returns the exit code.
func run(ctx context.Context, s *session.Session, args []string) output.ExitCode {
	return s.Run(ctx, rootCommand(s), args, func() error { return s.CheckEnvironment(serve.Variables(s)) })
}

func rootCommand(s *session.Session) *cobra.Command {
	root := &cobra.Command{
		Use:   "runlog",
		Short: "Append authority and projection database for workflow runs",
		Long: `runlog keeps the events of workflow runs in order, each once, forever, and serves
the state that they add up to.

  runlog serve                     start a node on this machine
  runlog append -f events.jsonl    store events
  runlog snapshot RUN              show the state of a run
  runlog watch RUN                 follow it
  runlog cluster status            show the nodes
  runlog backup DIR                back up a node; runlog restore makes a node of a backup

` + output.ExitCodeHelp(),
		Version:                    s.Version,
		Args:                       cobra.ArbitraryArgs,
		RunE:                       runRoot,
		SuggestionsMinimumDistance: 2,
	}
	s.Register(root)
	root.AddCommand(slices.Concat(serve.Commands(s), access.Commands(s), tenant.Commands(s), intake.Commands(s), outbox.Commands(s), runs.Commands(s),
		queue.Commands(s), signal.Commands(s), subscription.Commands(s), audit.Commands(s), cluster.Commands(s), backup.Commands(s), witness.Commands(s))...)
	root.AddCommand(errorsCommand(s), versionCommand(s), exitCodesTopic())
	return root
}

// runRoot runs without a command, or with an unknown one.
func runRoot(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := "runlog --help lists the commands"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %s?", strings.Join(near, " or "))
	}
	return output.UsageError("unknown command %q; %s", args[0], hint)
}

func versionCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			return s.Tell(fmt.Sprintf("runlog %s (%s, %s)", s.Version, runtime.Version(), platform), struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{s.Version, runtime.Version(), platform})
		},
	}
}

// exitCodesTopic is "runlog help exit-codes".
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes tell a script",
		Long: output.ExitCodeHelp() + `

Every error is one line on stderr: the reason, the cause, the remedy. An append that ended
with 5, 6 or 130 may be repeated as it is: the server recognises stored events by their key.`,
	}
}
