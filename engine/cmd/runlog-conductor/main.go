// Command runlog-conductor runs plans in Conductor, and records them in runlog
// (docs/engines-conductor.md).
//
//	runlog-conductor worker --allow file:///srv/plans --owner-email ops@acme.example
//	runlog-conductor capabilities --executors http
package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"runlog/client"
	"runlog/engine/blob"
	"runlog/engine/conductor"
	"runlog/engine/conductor/api"
	"runlog/engine/plan"
	"runlog/engine/program"
	"runlog/engine/workerflags"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

const name = "runlog-conductor"

func main() { program.Main(name, run) }

// verbs are the subcommands. Their flags are the same, so that the capabilities are those of a
// worker with these flags.
var verbs = []program.Verb{
	{Name: "worker", Short: "work on runs: the queue, steps, signals, and runs that Conductor has ended"},
	{Name: "capabilities", Short: "print what a worker with these flags can do, as JSON"},
}

// app is what the subcommands share.
type app struct {
	out   io.Writer
	flags *flag.FlagSet

	conductor conductorFlags
	node      program.Node
	scope     program.Scope
	queues    program.Queues
	health    *program.Health
	equipment workerflags.Flags
	allow     program.List
	sweep     time.Duration
	options   conductor.Options // those that flags set
	patience  time.Duration
	// works: the command is a worker.
	works bool

	api    *api.Client
	log    *client.Client
	logger *slog.Logger
}

func run(ctx context.Context, out, stderr io.Writer, args []string) error {
	a, err := parse(out, stderr, args)
	if err != nil {
		return program.Usage(err)
	}
	return a.run(ctx)
}

func (a *app) run(ctx context.Context) error {
	if err := a.dial(); err != nil {
		return program.Usage(err)
	}
	defer a.close()
	if !a.works {
		return a.capabilities()
	}
	return a.explain(a.work(ctx))
}

