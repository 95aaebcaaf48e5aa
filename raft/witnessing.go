package raft

import (
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/wal"
	"runlog/raft/witness"
	"runlog/storage"
)

// ErrDiverged means that a leader has other entries where this node has applied its own: the
// members that elected it have lost acknowledged entries.
var ErrDiverged = errors.New("raft: the other members have lost entries that this node has applied")

// openWitness opens what the directory knows of itself and of the other members.
func (n *Node) openWitness() {
	n.witness = witness.Open(witness.Options{
		Files: n.smallFiles(), NodeID: n.opts.NodeID, Address: n.opts.Advertise,
		Standing: n.stands, Logger: n.opts.Logger,
	})
}

// begin begins an incarnation of the directory. It reports whether the directory is new: it has
// neither voted nor received an entry. Without its incarnations, others would take the directory
// for an older copy; an only member has no others.
func (n *Node) begin() (fresh bool, err error) {
	if lost := n.witness.Lost(); lost != nil {
		alone, err := n.alone()
		if err != nil || !alone || !storage.Damaged(lost) {
			return false, errors.Join(lost, err)
		}
		n.opts.Logger.Warn("incarnations made again by an only member", "err", lost)
	}
	now := n.stands()
	first, err := n.witness.Begin()
	return first && now.Term == 0 && now.Index == 0, err
}

// stands returns what this node has on stable storage. The log is read first: what shortens it is
// noted before it does.
func (n *Node) stands() witness.Standing {
	var s witness.Standing
	var l hraft.Log
	for dropped := true; dropped; { // Another entry may be at a dropped one's index by now.
		last, err := n.logs.LastIndex()
		if err == nil && last > 0 {
			err = n.logs.GetLog(last, &l)
			if err == nil {
				s.Index, s.LastTerm = l.Index, l.Term
			}
		}
		dropped = errors.Is(err, hraft.ErrLogNotFound)
	}
	if newest := n.snapshots.newest(); newest.Index > s.Index {
		s.Index, s.LastTerm = newest.Index, newest.Term
	}
	s.Term, s.Overruled = n.stable.Term(), n.witness.Overruled()
	return s
}

// membersAhead returns the last members that the log names beyond what the store has applied; nil:
// none. The store of a killed node may lack all changes since it was flushed.
func (n *Node) membersAhead() (members []Member, err error) {
	first, last, err := n.logBounds()
	var l hraft.Log
	for i := max(first, n.opts.Store.Applied().Index+1); err == nil && last > 0 && i <= last; i++ {
		if err = n.logs.GetLog(i, &l); err == nil && l.Type == hraft.LogConfiguration {
			var c hraft.Configuration
			c, err = decodeConfiguration(i, l.Data)
			members = membersOf(c)
		}
	}
	return members, err
}

// Witness returns what this node knows of itself and of the other members.
func (n *Node) Witness() *witness.Witness { return n.witness }

// overrule implements wal.Options.Overrule.
func (n *Node) overrule() error { return n.witness.Overrule(n.stable.Term()) }

// saveWitness stores the memory of the members.
func (n *Node) saveWitness() {
	if n.failed.Load() {
		return
	}
	if members := n.Members(); len(members) > 0 {
		n.witness.Keep(names(members))
	}
	if err := n.witness.Save(); err != nil {
		n.fail(err)
	}
}

// diverged implements wal.Options.Diverged. It keeps for the salvage where the histories may have
// parted: if a member forgot its vote, two leaders of a term can have made entries that Raft takes
// for one.
func (n *Node) diverged(first, last, applied uint64) error {
	d := witness.Divergence{First: min(first, n.common(math.MaxUint64)+1), Last: last, Applied: applied}
	return errors.Join(fmt.Errorf("%w: asked to drop log entries %d to %d, but everything up to %d is applied. %s",
		ErrDiverged, first, last, applied, witness.KeepIt), d.Keep(n.smallFiles()))
}

// common is an entry up to which another leader of a term has the same log; 0: it is not known.
func (n *Node) common(term uint64) uint64 {
	return n.witness.Common(names(others(n.Members(), n.opts.NodeID)), term)
}

func (n *Node) smallFiles() wal.SmallFiles { return wal.SmallFiles{FS: n.opts.FS, Dir: n.opts.Dir} }

// led notes the leader of a term; empty: this node does. Two leaders of one term can have different
// entries with the same index and term, which Raft would take for the same: the node stops.
func (n *Node) led(term uint64, id string) error {
	if id == "" {
		id = n.opts.NodeID
	}
	err := n.witness.Led(term, id)
	switch {
	case errors.Is(err, witness.ErrTwoLeaders):
		n.fail(n.divergedIn(err, wal.EntryID{Index: math.MaxUint64, Term: term}))
	case err != nil:
		n.fail(err)
	}
	return err
}

// divergedIn returns the error of a node that has another history than its leader: an entry is not
// the leader's, and the first one that is not is unknown.
func (n *Node) divergedIn(why error, differs wal.EntryID) error {
	d := witness.Divergence{First: min(differs.Index, n.common(differs.Term)+1), Applied: n.opts.Store.Applied().Index}
	_, last, err := n.logBounds()
	d.Last = max(last, d.Applied)
	return errors.Join(fmt.Errorf("%w: %w; entries %d to %d may be lost elsewhere. %s",
		ErrDiverged, why, d.First, d.Last, witness.KeepIt), err, d.Keep(n.smallFiles()))
}

// ReadDivergence returns the divergence that stopped the node of a directory; nil: none did.
func ReadDivergence(disk vfs.FS, dir string) (*witness.Divergence, error) {
	return witness.ReadDivergence(wal.SmallFiles{FS: disk, Dir: dir})
}
