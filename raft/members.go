package raft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	hraft "github.com/hashicorp/raft"

	"runlog/storage"
)

var (
	// ErrLastVoter means that the member is the last voter of the group.
	ErrLastVoter = errors.New("raft: the last voter cannot be removed")
	// ErrNotMember means that the node is not a member of the group.
	ErrNotMember = errors.New("raft: no such member")

	errNobody   = errors.New("raft: no member answers")
	errNotReady = errors.New("raft: the member is not ready to vote")
)

// Member is one node of the group.
type Member struct {
	ID      string
	Address string
	// Voter: the member counts for a majority.
	Voter bool
}

// Progress is a member's own report of its log position.
type Progress struct {
	Term uint64 // that it is in
	// The end of its log.
	LastIndex, LastTerm uint64
	// LastContact is the time since the last message of the leader; negative: none so far.
	LastContact time.Duration
}

// Status is how a node stands in its group.
type Status struct {
	Progress
	Leading bool
	// Leader that the node follows; empty: none.
	LeaderID, LeaderAddress string
	// FirstIndex of the log; 0: it is empty.
	FirstIndex  uint64
	CommitIndex uint64
	// AppliedIndex is the last applied entry, Raft's own entries included: the store never gets
	// these. An entry that is just being applied may count.
	AppliedIndex uint64
}

// Status returns the current status of the node. It reads the fields one by one, not atomically.
func (n *Node) Status() Status {
	stats := n.raft.Stats()
	s := Status{Leading: n.Leading(), CommitIndex: n.raft.CommitIndex(), Progress: n.progress(stats)}
	if s.AppliedIndex = n.opts.Store.Applied().Index; stats["fsm_pending"] == "0" {
		s.AppliedIndex = max(s.AppliedIndex, n.raft.AppliedIndex())
	}
	s.LeaderAddress, s.LeaderID = n.Leader()
	s.FirstIndex, _ = n.logs.FirstIndex() // fails only if writes fail, and these stop the node
	return s
}

// Progress returns how far the node is.
func (n *Node) Progress() Progress { return n.progress(n.raft.Stats()) }

func (n *Node) progress(stats map[string]string) Progress {
	p := Progress{Term: n.raft.CurrentTerm(), LastIndex: n.raft.LastIndex(), LastContact: -1}
	p.LastTerm, _ = strconv.ParseUint(stats["last_log_term"], 10, 64)
	if n.raft.State() == hraft.Leader {
		p.LastContact = 0
	} else if at := n.raft.LastContact(); !at.IsZero() {
		p.LastContact = time.Since(at)
	}
	return p
}

// Term returns the term that the node is in.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// Leader returns the leader that this node follows; empty: none.
func (n *Node) Leader() (address, id string) {
	a, i := n.raft.LeaderWithID()
	return string(a), string(i)
}

// Members returns the latest membership that this node has in its log.
func (n *Node) Members() []Member {
	return membersOf(n.raft.GetConfiguration().Configuration()) // answers at once, from memory
}

// CommittedMembers returns the members. Voter is set only if that is committed, and a member is
// missing only if its removal is, according to this node's store. The log of Members may contain a
// change that only the leader has, and that is lost with it.
func (n *Node) CommittedMembers() ([]Member, error) {
	members := n.Members()
	applied, err := n.opts.Store.Membership()
	if err != nil || applied.Index == 0 {
		return members, err
	}
	before, err := DecodeMembers(applied)
	if err != nil {
		return members, err
	}
	for i := range members {
		m, _ := find(before, members[i].ID)
		members[i].Voter = members[i].Voter && m.Voter
	}
	for _, m := range before {
		if _, stays := find(members, m.ID); !stays {
			members = append(members, m)
		}
	}
	return members, nil
}

func membersOf(c hraft.Configuration) []Member {
	var members []Member
	for _, s := range c.Servers {
		members = append(members, Member{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == hraft.Voter})
	}
	return members
}

// DecodeMembers returns the members of a group as a store has them. The error is marked as damage
// (package storage).
func DecodeMembers(m storage.Membership) ([]Member, error) {
	c, err := decodeConfiguration(m.Index, m.Data)
	return membersOf(c), err
}

// decodeConfiguration decodes the members that an entry of the log names. hashicorp/raft panics
// where it cannot, as after rot that no checksum has covered yet.
func decodeConfiguration(index uint64, data []byte) (c hraft.Configuration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = storage.Damage(fmt.Errorf("raft: entry %d names members that cannot be decoded: %v", index, p))
		}
	}()
	return hraft.DecodeConfiguration(data), nil
}

