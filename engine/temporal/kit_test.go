package temporal_test

import (
	"context"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/enginetest"
	"runlog/engine/plan"
	"runlog/engine/temporal"
	"runlog/engine/temporal/temporaltest"
)

// TestSuiteENG2: the engine passes the suite of all adapters, on a real server of Temporal.
func TestSuiteENG2(t *testing.T) {
	enginetest.Run(t, func(t testing.TB, env *enginetest.Env) enginetest.Engine {
		space := namespace(t)
		return enginetest.Engine{Loses: true, Open: func(t testing.TB, p *enginetest.Process) (engine.Adapter, func(context.Context)) {
			// Temporal takes a worker for lost after these. After some that were, it waits longer
			// and longer before another worker decides, up to ten minutes.
			settings := temporal.Settings{Heartbeat: 30 * time.Second, TaskTimeout: 10 * time.Second}
			if env.Kills {
				settings = temporal.Settings{Heartbeat: 3 * time.Second, TaskTimeout: 2 * time.Second}
			}
			e, err := temporal.New(temporal.Options{
				Temporal: sharedTemporal(t).Client(t, space, temporaltest.Killable(p.Act, p.Killed)), Namespace: space, Log: p.Client, Plans: p.Plans(t, append(p.Executors.Capabilities(), plan.CapabilityWait)),
				Registry: p.Executors, Blobs: p.Blobs, Worker: p.Name, Queues: []string{"tq-control-" + env.Environment},
				Settings: settings,
				Beat:     500 * time.Millisecond, Sticky: time.Second, Grace: time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Register(t.Context()); err != nil {
				t.Fatal(err)
			}
			return e, func(ctx context.Context) {
				if err := e.Run(ctx); err != nil && !p.Killed() {
					t.Error(err)
				}
			}
		}}
	})
}
