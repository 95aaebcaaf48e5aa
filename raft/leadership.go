package raft

import (
	"context"
	"time"

	hraft "github.com/hashicorp/raft"
)

// followLeadership drains NotifyCh, which hashicorp/raft blocks on. A new leader first applies
// everything of earlier terms, then serves (D4e, D7). It needs the clocks of other voters too: it
// must not lead while it would refuse every proposal (APP-5).
func (n *Node) followLeadership(leading <-chan bool) {
	for {
		select {
		case <-n.stop:
			return
		case now := <-leading:
			term, known := uint64(0), false
			for now && !known {
				if n.opts.Stamps.Measured() {
					if term, known = n.takeOver(); known {
						break
					}
				}
				// It may still lead.
				select {
				case <-n.stop:
					return
				case now = <-leading:
				case <-time.After(barrierRetry):
				}
			}
			n.setLeading(now, term)
		}
	}
}

// takeOver applies all entries of earlier terms. It returns the term in which this node leads, and
// whether it succeeded.
func (n *Node) takeOver() (term uint64, ok bool) {
	term = n.raft.CurrentTerm()
	if err := n.barrier(); err != nil {
		n.opts.Logger.Warn("barrier of a new leader failed", "err", err)
		return 0, false
	}
	// The barrier may belong to a later leadership; the next notification announces that one.
	return term, n.raft.State() == hraft.Leader && n.raft.CurrentTerm() == term
}

// barrier waits until everything of earlier terms is applied.
func (n *Node) barrier() error {
	return n.await(func() error { return n.raft.Barrier(0).Error() })
}

// await waits for an answer of hashicorp/raft until the node closes: the library drops its queues
// at shutdown.
func (n *Node) await(ask func() error) error {
	done := make(chan error, 1)
	go func() { done <- ask() }()
	select {
	case err := <-done:
		return err
	case <-n.stop:
		return errStopped
	}
}

func (n *Node) setLeading(now bool, term uint64) {
	n.ready.Lock()
	defer n.ready.Unlock()
	if n.ready.leading == now && n.ready.term == term {
		return
	}
	n.ready.leading, n.ready.term = now, term
	defer n.tellLeader()
	close(n.ready.changed)
	n.ready.changed = make(chan struct{})
	n.metrics.leader.Set(0)
	if now {
		n.metrics.leader.Set(1)
	}
	n.opts.Logger.Info("leadership", "leading", now, "term", term)
}

// Leading reports whether this node takes proposals: it leads, and has applied all entries of
// earlier terms.
func (n *Node) Leading() bool {
	_, leading := n.leadership()
	return leading
}

// leadership returns the term in which this node leads, if it does. The leadership that became
// ready may have ended since, and this node may have been elected again.
func (n *Node) leadership() (term uint64, leading bool) {
	n.ready.Lock()
	term, leading = n.ready.term, n.ready.leading
	n.ready.Unlock()
	return term, leading && !n.failed.Load() && n.raft.State() == hraft.Leader && n.raft.CurrentTerm() == term
}

// WaitLeading returns when this node can take proposals, or with the context's error. Leading then
// held a moment ago: after a leadership has ended in Raft, WaitLeading waits for the next one.
func (n *Node) WaitLeading(ctx context.Context) error { return n.wait(ctx, n.Leading) }

// WaitFollowing returns when this node cannot take proposals, or with the context's error.
func (n *Node) WaitFollowing(ctx context.Context) error {
	return n.wait(ctx, func() bool { return !n.Leading() })
}

// wait waits until a condition holds that a notification of Raft ends or begins.
func (n *Node) wait(ctx context.Context, holds func() bool) error {
	for {
		n.ready.Lock()
		changed := n.ready.changed // First, so that no change is missed.
		n.ready.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
