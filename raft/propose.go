package raft

import (
	"context"
	"errors"
	"fmt"
	"sync"

	hraft "github.com/hashicorp/raft"

	"runlog/storage"
)

// maxEntryBytes is far above what a proposal holds. raft-wal writes entries of any size and refuses to
// read those over 64 MiB, after which no node would start again.
const maxEntryBytes = 60 << 20

// Future is the answer to a proposal that is under way.
type Future struct {
	n      *Node
	future hraft.ApplyFuture
}

// Propose hands a log entry, made by storage.Proposal, to the group. It keeps data. It does not wait
// for the answer, but may wait for room. The caller must call Wait.
func (n *Node) Propose(data []byte) (*Future, error) {
	if len(data) > maxEntryBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), maxEntryBytes)
	}
	if !n.Leading() || !n.takeOff() {
		return nil, ErrNotLeader
	}
	return &Future{n: n, future: n.raft.Apply(data, 0)}, nil
}

// takeOff counts a proposal in, unless the node closes.
func (n *Node) takeOff() bool {
	n.flight.Lock()
	defer n.flight.Unlock()
	if n.flight.closing {
		return false
	}
	n.flight.count++
	return true
}

func (n *Node) land() {
	n.flight.Lock()
	n.flight.count--
	n.flight.Unlock()
	select {
	case n.flight.changed <- struct{}{}:
	default:
	}
}

// Wait returns the outcomes of the proposal's commands, in order, once it is durable and applied; or
// ErrNotLeader (not stored), or ErrUnknown. It is called once.
func (f *Future) Wait() ([]storage.Outcome, error) {
	defer f.n.land()
	err := f.future.Error()
	if f.n.failed.Load() {
		// Nothing may be acknowledged by a node that could not write or apply (D10).
		return nil, fmt.Errorf("%w: %w", ErrUnknown, errStopped)
	}
	switch {
	case err == nil:
	case errors.Is(err, hraft.ErrNotLeader), errors.Is(err, hraft.ErrLeadershipTransferInProgress), errors.Is(err, hraft.ErrEnqueueTimeout):
		return nil, fmt.Errorf("%w: %w", ErrNotLeader, err)
	default:
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	outcomes, ok := f.future.Response().([]storage.Outcome)
	if !ok {
		return nil, fmt.Errorf("%w: %v", ErrUnknown, f.future.Response())
	}
	return outcomes, nil
}

// ConfirmLeader returns nil when this node still led after the call began and everything that it ever
// acknowledged is applied: a read of the store that begins then is linearizable (READ-2, D8). All
// callers that wait share one round.
func (n *Node) ConfirmLeader(ctx context.Context) error {
	if !n.Leading() {
		return ErrNotLeader
	}
	return n.verify.join(ctx)
}

func (n *Node) confirmLeader() error {
	if err := n.raft.VerifyLeader().Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return nil
}

// verifier lets callers share rounds of confirmation. A caller joins the round that has not begun yet,
// because one under way may have begun before the caller's read was asked for.
type verifier struct {
	confirm func() error

	mu      sync.Mutex
	running bool
	next    *round
}

type round struct {
	done chan struct{}
	err  error
}

func (v *verifier) join(ctx context.Context) error {
	v.mu.Lock()
	if v.next == nil {
		v.next = &round{done: make(chan struct{})}
	}
	r := v.next
	if !v.running {
		v.running = true
		go v.run()
	}
	v.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run holds rounds until nobody waits for one.
func (v *verifier) run() {
	for {
		v.mu.Lock()
		r := v.next
		v.next = nil
		if r == nil {
			v.running = false
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		r.err = v.confirm()
		close(r.done)
	}
}
