package conductor_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/conductor"
	"runlog/engine/conductor/api"
	"runlog/engine/conductor/conductortest"
	"runlog/engine/enginetest"
	"runlog/engine/plan"
)

// TestAdapterENG2: the adapter passes the suite of all engines, with the fake Conductor.
func TestAdapterENG2(t *testing.T) {
	t.Parallel()
	const silent = 6 * time.Second
	enginetest.Run(t, func(t testing.TB, env *enginetest.Env) enginetest.Engine {
		fake := conductortest.Start(t, conductortest.On(env.Network))
		return enginetest.Engine{
			Open: func(t testing.TB, p *enginetest.Process) (engine.Adapter, func(context.Context)) {
				poll := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/poll/") }
				c, err := api.New(api.Options{URL: fake.URL(), Transport: p.Transport(fake.Transport(), poll)})
				if err != nil {
					t.Fatal(err)
				}
				e, err := conductor.New(conductor.Options{API: c, Log: p.Client, Plans: p.Plans(t, append(p.Executors.Capabilities(), plan.CapabilityWait)), Registry: p.Executors, Blobs: p.Blobs, Worker: p.Name,
					OwnerEmail: "a@example.com", Queues: []string{"tq-control-prod"}, ResponseTimeout: silent, Wait: 10 * time.Second, Grace: time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				sweeper := &conductor.Sweeper{Engine: e, Runs: p.Client, Tenant: p.Tenant}
				return e, func(ctx context.Context) {
					var sweeping sync.WaitGroup
					sweeping.Go(func() { sweeper.Run(ctx, time.Minute) })
					e.Run(ctx)
					sweeping.Wait()
				}
			},
			Lapse: func() { fake.Advance(silent + time.Second) },
			Tick: func() {
				if _, working := fake.Open(); working == 0 {
					fake.AdvanceToDue()
				} else {
					fake.Advance(100 * time.Millisecond) // Workers keep their tasks.
				}
			},
		}
	}, enginetest.InBubble())
}
