package raft

import (
	"errors"
	"fmt"
	"sync"

	hraft "github.com/hashicorp/raft"

	"runlog/storage"
)

// maxEntryBytes is far above the size of a proposal. raft-wal writes entries of any size but
// refuses to read those over 64 MiB; with such an entry, no node would start again.
const maxEntryBytes = 60 << 20

// Propose submits a log entry, made by storage.Proposal, to the group. The caller must not change
// data afterwards. After an error the entry is not stored, and done is not called.
//
// Otherwise done is called once, from a goroutine of the node, which it must not block. It gets the
// outcomes of the proposal's commands, in order, once the entry is durable and applied; or
// ErrNotLeader (not stored), or ErrUnknown. A leader whose clock is too far ahead proposes nothing:
// ErrNotLeader, which wraps stamps.ErrAhead.
func (n *Node) Propose(data []byte, done func([]storage.Outcome, error)) error {
	if len(data) > maxEntryBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), maxEntryBytes)
	}
	if !n.Leading() {
		return ErrNotLeader
	}
	if stamp, is := storage.StampOf(data); is {
		if err := n.opts.Stamps.Admit(stamp); err != nil {
			return fmt.Errorf("%w: %w", ErrNotLeader, err)
		}
	}
	if !n.acquire() {
		return ErrNotLeader
	}
	p := &proposal{data: data, done: done}
	n.answers.expect(p)
	p.future = n.raft.Apply(data, 0)
	n.settling <- p
	return nil
}

// acquire counts a proposal in. It returns false while the node closes or transfers its leadership.
func (n *Node) acquire() bool {
	n.flight.Lock()
	defer n.flight.Unlock()
	if n.flight.closing || n.flight.paused {
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

// answers are the proposals without an answer. The state machine answers nearly all of them as soon
// as their entry is applied: waiting for hashicorp/raft's future would cost another goroutine
// switch.
//
// A proposal is known by the address of its entry's data: on the node that proposed it,
// hashicorp/raft applies the same bytes. They stay in use until the answer, so no other proposal
// can have the address meanwhile, unless a caller proposes the same memory again: these wait in a
// list, and are answered in the order in which they were proposed.
//
// A goroutine that removes a proposal answers it. The one that applies calls first, settle calls
// take, and Close calls abandon when Raft has been shut down.
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

// first removes and returns the proposal of an applied entry; nil if another node proposed it.
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

// take removes a proposal and reports whether it had no answer yet.
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

// applied answers the proposal of an applied entry, if this node proposed it.
func (n *Node) applied(data []byte, outcomes []storage.Outcome) {
	if p := n.answers.first(data); p != nil {
		n.answer(p, outcomes, nil)
	}
}

// answer calls the proposal's done. A node that failed to write or apply must acknowledge nothing
// (D10).
func (n *Node) answer(p *proposal, outcomes []storage.Outcome, err error) {
	if n.failed.Load() {
		outcomes, err = nil, fmt.Errorf("%w: %w", ErrUnknown, errStopped)
	}
	p.done(outcomes, err)
}

// settle waits for each proposal's future, in order, and answers the proposals that the state
// machine has not answered.
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

// refusal returns the error of a proposal that this node did not apply as its own.
func refusal(p *proposal, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%w: %v", ErrUnknown, p.future.Response())
	case errors.Is(err, hraft.ErrNotLeader), errors.Is(err, hraft.ErrLeadershipTransferInProgress),
		errors.Is(err, hraft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}

// abandon answers the proposals that hashicorp/raft dropped at shutdown.
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
