package raft

import (
	"context"
	"errors"
	"fmt"
	"time"

	hraft "github.com/hashicorp/raft"
)

// ErrNotTransferred means that the leadership did not move.
var ErrNotTransferred = errors.New("raft: the leadership was not transferred")

// transferStep is the interval between checks of a transfer's progress.
const transferStep = 2 * time.Millisecond

// Transfer makes another voter the leader. This node proposes nothing more, waits until the voter
// has its whole log, and tells it to stand for election at once. Transfer returns when this node
// follows another leader. If the context ends first, it returns ErrNotTransferred with the reason,
// and this node takes proposals again. Proposals in between get ErrNotLeader.
//
// hashicorp/raft v1.8.0 has a transfer of its own. If the leader is deposed while the voter lags,
// it hangs forever, and with it every later proposal of the node.
func (n *Node) Transfer(ctx context.Context, id string) error {
	target, known := find(n.Members(), id)
	if !known || !target.Voter || id == n.opts.NodeID {
		return fmt.Errorf("%w: %s", ErrNotMember, id)
	}
	if !n.Leading() {
		return ErrNotLeader
	}
	if !n.pause(true) {
		return fmt.Errorf("%w: another transfer is in progress, or the node closes", ErrNotTransferred)
	}
	defer n.pause(false)
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

// reaches returns when no proposal is in flight and the target has the whole log.
func (n *Node) reaches(ctx context.Context, target Member) error {
	return n.until(ctx, func() error {
		n.flight.Lock()
		count := n.flight.count
		n.flight.Unlock()
		if count > 0 {
			return fmt.Errorf("%d proposals in flight", count)
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

// until returns nil when the condition holds, or its last error when the context or the node ends.
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

// pause starts or ends a period without proposals, and reports whether it could.
func (n *Node) pause(on bool) bool {
	n.flight.Lock()
	defer n.flight.Unlock()
	if on && (n.flight.paused || n.flight.closing) {
		return false
	}
	n.flight.paused = on
	return true
}

// electSelf makes a single voter stand for election at once: it has no other node to wait for. If
// that fails, it stands after ElectionTimeout as usual.
func (n *Node) electSelf() {
	self, known := n.Self()
	if !known || !self.Voter || len(others(n.Members(), self.ID)) > 0 {
		return
	}
	if err := n.timeoutNow(self.ID, n.opts.Listener.Addr().String()); err != nil {
		n.opts.Logger.Debug("single voter waits for the election timeout", "err", err)
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
