package runner_test

import (
	"context"
	"testing"

	"runlog/engine"
	"runlog/engine/enginetest"
	"runlog/engine/runner"
)

// TestAdapterENG2: the reference runner passes the suite of all engines.
func TestAdapterENG2(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(testing.TB, *enginetest.Env) enginetest.Engine {
		return enginetest.Engine{Queue: runner.DefaultQueue, Open: func(t testing.TB, p *enginetest.Process) (engine.Adapter, func(context.Context)) {
			r, err := runner.New(runner.Options{
				Client: p.Client, Worker: p.Name, Tenant: p.Tenant, Project: p.Project, Environment: p.Environment, Blobs: p.Blobs, Base: p.Base,
				Executors: p.Executors, DefaultExecutor: "test",
			})
			if err != nil {
				t.Fatal(err)
			}
			return r, func(ctx context.Context) { _ = r.Run(ctx) } // It ends with its process.
		}}
	}, enginetest.InBubble())
}
