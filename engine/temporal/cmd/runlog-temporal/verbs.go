package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/serviceerror"

	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/plan"
	"runlog/engine/program"
	"runlog/engine/route"
	"runlog/engine/temporal"
	"runlog/engine/temporal/namespaces"
	runlogv1 "runlog/proto/runlog/v1"
)

func workerFlags(a *app) {
	a.flags.Var(&a.allow, "allow", "URI below which plans and artifacts may be read, such as file:///srv/plans; repeat it")
	a.queues.Register(a.flags)
	a.health.Register(a.flags)
	a.flags.StringVar(&a.worker, "worker", "", "name of this process for people (default: the name of the machine)")
	a.flags.IntVar(&a.concurrency, "concurrency", temporal.DefaultConcurrency, "steps of each queue at a time")
	a.flags.DurationVar(&a.sweepEvery, "sweep-every", time.Minute, "how often runs that Temporal has ended are looked for; 0: never")
	a.flags.DurationVar(&a.grace, "grace", temporal.DefaultGrace, "how long the steps that are executed may go on when the process is to end, 1s to 1h")
	a.equipment.Register(a.flags)
	a.flags.BoolVar(&a.register, "register", true, "make the search attributes known to the namespace")
	settingsFlags(a)
}

// settingsFlags are the settings of the runs that are started.
func settingsFlags(a *app) {
	a.flags.Int64Var(&a.settings.Attempts, "attempts", temporal.DefaultAttempts, "attempts of a step whose plan does not say")
	a.flags.DurationVar(&a.settings.StepTimeout, "step-timeout", temporal.DefaultStepTimeout, "longest attempt of a step whose plan does not say")
	a.flags.DurationVar(&a.settings.Heartbeat, "heartbeat", temporal.DefaultHeartbeat, "how long a worker may be silent before its steps are tried elsewhere")
	a.flags.DurationVar(&a.settings.TaskTimeout, "task-timeout", temporal.DefaultTaskTimeout, "how long a worker may take to decide what is next")
	a.flags.IntVar(&a.settings.ContinueSteps, "continue-steps", temporal.DefaultContinueSteps, "after how many steps a workflow continues as a new one")
	a.flags.BoolVar(&a.settings.CancelOnPause, "cancel-on-pause", false, "a PAUSE cancels the steps under way")
}

func runFlag(a *app) { a.flags.StringVar(&a.run, "run", "", "the run") }

func startFlags(a *app) {
	runFlag(a)
	a.flags.StringVar(&a.uri, "uri", "", "URI by which workers read the plan (default: that of the file)")
	settingsFlags(a)
}

func signalFlags(a *app) {
	runFlag(a)
	a.flags.StringVar(&a.step, "step", "", "the step, for RETRY_STEP and SKIP_STEP")
	a.flags.StringVar(&a.id, "id", "", "id of the signal (default: a new one)")
	a.flags.StringVar(&a.reason, "reason", "", "why, for people")
}

func sweepFlags(a *app) {
	a.flags.BoolVar(&a.adopt, "adopt", false, "start the workflows again that are not there; no other Temporal server may have them")
}

func cleanupFlags(a *app) {
	a.flags.StringVar(&a.prefix, "prefix", "", "how the names of ephemeral namespaces begin")
	a.flags.StringVar(&a.dir, "dir", "", "directory for the archives")
	a.flags.DurationVar(&a.idle, "idle", namespaces.DefaultIdle, "how long a namespace is kept without an active workflow or a start")
}

