package raft

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/wal"
)

// Made tells whether Make has been called for the directory of a node.
func Made(disk vfs.FS, dir string) (bool, error) { return wal.HasMark(disk, dir) }

// Make makes the directory of a node, with a commit mark in it. A node whose directory lacks it
// afterwards has lost its log and its vote, also where it has kept neither for long.
func Make(disk vfs.FS, dir string) error { return wal.MakeMark(disk, dir) }

// logBounds returns the first and the last index of the log; zeros when it is empty.
func (n *Node) logBounds() (first, last uint64, err error) {
	if first, err = n.logs.FirstIndex(); err == nil {
		last, err = n.logs.LastIndex()
	}
	if err != nil {
		err = fmt.Errorf("raft: read log: %w", err)
	}
	return first, last, err
}

// reconcile completes what a crash in an install left undone, and compares log, store and marks
// with each other before this node may vote (D2, D5).
func (n *Node) reconcile() error {
	newest, err := n.finishInstall(n.snapshots.newest())
	if err != nil {
		return err
	}
	if newest.meta.Installed {
		if err := n.dropOldLog(newest); err != nil {
			return err
		}
	}
	return n.checkLog(newest)
}

// finishInstall records the snapshot of a store that was installed, where a crash came before that:
// the store itself knows what it stands for. The same makes a snapshot of a store that was
// installed before the node was started for the first time.
func (n *Node) finishInstall(newest drop) (drop, error) {
	installed, applied := n.opts.Store.Installed(), n.opts.Store.Applied()
	if installed <= newest.Index {
		return newest, nil
	}
	// Nothing is applied before the record, so that the store is where the install left it. The
	// mark may be ahead only where the log goes on from there: the store had lost what was not
	// flushed, and was given the state of a node that had lost more.
	goesOn, err := n.goesOn(wal.EntryID{Index: applied.Index, Term: applied.Term})
	if err != nil {
		return drop{}, err
	}
	if applied.Index != installed || n.mark.Index() > installed && !goesOn {
		return drop{}, fmt.Errorf("raft: a snapshot of entry %d was installed, of which nothing is recorded, and the store holds %d, the mark is %d; %s",
			installed, applied.Index, n.mark.Index(), wal.Advice)
	}
	members, err := n.opts.Store.Membership()
	if err != nil {
		return drop{}, err
	}
	if members.Index == 0 {
		return drop{}, fmt.Errorf("raft: the installed store does not know who belongs to the group; %s", wal.Advice)
	}
	if err := n.reachTerm(applied.Term); err != nil {
		return drop{}, err
	}
	newest = drop{EntryID: wal.EntryID{Index: applied.Index, Term: applied.Term}, meta: snapshotMeta{Applied: applied.Index, Installed: true}}
	_, err = n.snapshots.record(&hraft.SnapshotMeta{
		Version: hraft.SnapshotVersionMax, Index: applied.Index, Term: applied.Term,
		Configuration: hraft.DecodeConfiguration(members.Data), ConfigurationIndex: members.Index,
	}, newest.meta)
	return newest, err
}

// goesOn tells whether the log has an entry, by index and term, and all that follow it up to the
// mark.
func (n *Node) goesOn(p wal.EntryID) (bool, error) {
	_, last, err := n.logBounds()
	if err != nil || last < n.mark.Index() || last < p.Index {
		return false, err
	}
	return n.logs.Holds(p)
}

// reachTerm gives a node the term of the store that it was given outside of Raft, as if it had
// heard from that term's leader. One that has a log and no term has lost its vote, and checkTerm
// says so.
func (n *Node) reachTerm(term uint64) error {
	if n.stable.Term() >= term {
		return nil
	}
	_, last, err := n.logBounds()
	if err != nil || n.stable.Term() == 0 && (last > 0 || n.mark.Index() > 0) {
		return err
	}
	return n.stable.SetTerm(term)
}

