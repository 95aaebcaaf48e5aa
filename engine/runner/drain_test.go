package runner_test

import (
	"context"
	"testing"
	"time"

	"runlog/client"
	"runlog/engine/executor"
	"runlog/engine/runner"
	"runlog/testbed/bubble"
)

// TestDrainsATT5: a runner that is to end finishes the steps that it executes, within its grace,
// and begins no others. Another runner goes on with the runs about a second later, and executes no
// step again. After the grace, the step is executed again by another runner.
func TestDrainsATT5(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		grace time.Duration
		takes time.Duration // from the stop to the end of Run
		times int           // that the step is executed
	}{
		"within the grace": {40 * time.Second, 20 * time.Second, 1},
		"beyond it":        {10 * time.Second, 10 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				b := newBed(t)
				api := b.start(t)
				m := api.manifest(`{"step_key":"A"},{"step_key":"B","depends_on":["A"]}`)
				api.kill()
				executed := map[string]int{}
				began := make(chan struct{}, 10)
				slow := func(ctx context.Context, task executor.Task) error {
					executed[task.StepID]++
					began <- struct{}{}
					select {
					case <-time.After(25 * time.Second):
					case <-ctx.Done():
					}
					return ctx.Err()
				}
				o := b.scripted(t, b.srv.Client(client.Options{}), slow)
				o.Grace = tt.grace
				r, err := runner.New(o)
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- r.Run(ctx) }()
				caller := b.api(t, r, b.c)
				t.Cleanup(caller.api.Close)
				run := make(chan string, 1)
				go func() { id, _ := caller.begin(m); run <- id }()
				<-began
				time.Sleep(5 * time.Second)
				stopped := time.Now()
				stop()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if took := time.Since(stopped); took < tt.takes || took > tt.takes+5*time.Second || executed["B"] != 0 {
					t.Errorf("the runner ends %v after the stop: %v", took, executed)
				}
				next := time.Now()
				b.play(t, slow)
				<-began
				if wait := time.Since(next); wait > 10*time.Second {
					t.Errorf("another runner waits %v", wait)
				}
				id := <-run
				if status, list, _ := caller.steps(id); status != "success" || executed["A"] != tt.times || executed["B"] != 1 {
					t.Errorf("the run is %s: %q; executed %v; %q", status, list, executed, b.types(t, id))
				}
			})
		})
	}
}
