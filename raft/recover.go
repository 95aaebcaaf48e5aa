package raft

import (
	"errors"
	"fmt"

	hraft "github.com/hashicorp/raft"
)

// Recovered describes a node's state before it became the only member of its group.
type Recovered struct {
	// Members of the group before, according to this node's log.
	Members []Member
	// LastIndex and LastTerm are the end of the node's log: from now on all of it counts as
	// committed. Applied is the last index that its store held.
	LastIndex, LastTerm, Applied uint64
}

// Recover makes a stopped node the only voter of its group, after the majority was lost
// permanently. Entries that only the lost nodes had are lost, acknowledged or not. The lost nodes
// must never run again: there would be two groups. Every entry in this node's log counts as
// committed, and another incarnation of the cluster begins behind them: positions that the lost
// nodes gave out may be those of other entries here. The options are those of Start.
func Recover(opts Options) (r Recovered, err error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return Recovered{}, err
	}
	n := newNode(opts)
	n.sole = true
	defer func() { err = errors.Join(err, n.closeFiles()) }()
	if err := n.open(); err != nil {
		return Recovered{}, err
	}
	if r, err = n.standing(); err != nil {
		return Recovered{}, err
	}
	self, known := find(r.Members, opts.NodeID)
	if !known {
		return Recovered{}, fmt.Errorf("%w: %s: its log names the members %v", ErrNotMember, opts.NodeID, r.Members)
	}
	if err := n.witness.GoAlone(r.LastIndex + 1); err != nil {
		return Recovered{}, err
	}
	alone := hraft.Configuration{Servers: []hraft.Server{
		{ID: hraft.ServerID(self.ID), Address: hraft.ServerAddress(self.Address)},
	}}
	begin, err := opts.Store.NewIncarnation()
	if err != nil {
		return Recovered{}, err
	}
	term := max(r.LastTerm, n.stable.Term())
	return r, n.logs.StoreLogs([]*hraft.Log{
		{Index: r.LastIndex + 1, Term: term, Type: hraft.LogConfiguration, Data: hraft.EncodeConfiguration(alone)},
		{Index: r.LastIndex + 2, Term: term, Type: hraft.LogCommand, Data: begin},
	})
}

// standing reads the members and the node's position from its log and its newest snapshot.
func (n *Node) standing() (Recovered, error) {
	first, last, err := n.logBounds()
	if err != nil {
		return Recovered{}, err
	}
	newest := n.snapshots.newest()
	r := Recovered{LastIndex: newest.Index, LastTerm: newest.Term, Applied: n.opts.Store.Applied().Index}
	var members hraft.Configuration
	if list, err := n.snapshots.List(); err == nil && len(list) > 0 {
		members = list[0].Configuration
	}
	for i := first; i > 0 && i <= last; i++ {
		var l hraft.Log
		if err := n.logs.GetLog(i, &l); err != nil {
			return Recovered{}, err
		}
		r.LastIndex, r.LastTerm = l.Index, l.Term
		if l.Type == hraft.LogConfiguration {
			if members, err = decodeConfiguration(i, l.Data); err != nil {
				return Recovered{}, err
			}
		}
	}
	r.Members = membersOf(members)
	return r, nil
}

// Replay applies the rest of a stopped node's log to its store, as if all of it was committed. The
// options are those of Start.
func Replay(opts Options) (err error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return err
	}
	n := newNode(opts)
	defer func() { err = errors.Join(err, n.closeFiles()) }()
	if err := n.open(); err != nil {
		return err
	}
	_, last, err := n.logBounds()
	if err != nil {
		return err
	}
	fsm := &stateMachine{store: opts.Store, metrics: n.metrics}
	for i := opts.Store.Applied().Index + 1; i <= last; i++ {
		var l hraft.Log
		if err := n.logs.GetLog(i, &l); err != nil {
			return err
		}
		if _, err := fsm.apply(&l); err != nil {
			return fmt.Errorf("raft: apply entry %d: %w", i, err)
		}
	}
	return opts.Store.MakeDurable(opts.Store.Applied().Index)
}
