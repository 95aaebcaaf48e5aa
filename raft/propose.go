package raft

import (
	"errors"
	"fmt"
	"sync"

	hraft "github.com/hashicorp/raft"

	"runlog/storage"
)

// maxEntryBytes is far above what a proposal holds. raft-wal writes entries of any size and refuses
// to read those over 64 MiB, after which no node would start again.
const maxEntryBytes = 60 << 20

// Propose hands a log entry, made by storage.Proposal, to the group. It keeps data. An error means
// that the entry is not stored, and that done is not called.
//
// Otherwise done is called once, from a goroutine of the node's that it must not hold up: with the
// outcomes of the proposal's commands, in order, once the entry is durable and applied; or with
// ErrNotLeader (not stored) or ErrUnknown.
func (n *Node) Propose(data []byte, done func([]storage.Outcome, error)) error {
	if len(data) > maxEntryBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), maxEntryBytes)
	}
	if !n.Leading() || !n.acquire() {
		return ErrNotLeader
	}
	p := &proposal{data: data, done: done}
	n.answers.expect(p)
	p.future = n.raft.Apply(data, 0)
	n.settling <- p
	return nil
}

// acquire counts a proposal in, unless the node closes or hands its leadership over.
func (n *Node) acquire() bool {
	n.flight.Lock()
	defer n.flight.Unlock()
	if n.flight.closing || n.flight.held {
		return false
	}
	n.flight.count++
	return true
}

func (n *Node) release() {
	n.flight.Lock()
	n.flight.count--
	n.flight.Unlock()
	select {
	case n.flight.changed <- struct{}{}:
	default:
	}
}

// proposal is an entry that this node proposed and has not answered for yet.
type proposal struct {
	data   []byte
	done   func([]storage.Outcome, error)
	future hraft.ApplyFuture
	next   *proposal // of the same memory, proposed later
}

// answers are the proposals without an answer. Nearly all get theirs from the state machine, as
// soon as their entry is applied: to wait for hashicorp/raft's future would cost another switch of
// goroutines. An entry is known by its memory, which nothing else can occupy before it is answered.
type answers struct {
	mu      sync.Mutex
	waiting map[*byte]*proposal
}

func (a *answers) expect(p *proposal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = make(map[*byte]*proposal)
	}
	key := &p.data[0]
	last := a.waiting[key]
	if last == nil {
		a.waiting[key] = p
		return
	}
	for last.next != nil {
		last = last.next
	}
	last.next = p
}

// first takes the proposal of an entry that was applied; nil when it is none of this node's.
func (a *answers) first(data []byte) *proposal {
	if len(data) == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.waiting[&data[0]]
	if p != nil {
		a.unlink(p, nil)
	}
	return p
}

// take tells whether a proposal has no answer yet, and takes it.
func (a *answers) take(p *proposal) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	var before *proposal
	for q := a.waiting[&p.data[0]]; q != nil; before, q = q, q.next {
		if q == p {
			a.unlink(p, before)
			return true
		}
	}
	return false
}

func (a *answers) unlink(p, before *proposal) {
	switch key := &p.data[0]; {
	case before != nil:
		before.next = p.next
	case p.next != nil:
		a.waiting[key] = p.next
	default:
		delete(a.waiting, key)
	}
}

// applied answers the proposal of an entry that was applied, where it is this node's.
func (n *Node) applied(data []byte, outcomes []storage.Outcome) {
	if p := n.answers.first(data); p != nil {
		n.answer(p, outcomes, nil)
	}
}

// answer tells what became of a proposal. Nothing may be acknowledged by a node that could not
// write or apply (D10).
func (n *Node) answer(p *proposal, outcomes []storage.Outcome, err error) {
	if n.failed.Load() {
		outcomes, err = nil, fmt.Errorf("%w: %w", ErrUnknown, errStopped)
	}
	p.done(outcomes, err)
}

// settle waits for what hashicorp/raft says of each proposal, in order, and answers those that the
// state machine has not.
func (n *Node) settle() {
	defer close(n.settled)
	for p := range n.settling {
		err := p.future.Error()
		if n.answers.take(p) {
			n.answer(p, nil, refusal(p, err))
		}
		n.release()
	}
}

// refusal is what became of a proposal that was not applied here as such.
func refusal(p *proposal, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%w: %v", ErrUnknown, p.future.Response())
	case errors.Is(err, hraft.ErrNotLeader), errors.Is(err, hraft.ErrLeadershipTransferInProgress), errors.Is(err, hraft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}

// abandon answers the proposals that hashicorp/raft forgot when it shut down.
func (a *answers) abandon() {
	a.mu.Lock()
	left := a.waiting
	a.waiting = nil
	a.mu.Unlock()
	for _, p := range left {
		for ; p != nil; p = p.next {
			p.done(nil, fmt.Errorf("%w: the node was closed", ErrUnknown))
		}
	}
}