// parse reads the command line.
func parse(out, stderr io.Writer, args []string) (*app, error) {
	i, err := program.Choose(name, version, verbs, out, stderr, args)
	if err != nil {
		return nil, err
	}
	v := verbs[i]
	a := &app{out: out, health: program.NewHealth(), patience: patience, works: v.Name == "worker", flags: flag.NewFlagSet(name+" "+v.Name, flag.ContinueOnError),
		node: program.Node{Page: "docs/engines-conductor.md"}, logger: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	a.flags.SetOutput(stderr)
	a.conductor.register(a.flags)
	a.node.Register(a.flags)
	a.scope.Register(a.flags)
	a.queues.Register(a.flags)
	a.health.Register(a.flags)
	a.equipment.Register(a.flags)
	a.register(a.flags)
	if err := a.flags.Parse(args[1:]); err != nil {
		return nil, err
	}
	if err := v.CheckArguments(a.flags.Args()); err != nil {
		return nil, err
	}
	return a, a.validate()
}

// register adds the flags of the worker itself.
func (a *app) register(f *flag.FlagSet) {
	o := &a.options
	f.Var(&a.allow, "allow", "URI below which plans and artifacts may be read, such as file:///srv/plans; repeat it")
	f.StringVar(&o.Worker, "worker", "", "name of this process for people (default: the name of the machine)")
	f.StringVar(&o.OwnerEmail, "owner-email", "", "address of the owner of the workflows, which Conductor demands")
	f.IntVar(&o.Concurrency, "concurrency", conductor.DefaultConcurrency, "steps of each queue at a time, 1 to 1000")
	f.IntVar(&o.Attempts, "attempts", conductor.DefaultAttempts, "attempts of a step whose plan does not say")
	f.DurationVar(&o.ResponseTimeout, "response-timeout", conductor.DefaultResponseTimeout, "how long a worker may be silent before its steps are tried elsewhere, in whole seconds")
	f.DurationVar(&o.Wait, "wait", conductor.DefaultWait, "how long a task that cannot run yet stays in its queue, in whole seconds")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", conductor.DefaultDrainTimeout, "after which time of draining a pause is reported")
	f.Int64Var(&o.MemoryBytes, "memory-bytes", conductor.DefaultMemoryBytes, "bytes of the runs and plans that are kept between tasks")
	f.DurationVar(&a.sweep, "sweep-every", time.Minute, "how often runs that Conductor has ended are looked for; 0: never")
	f.DurationVar(&o.Grace, "grace", conductor.DefaultGrace, "how long the steps that are executed may go on when the process is to end, 1s to 1h")
}

// dial prepares the connections, which are made when they are used.
func (a *app) dial() (err error) {
	if a.api, err = a.conductor.dial(a.logger); err != nil {
		return err
	}
	a.log, err = a.node.Dial(client.Options{Logger: a.logger})
	return err
}

func (a *app) close() {
	_ = a.log.Close() // The process ends.
}

// engine returns the engine of the flags. It connects to nothing: an error is nearly always of the
// command line.
func (a *app) engine() (*conductor.Engine, error) {
	e, err := a.build()
	return e, program.Usage(err)
}

func (a *app) build() (*conductor.Engine, error) {
	equipped, err := a.equipment.Build(workerflags.Options{Getenv: os.Getenv, Tenant: a.scope.Tenant, Environment: a.scope.Environment, Logger: a.logger,
		Trusting: a.node.Private() && a.conductor.private()})
	if err != nil {
		return nil, err
	}
	blobs, err := blob.New(blob.Options{Allow: a.allow})
	if err != nil {
		return nil, err
	}
	plans, err := plan.NewFetcher(plan.FetcherOptions{Source: blobs, Capabilities: append(equipped.Executors.Capabilities(), plan.CapabilityWait),
		Logger: a.logger, Registerer: a.health.Metrics})
	if err != nil {
		return nil, err
	}
	o := a.options
	if o.Worker == "" {
		if o.Worker, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	if !a.works {
		o.OwnerEmail = "none" // No workflow is started.
	}
	o.API, o.Log, o.Plans, o.Blobs, o.Logger = a.api, a.log, plans, blobs, a.logger
	o.Registry, o.Secrets = equipped.Executors, equipped.Secrets
	o.Queues, o.Isolation = a.queues.Of(a.scope.Environment)
	a.options.Worker = o.Worker
	return conductor.New(o)
}

// validate reports every fault of the flags.
func (a *app) validate() error {
	var f program.Faults
	a.conductor.check(&f)
	a.scope.Check(&f)
	a.queues.Check(&f)
	f.Refuse(a.works && len(a.allow) == 0, "--allow is missing: name the URI below which plans may be read, such as file:///srv/plans")
	f.Refuse(slices.Contains(a.allow, ""), "--allow is empty: name a URI, such as file:///srv/plans")
	o := a.options
	f.Refuse(a.works && o.OwnerEmail == "", "--owner-email is missing, and Conductor demands one: name the address of the team that owns the runs")
	f.Refuse(o.Concurrency < 1 || o.Concurrency > 1000, "--concurrency is %d: write 1 to 1000", o.Concurrency)
	f.Refuse(o.Attempts < 1, "--attempts is %d: write 1 or more", o.Attempts)
	f.Refuse(o.MemoryBytes < 1, "--memory-bytes is %d: write 1 or more, such as %d", o.MemoryBytes, conductor.DefaultMemoryBytes)
	for flag, d := range map[string]time.Duration{"response-timeout": o.ResponseTimeout, "wait": o.Wait} {
		f.Refuse(d < time.Second || d%time.Second != 0, "--%s is %v: write whole seconds, 1s or more", flag, d)
	}
	f.Refuse(o.DrainTimeout <= 0, "--drain-timeout is %v: write more than 0, such as %v", o.DrainTimeout, conductor.DefaultDrainTimeout)
	f.Refuse(a.sweep < 0, "--sweep-every is %v: write 0, which never sweeps, or more", a.sweep)
	f.Refuse(o.Grace < time.Second || o.Grace > time.Hour, "--grace is %v: write 1s to 1h", o.Grace)
	return f.Join()
}