// EncodeMembers returns members as the log has them, and as storage.Membership.Data has them.
func EncodeMembers(members []Member) []byte {
	var c hraft.Configuration
	for _, m := range members {
		server := hraft.Server{ID: hraft.ServerID(m.ID), Address: hraft.ServerAddress(m.Address), Suffrage: hraft.Nonvoter}
		if m.Voter {
			server.Suffrage = hraft.Voter
		}
		c.Servers = append(c.Servers, server)
	}
	return hraft.EncodeConfiguration(c)
}

// Self returns this node's entry in the membership, and whether it is a member.
func (n *Node) Self() (Member, bool) { return find(n.Members(), n.opts.NodeID) }

func find(members []Member, id string) (Member, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// takeTurn waits until no other change of the members is in progress. After nil, the caller must
// call giveTurn. After an error, nothing has changed.
func (n *Node) takeTurn(ctx context.Context) error {
	select {
	case n.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("raft: another membership change is in progress: %w", ctx.Err())
	}
}

func (n *Node) giveTurn() { <-n.changing }

// Add makes a node a non-voter that follows the log; autopilot promotes it. For a member, Add
// updates the address. may judges the current members, and Add returns its error; nil accepts all.
// Errors: ErrNotLeader, ErrUnknown.
func (n *Node) Add(ctx context.Context, id, address string, may func([]Member) error) error {
	if err := n.takeTurn(ctx); err != nil {
		return err
	}
	defer n.giveTurn()
	if !n.Leading() {
		return ErrNotLeader
	}
	members := n.Members()
	if may != nil {
		if err := may(members); err != nil {
			return err
		}
	}
	switch m, known := find(members, id); {
	case known && m.Address == address:
		return nil
	case known && m.Voter:
		return n.change(ctx, n.raft.AddVoter(hraft.ServerID(id), hraft.ServerAddress(address), 0, time.Until(deadline(ctx))))
	default:
		return n.change(ctx,
			n.raft.AddNonvoter(hraft.ServerID(id), hraft.ServerAddress(address), 0, time.Until(deadline(ctx))))
	}
}

// Remove takes a member out of the group. Errors: ErrNotLeader, ErrUnknown, ErrNotMember,
// ErrLastVoter.
func (n *Node) Remove(ctx context.Context, id string) error {
	if err := n.takeTurn(ctx); err != nil {
		return err
	}
	defer n.giveTurn()
	if !n.Leading() {
		return ErrNotLeader
	}
	members := n.Members()
	m, known := find(members, id)
	if !known {
		return n.NotMember(id)
	}
	if m.Voter && len(others(members, id)) == 0 {
		return ErrLastVoter
	}
	return n.change(ctx, n.raft.RemoveServer(hraft.ServerID(id), 0, time.Until(deadline(ctx))))
}

// NotMember returns the error for a node that is not in Members. While its removal is only in the
// leader's log, that is ErrUnknown: the removal may be lost, and the node would be a member again.
func (n *Node) NotMember(id string) error {
	committed, err := n.CommittedMembers()
	if err != nil {
		return err
	}
	if _, pending := find(committed, id); pending {
		return fmt.Errorf("%w: no majority has stored the removal of %s yet", ErrUnknown, id)
	}
	return fmt.Errorf("%w: %s", ErrNotMember, id)
}

// others returns the voters but one.
func others(members []Member, id string) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !m.Voter || m.ID == id })
}

// changeTimeout bounds a change of the members if the caller's context has no deadline.
const changeTimeout = 10 * time.Second

func deadline(ctx context.Context) time.Time {
	if d, ok := ctx.Deadline(); ok {
		return d
	}
	return time.Now().Add(changeTimeout)
}

// change waits for a change of the members until the context ends or the node closes:
// hashicorp/raft drops futures at shutdown.
func (n *Node) change(ctx context.Context, f hraft.IndexFuture) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		switch {
		case err == nil:
			return nil
		case errors.Is(err, hraft.ErrNotLeader), errors.Is(err, hraft.ErrLeadershipTransferInProgress):
			return fmt.Errorf("%w: %w", ErrNotLeader, err)
		case errors.Is(err, hraft.ErrEnqueueTimeout), errors.Is(err, hraft.ErrLeadershipLost),
			errors.Is(err, hraft.ErrRaftShutdown):
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		default:
			return fmt.Errorf("raft: %w", err)
		}
	case <-n.stop:
		return fmt.Errorf("%w: the node was closed", ErrUnknown)
	case <-ctx.Done():
		return fmt.Errorf("%w: no majority has stored the change: %w", ErrUnknown, context.Cause(ctx))
	}
}
