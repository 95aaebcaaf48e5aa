package raft

import (
	"context"
	"errors"
	"fmt"
	"time"

	hraft "github.com/hashicorp/raft"
)

// ErrNotTransferred means that the leadership stays where it was.
var ErrNotTransferred = errors.New("raft: the leadership was not transferred")

// transferStep is how often is looked whether a transfer has got further.
const transferStep = 2 * time.Millisecond

// Transfer makes another voter the leader: this node proposes nothing more, waits until the voter
// has its whole log, and tells it to stand for election at once. It returns when this node follows
// another leader, or ErrNotTransferred with the reason once the context ends, after which this node
// goes on. Proposals meanwhile: ErrNotLeader.
//
// hashicorp/raft v1.8.0 has a transfer of its own, which hangs for ever, and with it every later
// proposal of the node, when the leader is deposed while the voter lags.
func (n *Node) Transfer(ctx context.Context, id string) error {
	target, known := find(n.Members(), id)
	if !known || !target.Voter || id == n.opts.NodeID {
		return fmt.Errorf("%w: %s", ErrNotMember, id)
	}
	if !n.Leading() {
		return ErrNotLeader
	}
	if !n.hold(true) {
		return fmt.Errorf("%w: another transfer is under way, or the node closes", ErrNotTransferred)
	}
	defer n.hold(false)
	term := n.raft.CurrentTerm()
	if err := n.reaches(ctx, target); err != nil {
		return fmt.Errorf("%w to %s: %w", ErrNotTransferred, id, err)
	}
	if err := n.timeoutNow(target.ID, target.Address); err != nil {
		return fmt.Errorf("%w to %s: %w", ErrNotTransferred, id, err)
	}
	return n.until(ctx, func() error {
		if _, leader := n.Leader(); leader == "" || leader == n.opts.NodeID || n.raft.CurrentTerm() == term {
			return fmt.Errorf("%w: %s was not elected", ErrNotTransferred, id)
		}
		return nil
	})
}

// reaches returns when nothing is under way and the target has the whole log.
func (n *Node) reaches(ctx context.Context, target Member) error {
	return n.until(ctx, func() error {
		n.flight.Lock()
		count := n.flight.count
		n.flight.Unlock()
		if count > 0 {
			return fmt.Errorf("%d proposals are under way", count)
		}
		last := n.raft.LastIndex()
		p, err := n.opts.Ask(ctx, target)
		if err != nil {
			return err
		}
		if p.LastIndex < last {
			return fmt.Errorf("its log ends at %d, this one at %d", p.LastIndex, last)
		}
		return nil
	})
}

// until returns when the condition holds, or what it says when the context or the node ends.
func (n *Node) until(ctx context.Context, condition func() error) error {
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(transferStep):
		case <-n.stop:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// hold begins or ends a time in which nothing is proposed, and tells whether it could.
func (n *Node) hold(on bool) bool {
	n.flight.Lock()
	defer n.flight.Unlock()
	if on && (n.flight.held || n.flight.closing) {
		return false
	}
	n.flight.held = on
	return true
}

// electSelf makes an only voter stand for election at once: there is nobody to wait for. Where that
// fails, it stands for election after ElectionTimeout, as any other.
func (n *Node) electSelf() {
	self, known := n.Self()
	if !known || !self.Voter || len(others(n.Members(), self.ID)) > 0 {
		return
	}
	if err := n.timeoutNow(self.ID, n.opts.Listener.Addr().String()); err != nil {
		n.opts.Logger.Debug("an only voter waits for its election", "err", err)
	}
}

// timeoutNow tells a voter to stand for election at once.
func (n *Node) timeoutNow(id, address string) error {
	header := hraft.RPCHeader{
		ProtocolVersion: hraft.ProtocolVersionMax, ID: []byte(n.opts.NodeID),
		Addr: n.trans.EncodePeer(hraft.ServerID(n.opts.NodeID), n.trans.LocalAddr()),
	}
	return n.trans.TimeoutNow(hraft.ServerID(id), hraft.ServerAddress(address),
		&hraft.TimeoutNowRequest{RPCHeader: header}, &hraft.TimeoutNowResponse{})
}
