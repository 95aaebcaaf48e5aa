package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/engine"
	"runlog/engine/mock"
	runlogv1 "runlog/proto/runlog/v1"
)

// example takes the place of the *testing.T that a test gives to clienttest.
type example struct {
	testing.TB
	cleanups []func()
}

func (e *example) Helper()          {}
func (e *example) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *example) end() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}

func ExampleReconciler_DequeueAndStart() {
	t := &example{}
	defer t.end()
	ctx := context.Background()
	c := clienttest.Start(t).Client(client.Options{})
	for _, id := range []string{"run-7", "run-8"} {
		_, err := c.RequestRun(ctx, &runlogv1.RequestRunRequest{
			RunRequestId: id, RunId: id, TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{PlanId: "nightly", PlanVersion: "1"}})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	m := mock.New()
	m.Fail(1, errors.New("no worker"), "run-8")
	r, err := engine.New(engine.Options{Client: c, Starter: m, Worker: "example", Tenant: "acme"})
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := r.DequeueAndStart(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, res := range results {
		fmt.Println(res.RunID, res.Status, res.EngineRunRef, res.Err)
	}
	// Output:
	// run-7 STARTED mock/run-7 <nil>
	// run-8 FAILED  no worker
}
