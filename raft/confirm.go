package raft

import (
	"context"
	"fmt"
	"sync"
)

// ConfirmLeader returns nil when this node still led after the call began and everything that it
// ever acknowledged is applied: a read of the store that begins then is linearizable (READ-2, D8).
// All callers that wait share one round.
func (n *Node) ConfirmLeader(ctx context.Context) error {
	if !n.Leading() {
		return ErrNotLeader
	}
	return n.verify.join(ctx)
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

// verifier lets callers share rounds of confirmation. A caller joins the round that has not begun
// yet, because one under way may have begun before the caller's read was asked for.
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

// run holds rounds until no caller waits for one.
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
