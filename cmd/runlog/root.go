package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"runlog/client"
)

const (
	defaultServer  = "127.0.0.1:7410"
	defaultTimeout = 30 * time.Second
)

// app is what the commands share: the streams of the process and the flags that all of them have.
type app struct {
	stdin                    io.Reader
	stdout, stderr           io.Writer
	stdoutWidth, stderrWidth int // columns; 0 where the stream is no terminal
	getenv                   func(string) string
	dialOptions              []grpc.DialOption // a test's way to its own server

	server  string
	format  outputFormat
	timeout time.Duration
	// began is set once the command line is understood; an error before that is a usage error.
	began bool
}

// run executes one command line and returns the exit code; errors have been printed.
func (a *app) run(ctx context.Context, args []string) exitCode {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !a.began {
		err = usageError("%v; see %s --help", err, cmd.CommandPath())
	}
	code, text := a.explain(err)
	fmt.Fprintf(a.stderr, "runlog: %s\n", text)
	return code
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "runlog",
		Short: "Append authority and projection database for workflow runs",
		Long: `runlog keeps the events of workflow runs in order, once each, for ever, and serves
what they add up to.

  runlog serve                     start a node on this machine
  runlog append -f events.jsonl    store events
  runlog snapshot RUN              show what a run has come to
  runlog watch RUN                 follow it
  runlog cluster status            show the nodes
  runlog backup DIR                back a node up, and restore it

` + exitCodeHelp(),
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          runRoot,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.began = true
		},
		SuggestionsMinimumDistance: 2,
	}
	server := a.getenv("RUNLOG_SERVER")
	if server == "" {
		server = defaultServer
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", server, "addresses of the cluster's nodes with commas between them, or of some; also RUNLOG_SERVER")
	flags.VarP(&a.format, "output", "o", "table, or json: one object a line")
	flags.DurationVar(&a.timeout, "timeout", defaultTimeout, "longest wait for one answer, retries included; 0 waits for ever")
	complete(root, "output", "table", "json")
	root.AddCommand(
		a.serveCommand(),
		a.appendCommand(),
		a.importCommand(),
		a.eventsCommand(),
		a.snapshotCommand(),
		a.watchCommand(),
		a.runsCommand(),
		a.auditCommand(),
		a.clusterCommand(),
		a.backupCommand(),
		a.restoreCommand(),
		a.projectorCommand(),
		a.errorsCommand(),
		a.benchCommand(),
		a.versionCommand(),
		exitCodesTopic(),
	)
	return root
}

// runRoot is reached without a command, or with one that does not exist.
func runRoot(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := "runlog --help lists the commands"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %s?", strings.Join(near, " or "))
	}
	return usageError("unknown command %q; %s", args[0], hint)
}

// dial prepares the client. A server that has never answered is given up after a moment, one that
// has is waited for until --timeout: it restarts, or elects a leader.
func (a *app) dial() (*client.Client, error) {
	c, err := client.Dial(a.server, client.Options{
		MaxAttempts:   30,
		FirstAttempts: 3,
		Timeout:       a.timeout,
		DialOptions:   a.dialOptions,
	})
	if err != nil {
		return nil, usageError("%v", err)
	}
	return c, nil
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if a.format == formatJSON {
				return json.NewEncoder(a.stdout).Encode(struct {
					Version  string `json:"version"`
					Go       string `json:"go"`
					Platform string `json:"platform"`
				}{version, runtime.Version(), platform})
			}
			_, err := fmt.Fprintf(a.stdout, "runlog %s (%s, %s)\n", version, runtime.Version(), platform)
			return err
		},
	}
}

// oneRun is the argument check of the commands about one run.
func oneRun(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes the id of one run, not %s", cmd.Name(), plural(len(args), "argument"))
	}
	return nil
}

// complete offers fixed values for a flag to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag does not exist
	}
}