// dropOldLog drops the log that a node had before a snapshot was installed, where a crash came
// before hashicorp/raft did that.
func (n *Node) dropOldLog(installed drop) error {
	first, last, err := n.logBounds()
	if err != nil || last == 0 || first > installed.Index {
		return err // dropped, or begun again
	}
	agrees, err := n.logs.Holds(installed.EntryID)
	if err != nil || agrees {
		return err
	}
	if n.mark.Index() > installed.Index {
		return fmt.Errorf("raft: the log from %d to %d is not the one that follows the snapshot of entry %d, and entries up to %d were committed; %s",
			first, last, installed.Index, n.mark.Index(), wal.Advice)
	}
	n.opts.Logger.Info("the log from before a snapshot was installed is dropped", "first", first, "last", last, "snapshot", installed.Index)
	if err := n.logs.Drop(first, last); err != nil {
		return fmt.Errorf("raft: drop the log from before the snapshot: %w", err)
	}
	return nil
}

// checkLog compares the log with the store.
func (n *Node) checkLog(newest drop) error {
	first, last, err := n.logBounds()
	if err != nil {
		return err
	}
	end := last
	if last == 0 && newest.meta.Installed {
		end = newest.Index // nothing has come after the snapshot yet
	}
	applied := n.opts.Store.Applied().Index
	if end < applied {
		return fmt.Errorf("%w: the log ends at %d, the store holds everything up to %d; %s", ErrLogBehindStore, end, applied, wal.Advice)
	}
	if end < n.mark.Index() {
		return wal.TooShort(end, n.mark.Index())
	}
	if err := n.checkTerm(last, newest); err != nil {
		return err
	}
	if newest.meta.Applied > applied {
		return fmt.Errorf("raft: store is behind the log: entries up to %d were dropped, the store holds %d; %s", newest.meta.Applied, applied, wal.Advice)
	}
	if first > newest.Index+1 {
		return fmt.Errorf("raft: the log begins at %d, and what is known of the entries before it ends at %d; %s", first, newest.Index, wal.Advice)
	}
	return nil
}

// checkTerm compares the remembered term with that of the log's last entry, and of a snapshot that
// was installed: a node that forgot a term could vote in it again.
func (n *Node) checkTerm(last uint64, newest drop) error {
	term := uint64(0)
	if newest.meta.Installed {
		term = newest.Term
	}
	if last > 0 {
		var l hraft.Log
		if err := n.logs.GetLog(last, &l); err != nil {
			return err
		}
		term = max(term, l.Term)
	}
	if n.stable.Term() < term {
		return fmt.Errorf("raft: the file %s says term %d, the log ends in term %d; %s", wal.VoteFile, n.stable.Term(), term, wal.Advice)
	}
	return nil
}

// bootstrap makes a group of the founders where this node belongs to none.
func (n *Node) bootstrap(trans hraft.Transport) error {
	if len(n.opts.Founders) == 0 {
		return nil
	}
	exists, err := hraft.HasExistingState(n.logs, n.stable, n.snapshots)
	if err != nil {
		return fmt.Errorf("raft: look for a group: %w", err)
	}
	if exists && !n.bootstrapInterrupted() {
		return nil
	}
	if exists {
		if err := n.stable.SetTerm(0); err != nil {
			return fmt.Errorf("raft: make a group: %w", err)
		}
	}
	var founders hraft.Configuration
	for _, m := range n.opts.Founders {
		founders.Servers = append(founders.Servers, hraft.Server{ID: hraft.ServerID(m.ID), Address: hraft.ServerAddress(m.Address)})
	}
	err = hraft.BootstrapCluster(n.config(nil), n.logs, n.stable, n.snapshots, trans, founders)
	if err != nil {
		return fmt.Errorf("raft: make a group: %w", err)
	}
	return nil
}

// bootstrapInterrupted tells a group whose making was cut off between its two writes, first the
// term, then the configuration, so that it could never elect a leader. It is in term 1, has never
// voted and has nothing else: a node that voted may have acknowledged events, and has lost them.
func (n *Node) bootstrapInterrupted() bool {
	last, lastErr := n.logs.LastIndex()
	list, listErr := n.snapshots.List()
	return errors.Join(lastErr, listErr) == nil && n.stable.Term() == 1 && n.stable.VotedTerm() == 0 &&
		last == 0 && len(list) == 0 && n.opts.Store.Applied().Index == 0
}
