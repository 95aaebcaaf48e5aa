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
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdkclient "go.temporal.io/sdk/client"

	"runlog/client"
	"runlog/client/address"
	"runlog/client/contexts"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/route"
	"runlog/engine/temporal"
	"runlog/engine/workerflags"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	err := run(ctx, os.Stdout, os.Stderr, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "runlog-temporal:", err)
		os.Exit(1)
	}
}

// verb is a subcommand.
type verb struct {
	name, args, short string
	flags             func(*app)
	do                func(context.Context, *app, []string) error
}

var verbs = []verb{
	{"worker", "", "work on runs: workflows, steps, signals, the queue, and runs that Temporal has ended", workerFlags, work},
	{"start", "PLAN-FILE", "create a run of a plan, and start it without a queue", startFlags, start},
	{"signal", "TYPE", "send a signal to a run", signalFlags, send},
	{"sweep", "", "end the runs whose workflows Temporal has ended, once", sweepFlags, sweep},
	{"cleanup", "", "archive and delete ephemeral namespaces that are idle", cleanupFlags, cleanup},
	{"history", "", "print the history of the workflow of a run, for replay tests", runFlag, history},
}

// app is what the subcommands share.
type app struct {
	out, err io.Writer
	flags    *flag.FlagSet

	temporal, namespace, prefixOfWorkflows string
	security                               security
	// node is the connection to runlog.
	node                                      contexts.Connection
	tenant, project, environment, run, worker string
	// Those of single subcommands.
	allow, queues, isolation list
	classes                  list
	metricsListen            string
	equipment                workerflags.Flags
	concurrency              int
	sweepEvery, grace        time.Duration
	register, adopt          bool
	settings                 temporal.Settings
	uri, step, id, reason    string
	prefix, dir              string
	idle, patience           time.Duration
	// once: the command ends, and does not wait for a server that is away.
	once bool

	metrics *prometheus.Registry
	// working is set once the worker takes runs and steps. Its error says that it stops.
	working atomic.Pointer[func() error]

	sdk    sdkclient.Client
	log    *client.Client
	logger *slog.Logger
}

// list is a flag that may repeat.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set adds a value.
func (l *list) Set(value string) error { *l = append(*l, value); return nil }

func run(ctx context.Context, out, stderr io.Writer, args []string) error {
	a, do, err := parse(out, stderr, args)
	if err != nil {
		return err
	}
	if err := a.dial(); err != nil {
		return err
	}
	defer a.close()
	return a.explain(do(ctx, a, a.flags.Args()))
}

