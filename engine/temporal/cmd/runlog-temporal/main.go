// Command runlog-temporal runs plans in Temporal, and records them in runlog
// (docs/temporal.md).
//
//	runlog-temporal worker  --environment prod --allow file:///srv/plans --executors http
//	runlog-temporal start   --tenant acme --project shop --run run-1 plan.json
//	runlog-temporal signal  --run run-1 PAUSE
//	runlog-temporal sweep   --tenant acme
//	runlog-temporal cleanup --prefix pr- --dir /srv/archive
//	runlog-temporal history --run run-1
package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"time"

	sdkclient "go.temporal.io/sdk/client"

	"runlog/client"
	"runlog/client/address"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/program"
	"runlog/engine/temporal"
	"runlog/engine/workerflags"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

const name = "runlog-temporal"

func main() { program.Main(name, run) }

// verb is a subcommand.
type verb struct {
	program.Verb
	flags func(*app)
	do    func(context.Context, *app, []string) error
}

var verbs = []verb{
	{program.Verb{Name: "worker", Short: "work on runs: workflows, steps, signals, the queue, and runs that Temporal has ended"}, workerFlags, work},
	{program.Verb{Name: "start", Args: "PLAN-FILE", Short: "create a run of a plan, and start it without a queue"}, startFlags, start},
	{program.Verb{Name: "signal", Args: "TYPE", Short: "send a signal to a run"}, signalFlags, send},
	{program.Verb{Name: "sweep", Short: "end the runs whose workflows Temporal has ended, once"}, sweepFlags, sweep},
	{program.Verb{Name: "cleanup", Short: "archive and delete ephemeral namespaces that are idle"}, cleanupFlags, cleanup},
	{program.Verb{Name: "history", Short: "print the history of the workflow of a run, for replay tests"}, runFlag, history},
}

// app is what the subcommands share.
type app struct {
	out, err io.Writer
	flags    *flag.FlagSet

	temporal, namespace, prefixOfWorkflows string
	security                               security
	node                                   program.Node
	scope                                  program.Scope
	run, worker                            string
	// Those of single subcommands.
	allow                 program.List
	queues                program.Queues
	health                *program.Health
	equipment             workerflags.Flags
	concurrency           int
	sweepEvery, grace     time.Duration
	register, adopt       bool
	settings              temporal.Settings
	uri, step, id, reason string
	prefix, dir           string
	idle, patience        time.Duration
	// once: the command ends, and does not wait for a server that is away.
	once bool

	sdk    sdkclient.Client
	log    *client.Client
	logger *slog.Logger
}

func run(ctx context.Context, out, stderr io.Writer, args []string) error {
	a, do, err := parse(out, stderr, args)
	if err != nil {
		return program.Usage(err)
	}
	if err := a.dial(); err != nil {
		return program.Usage(err)
	}
	defer a.close()
	return a.explain(do(ctx, a, a.flags.Args()))
}

// parse reads the command line.
func parse(out, stderr io.Writer, args []string) (*app, func(context.Context, *app, []string) error, error) {
	var list []program.Verb
	for _, v := range verbs {
		list = append(list, v.Verb)
	}
	i, err := program.Choose(name, version, list, out, stderr, args)
	if err != nil {
		return nil, nil, err
	}
	v := verbs[i]
	a := &app{out: out, err: stderr, health: program.NewHealth(), patience: patience, once: v.Name != "worker", flags: flag.NewFlagSet(name+" "+v.Name, flag.ContinueOnError),
		node: program.Node{Page: "docs/temporal.md"}, logger: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	a.flags.SetOutput(stderr)
	a.flags.StringVar(&a.temporal, "temporal", "127.0.0.1:7233", "address of Temporal")
	a.flags.StringVar(&a.namespace, "namespace", "default", "namespace in Temporal")
	a.security.register(a.flags)
	a.flags.StringVar(&a.prefixOfWorkflows, "workflow-prefix", temporal.DefaultPrefix, "how the ids of workflows begin, before those of their runs")
	a.node.Register(a.flags)
	a.scope.Register(a.flags)
	if v.flags != nil {
		v.flags(a)
	}
	if err := a.flags.Parse(args[1:]); err != nil {
		return nil, nil, err
	}
	if err := v.CheckArguments(a.flags.Args()); err != nil {
		return nil, nil, err
	}
	if err := a.validate(); err != nil {
		return nil, nil, err
	}
	return a, v.do, nil
}

func (a *app) dial() (err error) {
	sdk := sdkclient.Options{HostPort: a.temporal, Namespace: a.namespace, Logger: sdkLogger{a.logger}}
	if err := a.security.apply(&sdk, a.logger); err != nil {
		return err
	}
	if a.sdk, err = sdkclient.NewLazyClient(sdk); err != nil {
		return err
	}
	o := client.Options{Logger: a.logger}
	if a.once {
		o.Timeout, o.FirstAttempts = patience, 3
	}
	a.log, err = a.node.Dial(o)
	return err
}

func (a *app) close() {
	a.sdk.Close()
	_ = a.log.Close() // The process ends.
}

// equipped returns what a worker executes steps with. The other commands execute none.
func (a *app) equipped() (workerflags.Worker, error) {
	if a.once {
		none, err := executor.NewRegistry(executor.Options{}, nil)
		return workerflags.Worker{Executors: none}, err
	}
	return a.equipment.Build(workerflags.Options{Getenv: os.Getenv, Tenant: a.scope.Tenant, Environment: a.scope.Environment, Logger: a.logger, Trusting: a.trusting()})
}

// trusting reports whether only users of this machine can request runs.
func (a *app) trusting() bool {
	return a.node.Private() && !a.security.asked(a.temporal) && address.OnThisMachine(a.temporal)
}

// engine returns the engine of the flags. It connects to nothing: an error is nearly always of the
// command line.
func (a *app) engine() (*temporal.Engine, error) {
	e, err := a.build()
	return e, program.Usage(err)
}

func (a *app) build() (*temporal.Engine, error) {
	equipped, err := a.equipped()
	if err != nil {
		return nil, err
	}
	blobs, err := blob.New(blob.Options{Allow: a.allow})
	if err != nil {
		return nil, err
	}
	plans, err := plan.NewFetcher(plan.FetcherOptions{Source: blobs, Logger: a.logger, Registerer: a.health.Metrics})
	if err != nil {
		return nil, err
	}
	if a.worker == "" {
		if a.worker, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	queues, isolation := a.queues.Of(a.scope.Environment)
	return temporal.New(temporal.Options{Temporal: a.sdk, Namespace: a.namespace, Prefix: a.prefixOfWorkflows, Log: a.log, Plans: plans,
		Registry: equipped.Executors, Blobs: blobs, Secrets: equipped.Secrets, Worker: a.worker, Queues: queues, Isolation: isolation, Concurrency: a.concurrency,
		Grace: a.grace, Logger: a.logger,
		Settings: a.settings})
}

// sdkLogger lets the SDK log warnings and errors.
type sdkLogger struct{ *slog.Logger }

// Debug logs nothing.
func (sdkLogger) Debug(string, ...any) {}

// Info logs nothing.
func (sdkLogger) Info(string, ...any) {}
