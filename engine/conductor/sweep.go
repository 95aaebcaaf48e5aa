package conductor

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"runlog/engine"
	"runlog/engine/conductor/api"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Sweeper ends the runs whose workflows Conductor has ended without a worker: those that an
// operator has terminated there, above all. No worker gets a task of such a run any more. It also
// resumes the workflow of a run that was resumed by a worker which was killed before it could.
type Sweeper struct {
	Engine *Engine
	Runs   engine.Runs
	// Tenant, Project and Environment are those of the runs; the fields from the first empty one on
	// are empty, and mean any.
	Tenant, Project, Environment string
	// Grace is how long a workflow has ended before the log is told. Workers with a step in flight
	// notice meanwhile. 0: the ResponseTimeout of the Engine.
	Grace time.Duration
}

// Sweep looks at each run of the engine that goes on, once.
func (s *Sweeper) Sweep(ctx context.Context) (engine.Swept, error) { return s.sweeps().Sweep(ctx) }

// Run sweeps at intervals until ctx ends.
func (s *Sweeper) Run(ctx context.Context, every time.Duration) { s.sweeps().Run(ctx, every) }

func (s *Sweeper) sweeps() *engine.Sweeps {
	return &engine.Sweeps{Runs: s.Runs, Tenant: s.Tenant, Project: s.Project, Environment: s.Environment, Look: s.look, Logger: s.Engine.o.Logger,
		Owns: func(run *runlogv1.Run) bool { _, ok := workflowOf(run.GetEngineRunRef()); return ok }}
}

func (s *Sweeper) look(ctx context.Context, run *runlogv1.Run, swept *engine.Swept) error {
	id, _ := workflowOf(run.GetEngineRunRef())
	w, err := s.Engine.o.API.Workflow(ctx, id, false)
	if api.HasStatus(err, http.StatusNotFound) {
		return s.gone(ctx, run, swept, err)
	}
	if err != nil {
		return err
	}
	if w.Status == api.Paused {
		v, err := s.Engine.read(ctx, run.GetRunId())
		if v == nil {
			return err
		}
		return s.Engine.follow(ctx, v)
	}
	grace := s.Grace
	if grace == 0 {
		grace = s.Engine.o.ResponseTimeout
	}
	if !w.Ended() || time.Since(time.UnixMilli(w.EndTime)) < grace {
		return nil
	}
	text := fmt.Sprintf("the workflow in Conductor is %s, and no worker could say why", w.Status)
	if w.Reason != "" {
		text += ": " + w.Reason
	}
	return s.end(ctx, run, swept, "ENGINE_"+w.Status, text)
}

// gone ends a run whose workflow is not there if the run is to be cancelled. Otherwise an operator
// must say so: it may be another Conductor than that of the run, or one whose database was lost.
func (s *Sweeper) gone(ctx context.Context, run *runlogv1.Run, swept *engine.Swept, cause error) error {
	v, err := s.Engine.read(ctx, run.GetRunId())
	if v == nil {
		return err
	}
	if _, cancelled := v.state.Pending(contract.SignalEmergencyStop, contract.SignalCancel); !cancelled && !v.state.Ended() {
		return fmt.Errorf("conductor: there is no workflow of the run: check the URL of Conductor, or CANCEL the run: %w", cause)
	}
	return s.end(ctx, run, swept, "ENGINE_LOST", "there is no workflow of the run in Conductor")
}

// end appends what follows from the log: an accepted CANCEL is followed, and a run whose steps have
// ended completes. A run that would go on fails: nothing executes its steps.
func (s *Sweeper) end(ctx context.Context, run *runlogv1.Run, swept *engine.Swept, code, text string) error {
	for {
		v, changed, err := s.Engine.settle(ctx, run.GetRunId())
		if err != nil {
			return err
		}
		if !v.state.Ended() {
			event, err := failed(s.Engine.events(v.run), code, text)
			if err != nil {
				return err
			}
			_, err = s.Engine.append(ctx, v, event)
			if conflicts(err) {
				continue
			}
			if err != nil {
				return err
			}
			changed = true
		}
		if changed {
			swept.Ended = append(swept.Ended, run.GetRunId())
		}
		return nil
	}
}
