package mock

import (
	"context"
	"slices"

	"runlog/engine"
)

// job is a run that the engine has. The mutex of the engine guards its fields.
type job struct {
	runID string
	// state, inFlight and message are what the last worker has told.
	state    engine.RunState
	inFlight int
	message  string
	// cancel is why the engine was told to end the run; nil: it was not.
	cancel *string
	// due means that a worker has something to do, and taken that a worker has the run.
	due, taken bool
	// poked gets a value when something happens to a run that a worker has.
	poked    chan struct{}
	attempts map[attempted]uint32
}

// attempted names what engine attempts are counted of.
type attempted struct {
	step    string
	logical uint32
}

// notifyLocked wakes the workers that wait for a run.
func (e *Engine) notifyLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// take waits for the first run that is due, and takes it; nil: ctx has ended.
func (e *Engine) take(ctx context.Context) *job {
	for {
		e.mu.Lock()
		changed := e.changed
		for _, j := range e.order {
			if j.due && !j.taken && ctx.Err() == nil {
				j.due, j.taken = false, true
				e.mu.Unlock()
				return j
			}
		}
		e.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// leave puts a run back. If it is not due, it waits until it is poked.
func (e *Engine) leave(j *job, due bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j.taken, j.inFlight = false, 0
	if j.due = j.due || due; j.state.Ended() {
		e.order = slices.DeleteFunc(e.order, func(other *job) bool { return other == j })
	}
	e.notifyLocked()
}

// poke makes a run due, and tells the worker that has it. change changes the job; nil: nothing.
func (e *Engine) poke(runID string, change func(*job)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.has[runID]
	if j == nil {
		return engine.ErrNoRun
	}
	if change != nil {
		change(j)
	}
	j.due = true
	select {
	case j.poked <- struct{}{}:
	default: // It has a poke that it has not seen.
	}
	e.notifyLocked()
	return nil
}

// tell notes what a worker knows of a run.
func (e *Engine) tell(j *job, state engine.RunState, inFlight int, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j.state, j.inFlight, j.message = state, inFlight, message
}

// status returns what is known of a run.
func (e *Engine) status(runID string) (engine.RunStatus, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.has[runID]
	if j == nil {
		return engine.RunStatus{}, engine.ErrNoRun
	}
	return engine.RunStatus{State: j.state, InFlight: j.inFlight, Message: j.message}, nil
}

// cancelled returns why the engine was told to end a run; nil: it was not.
func (e *Engine) cancelled(j *job) *string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return j.cancel
}

// attempt counts the engine attempts of a logical attempt of a step, over all workers.
func (e *Engine) attempt(j *job, step string, logical uint32) uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := attempted{step, logical}
	j.attempts[of]++
	return j.attempts[of]
}