// work runs a worker, what hands signals over to it, its sweeper and its reconciler until ctx ends.
func work(ctx context.Context, a *app, _ []string) error {
	e, err := a.engine()
	if err != nil {
		return err
	}
	end, err := a.health.Serve("temporal", a.logger)
	if err != nil {
		return err
	}
	defer end()
	switch err := a.ready(ctx, e); {
	case ctx.Err() != nil:
		return nil // It ends as asked.
	case err != nil:
		return err
	}
	if !a.queues.Serve(route.Control) {
		a.health.Works(ctx)
		a.logger.Info("worker works", "environment", a.scope.Environment, "temporal", a.temporal, "namespace", a.namespace, "classes", a.queues.Classes.String())
		return e.Run(ctx)
	}
	reconciler, err := engine.New(engine.Options{Client: a.log, Starter: engine.Starts(e), Worker: a.worker, Tenant: a.scope.Tenant, Project: a.scope.Project,
		Environment: a.scope.Narrowing(), Logger: a.logger, Registerer: a.health.Metrics})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	signals := &engine.Signals{Log: a.log, Deliver: e.Signal, Tenant: a.scope.Tenant, Project: a.scope.Project, Environment: a.scope.Narrowing(), Logger: a.logger}
	running.Go(func() { signals.Run(ctx) })
	if a.sweepEvery > 0 {
		running.Go(func() { a.sweeper(e).Run(ctx, a.sweepEvery) })
	}
	failed := make(chan error, 1)
	running.Go(func() { failed <- reconciler.Run(ctx); stop() })
	a.health.Works(ctx)
	a.logger.Info("worker works", "environment", a.scope.Environment, "temporal", a.temporal, "namespace", a.namespace)
	err = e.Run(ctx)
	stop()
	running.Wait()
	return errors.Join(err, <-failed)
}

func (a *app) sweeper(e *temporal.Engine) *temporal.Sweeper {
	return &temporal.Sweeper{Engine: e, Runs: a.log, Tenant: a.scope.Tenant, Project: a.scope.Project, Environment: a.scope.Narrowing(), Adopt: a.adopt}
}

// start creates a run of a plan in a file, and starts it.
func start(ctx context.Context, a *app, args []string) error {
	if a.scope.Tenant == "" || a.scope.Project == "" || a.run == "" {
		return program.Usage(errors.New("start needs --tenant, --project and --run"))
	}
	ref, err := planRef(a.uri, args[0])
	if err != nil {
		return program.Usage(fmt.Errorf("cannot read the plan: %w", err))
	}
	e, err := a.engine()
	if err != nil {
		return err
	}
	// A run that Temporal cannot start would stay in the log.
	if err := e.Ping(ctx); err != nil {
		return err
	}
	engineType := temporal.EngineType
	run := &runlogv1.Run{RunId: a.run, TenantId: a.scope.Tenant, ProjectId: a.scope.Project, EnvironmentId: a.scope.Environment, PlanRef: ref.Proto(), EngineType: &engineType}
	if _, err := a.log.CreateRun(ctx, &runlogv1.CreateRunRequest{Run: run}); err != nil {
		return fmt.Errorf("cannot create run %q: %w", a.run, err)
	}
	got, err := e.StartRun(ctx, ref, engine.RunContext{RunID: a.run, TenantID: a.scope.Tenant, ProjectID: a.scope.Project, EnvironmentID: a.scope.Environment})
	if never, ok := errors.AsType[*engine.PermanentError](err); ok {
		event, err := engine.Failed(run, never)
		if err == nil {
			_, err = a.log.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: a.run, Events: []*runlogv1.EventWrite{event}})
		}
		if err != nil {
			return fmt.Errorf("run %q can never be started: %w; it stays in the log without an end: %w", a.run, never, err)
		}
		return fmt.Errorf("run %q has failed, because it can never be started: %w", a.run, never)
	}
	if err != nil {
		return fmt.Errorf("run %q is in the log and not in Temporal; the same command starts it: %w", a.run, err)
	}
	fmt.Fprintln(a.out, got)
	return nil
}

// planRef returns the reference of a plan in a file. Empty uri: that of the file.
func planRef(uri, file string) (plan.Ref, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return plan.Ref{}, err
	}
	body, err := os.ReadFile(path)
	if err != nil {
		return plan.Ref{}, fmt.Errorf("%w; name the file of a plan", err)
	}
	p, _, err := plan.Parse(body, plan.Options{})
	if err != nil {
		return plan.Ref{}, fmt.Errorf("%s: %w", path, err)
	}
	if uri == "" {
		if uri, err = blob.FileURI(path); err != nil {
			return plan.Ref{}, err
		}
	}
	var stated struct {
		SchemaVersion string `json:"schemaVersion"`
	}
	if err := json.Unmarshal(body, &stated); err != nil {
		return plan.Ref{}, err
	}
	sum := sha256.Sum256(body)
	return plan.Ref{URI: uri, SHA256: hex.EncodeToString(sum[:]), SchemaVersion: stated.SchemaVersion, PlanID: p.PlanID, PlanVersion: p.PlanVersion}, nil
}

