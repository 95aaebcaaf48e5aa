package load

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"runlog/bench/target"
)

// signalRuns is so large that no run gets more signals than it takes in a minute (SIG-5).
const signalRuns = 200

// Signals are those on their way to the engine.
type Signals struct {
	target  target.Signaller
	session *Session
	made    atomic.Uint64
	mu      sync.Mutex
	heard   map[string]chan struct{} // by signalId
}

// NewSignals returns signals to a target's runs.
func NewSignals(s *Session, to target.Signaller) *Signals {
	return &Signals{target: to, session: s, heard: map[string]chan struct{}{}}
}

func (x *Signals) runID(n uint64) string {
	return x.session.RunID("signal_" + strconv.FormatUint(n%signalRuns, 10))
}

// Begin makes the runs.
func (x *Signals) Begin(ctx context.Context) error {
	for n := range uint64(signalRuns) {
		if err := x.target.Begin(ctx, x.runID(n)); err != nil {
			return err
		}
	}
	return nil
}

// Told takes a signal that the engine has.
func (x *Signals) Told(signalID string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if heard := x.heard[signalID]; heard != nil {
		close(heard)
		delete(x.heard, signalID)
	}
}

// Send sends a signal, and waits until the engine has it.
func (x *Signals) Send(ctx context.Context) (int, error) {
	n, heard := x.made.Add(1), make(chan struct{})
	id := "signal-" + strconv.FormatUint(n, 10)
	x.mu.Lock()
	x.heard[id] = heard
	x.mu.Unlock()
	if err := x.target.Signal(ctx, x.runID(n), id); err != nil {
		return 0, err
	}
	select {
	case <-heard:
		return 1, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
