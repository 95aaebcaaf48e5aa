package mock_test

import (
	"context"
	"testing"

	"runlog/engine"
	"runlog/engine/enginetest"
	"runlog/engine/mock"
	"runlog/engine/plan"
)

// TestAdapterENG2: the mock engine passes the suite of all engines.
func TestAdapterENG2(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(testing.TB, *enginetest.Env) enginetest.Engine {
		m := mock.New()
		return enginetest.Engine{Open: func(t testing.TB, p *enginetest.Process) (engine.Adapter, func(context.Context)) {
			a, err := m.Open(mock.Options{
				Log: p.Client, Plans: p.Plans(t, append(p.Executors.Capabilities(), plan.Compute, plan.CapabilityWait)), Executors: p.Executors,
				Blobs: p.Blobs, Worker: p.Name,
			})
			if err != nil {
				t.Fatal(err)
			}
			return a, a.Run
		}}
	}, enginetest.InBubble())
}