// send sends a signal to the log, which decides, and rings the bell of the workflow.
func send(ctx context.Context, a *app, args []string) error {
	if a.run == "" {
		return program.Usage(errors.New("signal needs --run"))
	}
	if a.id == "" {
		a.id = uuid.NewString()
	}
	res, err := a.log.SendSignal(ctx, &runlogv1.SendSignalRequest{RunId: a.run, SignalId: a.id, SignalType: args[0], StepId: a.step, Reason: a.reason})
	if err != nil {
		return fmt.Errorf("cannot send the signal %s: %w", args[0], err)
	}
	if res.GetDecision() != runlogv1.Decision_ACCEPTED {
		return fmt.Errorf("signal %s: %s is rejected: %s; \"runlog events %s --type SignalRejected\" tells more", a.id, args[0], res.GetRejectReason(), a.run)
	}
	fmt.Fprintf(a.out, "signal %s: %s accepted at runSeq %d\n", a.id, args[0], res.GetRunSeq())
	err = a.ring(ctx, args[0])
	if _, unsupported := errors.AsType[*engine.UnsupportedError](err); unsupported {
		return err
	}
	if err != nil {
		a.logger.WarnContext(ctx, "cannot tell the workflow of the signal; a worker does", "err", err)
	}
	return nil
}

// ring tells the workflow of a run about a signal that the log has accepted.
func (a *app) ring(ctx context.Context, kind string) error {
	e, err := a.engine()
	if err != nil {
		return err
	}
	run, err := a.log.GetRun(ctx, &runlogv1.GetRunRequest{RunId: a.run})
	if err != nil {
		return err
	}
	return e.Signal(ctx, engine.EngineRunRef(run.GetEngineRunRef()), engine.Signal{ID: a.id, Type: kind, StepID: a.step})
}

func sweep(ctx context.Context, a *app, _ []string) error {
	e, err := a.engine()
	if err != nil {
		return err
	}
	swept, err := a.sweeper(e).Sweep(ctx)
	if err != nil {
		err = fmt.Errorf("cannot sweep all runs: %w", err)
	}
	if err == nil || swept.Looked > 0 {
		fmt.Fprintf(a.out, "runs that go on: %d; that got their end: %d; whose workflows were started again: %d\n", swept.Looked-len(swept.Ended), len(swept.Ended), len(swept.Restarted))
	}
	return err
}

func cleanup(ctx context.Context, a *app, _ []string) error {
	cleaned, err := (&namespaces.Cleaner{Client: a.sdk, Prefix: a.prefix, Dir: a.dir, Idle: a.idle, Logger: a.logger}).Clean(ctx)
	for _, c := range cleaned {
		fmt.Fprintf(a.out, "%s is deleted; its %d workflows are in %s\n", c.Namespace, c.Workflows, c.Archive)
	}
	return err
}

func history(ctx context.Context, a *app, _ []string) error {
	if a.run == "" {
		return program.Usage(errors.New("history needs --run"))
	}
	text, err := namespaces.History(ctx, a.sdk, a.namespace, a.prefixOfWorkflows+a.run, "")
	if _, none := errors.AsType[*serviceerror.NotFound](err); none {
		return fmt.Errorf("cannot read the history of run %q: %w in the namespace %q; \"runlog snapshot %s\" names the engine of the run, and its namespace", a.run, err, a.namespace, a.run)
	}
	if err != nil {
		return fmt.Errorf("cannot read the history of run %q: %w", a.run, err)
	}
	_, err = a.out.Write(append(text, '\n'))
	return err
}
