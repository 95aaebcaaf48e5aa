package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"runlog/engine"
	"runlog/engine/conductor"
	"runlog/engine/conductor/api"
	"runlog/engine/program"
	"runlog/engine/route"
)

// work runs a worker, what hands signals over to it, its sweeper and its reconciler until ctx ends.
func (a *app) work(ctx context.Context) error {
	e, err := a.engine()
	if err != nil {
		return err
	}
	end, err := a.health.Serve("conductor", a.logger)
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
		wait := a.starts(ctx)
		e.Run(ctx)
		wait()
		return nil
	}
	reconciler, err := engine.New(engine.Options{Client: a.log, Starter: engine.Starts(e), Worker: a.options.Worker, Tenant: a.scope.Tenant,
		Project: a.scope.Project, Environment: a.scope.Narrowing(), Logger: a.logger, Registerer: a.health.Metrics})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	signals := &engine.Signals{Log: a.log, Deliver: e.Signal, Tenant: a.scope.Tenant, Project: a.scope.Project, Environment: a.scope.Narrowing(), Logger: a.logger}
	running.Go(func() { signals.Run(ctx) })
	if a.sweep > 0 {
		sweeper := &conductor.Sweeper{Engine: e, Runs: a.log, Tenant: a.scope.Tenant, Project: a.scope.Project, Environment: a.scope.Narrowing()}
		running.Go(func() { sweeper.Run(ctx, a.sweep) })
	}
	failed := make(chan error, 1)
	running.Go(func() { failed <- reconciler.Run(ctx); stop() })
	running.Go(a.starts(ctx))
	e.Run(ctx)
	stop()
	running.Wait()
	return <-failed
}

// starts says that the worker works. It says that the worker stops once ctx has ended; wait returns
// when it has.
func (a *app) starts(ctx context.Context) (wait func()) {
	a.health.Works(ctx)
	a.logger.Info("worker works", "environment", a.scope.Environment, "conductor", a.conductor.url, "classes", a.queues.Classes.String())
	var telling sync.WaitGroup
	telling.Go(func() {
		<-ctx.Done()
		a.logger.Info("worker stops; the steps that it executes may end", "grace", a.options.Grace)
	})
	return telling.Wait
}

// capabilities prints what a worker with these flags can do.
func (a *app) capabilities() error {
	e, err := a.engine()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(e.Capabilities(), "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%s\n", text)
	return err
}

// patience is how long a worker that starts waits for runlog and for Conductor.
const patience = 30 * time.Second

// ready waits until runlog and Conductor answer.
func (a *app) ready(ctx context.Context, e *conductor.Engine) error {
	servers := &program.Servers{Node: &a.node, Log: a.log, Engine: "Conductor", Address: a.conductor.url, Patience: a.patience, Logger: a.logger,
		Ask: func(ctx context.Context) error {
			if err := e.Ping(ctx); err != nil {
				return err
			}
			// The health says nothing about the credentials. Each start searches so.
			_, err := a.api.Correlated(ctx, "runlog", "runlog-conductor")
			return err
		},
		Away: func(err error) bool {
			known, ok := errors.AsType[*api.Error](err)
			return ok && known.Temporary()
		}}
	return servers.Wait(ctx)
}

// explain adds the remedy to an error that runlog, Conductor or their connections gave.
func (a *app) explain(err error) error {
	remedy := a.node.Remedy(err)
	if e, ok := errors.AsType[*api.Error](err); ok {
		remedy = a.remedy(e)
	}
	return program.Remedied(err, remedy)
}

func (a *app) remedy(e *api.Error) string {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "--conductor-token-file names the file of this value"
	case http.StatusNotFound, http.StatusBadGateway, http.StatusMethodNotAllowed:
		return fmt.Sprintf("--conductor is %s, which is no Conductor: name its URL, without /api, whose port is 8080 by default", a.conductor.url)
	case 0:
		return fmt.Sprintf("--conductor is %s: start a Conductor, or name the URL of another one", a.conductor.url)
	}
	return ""
}
