package raft

import (
	"context"
	"fmt"

	hraft "github.com/hashicorp/raft"

	"runlog/storage"
)

// ConfirmLeader returns nil when this node still led after the call began, and everything is
// applied that any node may have applied by then: a read of the store that begins then is
// linearizable (READ-2, D8). All callers that wait share one round.
//
// Three steps, each of which must come after the one before:
//
//	Leading         this node has applied all entries of earlier terms, so that its commit index
//	                covers what earlier leaders have acknowledged
//	verify          a majority, asked after the call began, is still in the term of this
//	                leadership: no later leader had acknowledged anything by then
//	awaitCommitted  what this node itself has committed by now is applied here too
//
// It does not use the leader's lease, which is as good as the clocks of both nodes: a process that
// was paused wakes up in an old leadership and believes that no time has passed.
func (n *Node) ConfirmLeader(ctx context.Context) error {
	if !n.Leading() {
		return ErrNotLeader
	}
	if err := n.verify.Join(ctx); err != nil {
		return err
	}
	return n.awaitCommitted(ctx)
}

// awaitCommitted waits until the entries are applied that are committed now. A follower that is
// faster has them already, and may have shown them to its readers.
func (n *Node) awaitCommitted(ctx context.Context) error {
	for i := n.raft.CommitIndex(); i > n.opts.Store.Applied().Index; i-- {
		if n.isCommand(i) {
			return n.opts.Store.Wait(ctx, storage.Position(i-1))
		}
	}
	return nil
}

// isCommand reports whether the log has an entry that the store gets. One that was dropped, the
// store has.
func (n *Node) isCommand(index uint64) bool {
	var l hraft.Log
	return n.logs.GetLog(index, &l) == nil && l.Type == hraft.LogCommand
}

// confirmLeader asks the other voters for their term. If a majority, this node included, is still
// in the term of this node's leadership, no node was elected in a later term before the call.
//
// hashicorp/raft's VerifyLeader is not used: it counts answers to heartbeats sent before the call.
// A process that was paused for longer than its lease finds such answers in its queue.
func (n *Node) confirmLeader() error {
	term, leading := n.leadership()
	if !leading {
		return ErrNotLeader
	}
	members := n.Members()
	voters := others(members, n.opts.NodeID)
	self, _ := find(members, n.opts.NodeID)
	need := len(voters)/2 + 1 // of all voters but this node
	if self.Voter {
		need = (len(voters) + 1) / 2
	}
	if need == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.opts.ElectionTimeout)
	defer cancel()
	answers := make(chan bool, len(voters))
	for _, m := range voters {
		go func() {
			now, err := n.opts.AskTerm(ctx, m)
			answers <- err == nil && now == term
		}()
	}
	agree, refuse := 0, 0
	for agree < need && refuse <= len(voters)-need {
		select {
		case yes := <-answers:
			if yes {
				agree++
			} else {
				refuse++
			}
		case <-n.stop:
			return ErrNotLeader
		}
	}
	if agree < need {
		return fmt.Errorf("%w: %d of %d other voters confirm the term", ErrNotLeader, agree, len(voters))
	}
	return nil
}