// parse reads the command line.
func parse(out, stderr io.Writer, args []string) (*app, func(context.Context, *app, []string) error, error) {
	i := -1
	if len(args) > 0 {
		i = slices.IndexFunc(verbs, func(v verb) bool { return v.name == args[0] })
	}
	if i < 0 {
		return nil, nil, noVerb(out, stderr, args)
	}
	v := verbs[i]
	a := &app{out: out, err: stderr, metrics: prometheus.NewRegistry(), patience: patience, once: v.name != "worker", flags: flag.NewFlagSet("runlog-temporal "+v.name, flag.ContinueOnError),
		logger: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	a.flags.SetOutput(stderr)
	a.flags.StringVar(&a.temporal, "temporal", "127.0.0.1:7233", "address of Temporal")
	a.flags.StringVar(&a.namespace, "namespace", "default", "namespace in Temporal")
	a.security.register(a.flags)
	a.flags.StringVar(&a.prefixOfWorkflows, "workflow-prefix", temporal.DefaultPrefix, "how the ids of workflows begin, before those of their runs")
	a.flags.StringVar(&a.node.Server, "server", "127.0.0.1:7410", "addresses of runlog, with commas between them; https:// asks for TLS")
	a.flags.StringVar(&a.node.CACert, "cacert", "", "PEM file of the certificate authority of runlog (default: those of this system)")
	a.flags.StringVar(&a.node.Cert, "cert", "", "PEM file of the client certificate for runlog, with its key unless --cert-key names it")
	a.flags.StringVar(&a.node.CertKey, "cert-key", "", "PEM file of the key of --cert")
	a.flags.StringVar(&a.node.TokenFile, "token-file", "", "file with the token for runlog")
	a.flags.StringVar(&a.tenant, "tenant", "", "tenant of the runs")
	a.flags.StringVar(&a.project, "project", "", "project of the runs")
	a.flags.StringVar(&a.environment, "environment", "prod", "environment of the runs")
	if v.flags != nil {
		v.flags(a)
	}
	if err := a.flags.Parse(args[1:]); err != nil {
		return nil, nil, err
	}
	if want := len(strings.Fields(v.args)); a.flags.NArg() != want {
		if want == 0 {
			return nil, nil, fmt.Errorf("%s takes flags alone, and got %q: leave it out", v.name, strings.Join(a.flags.Args(), " "))
		}
		return nil, nil, fmt.Errorf("%s takes one argument, %s, behind its flags, and got %q", v.name, v.args, strings.Join(a.flags.Args(), " "))
	}
	if err := a.validate(); err != nil {
		return nil, nil, err
	}
	return a, v.do, nil
}

// noVerb answers a command line without a subcommand.
func noVerb(out, stderr io.Writer, args []string) error {
	is := func(names ...string) bool { return len(args) > 0 && slices.Contains(names, args[0]) }
	if is("version", "-version", "--version") {
		fmt.Fprintln(out, "runlog-temporal", version)
		return flag.ErrHelp
	}
	fmt.Fprintln(stderr, "usage: runlog-temporal COMMAND [flags]")
	for _, v := range verbs {
		fmt.Fprintf(stderr, "  %-8s %s\n", v.name, v.short)
	}
	const remedy = "name a command: runlog-temporal COMMAND --help tells its flags"
	switch {
	case len(args) == 0:
		return errors.New(remedy)
	case is("help", "-h", "-help", "--help"):
		return flag.ErrHelp
	}
	return fmt.Errorf("unknown command %q: %s", args[0], remedy)
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
	if o, err = o.WithToken(&a.node); err != nil {
		return fmt.Errorf("--%w", err)
	}
	secure, err := client.Secure(a.node.Server)
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	if o.TLSFiles, err = a.node.TLSFiles(secure); err != nil {
		return fmt.Errorf("--%w", err)
	}
	a.log, err = client.Dial(a.node.Server, o)
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
	return a.equipment.Build(workerflags.Options{Getenv: os.Getenv, Tenant: a.tenant, Environment: a.environment, Logger: a.logger, Trusting: a.trusting()})
}

// taskQueues returns the task queues of the worker, and whose isolated steps it executes.
func (a *app) taskQueues() (queues []string, isolation []route.Owner) {
	queues = slices.Clone(a.queues)
	for _, class := range []string{route.Control, route.Data} {
		if a.serves(class) {
			queues = append(queues, route.TaskQueue(route.Step{Class: class}, a.environment, ""))
		}
	}
	for _, tenant := range a.isolation {
		isolation = append(isolation, route.Owner{TenantID: tenant, EnvironmentID: a.environment})
	}
	return queues, isolation
}

// serves reports whether the worker has a class. Without a flag it has them all.
func (a *app) serves(class string) bool {
	return len(a.classes) == 0 || slices.Contains(a.classes, class)
}

// trusting reports whether only users of this machine can request runs: all servers are on it, and
// the worker has no credentials.
func (a *app) trusting() bool {
	elsewhere := func(server string) bool { return !address.OnThisMachine(server) }
	return a.node.TokenFile == "" && a.node.Cert == "" && !a.security.asked(a.temporal) &&
		!slices.ContainsFunc(append(strings.Split(a.node.Server, ","), a.temporal), elsewhere)
}

// engine returns the engine of the flags.
func (a *app) engine() (*temporal.Engine, error) {
	equipped, err := a.equipped()
	if err != nil {
		return nil, err
	}
	blobs, err := blob.New(blob.Options{Allow: a.allow})
	if err != nil {
		return nil, err
	}
	plans, err := plan.NewFetcher(plan.FetcherOptions{Source: blobs, Logger: a.logger, Registerer: a.metrics})
	if err != nil {
		return nil, err
	}
	if a.worker == "" {
		if a.worker, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	queues, isolation := a.taskQueues()
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
