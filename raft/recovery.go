package raft

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/wal"
	"runlog/storage"
)

// Made reports whether Make was called for a node's directory.
func Made(disk vfs.FS, dir string) (bool, error) { return wal.Made(disk, dir) }

// Make creates the directory of a node, with a commit mark in it. If the mark is missing later, the
// node has lost its log and its vote, even if it was new.
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

// reconcile completes an install that a crash interrupted, and compares log, store and marks before
// this node may vote (D2, D5). lostVote is the reason why term and vote cannot be read.
func (n *Node) reconcile(lostVote error) error {
	newest, err := n.finishInstall(n.snapshots.newest(), lostVote)
	if err != nil {
		return err
	}
	if newest.meta.Installed {
		if err := n.dropOldLog(newest); err != nil {
			return err
		}
		n.logs.BeginAfter(newest.EntryID)
	}
	return n.checkLog(newest, lostVote)
}

// finishInstall records the snapshot of an installed store, if a crash came before the record: the
// store itself has the snapshot's position. The same step records a store that was installed before
// the node's first start.
func (n *Node) finishInstall(newest drop, lostVote error) (drop, error) {
	installed, applied := n.opts.Store.Installed(), n.opts.Store.Applied()
	if installed <= newest.Index {
		return newest, nil
	}
	// Nothing is applied before the record, so the store is still at the installed position. The
	// mark may be ahead only if the log continues from there: the store had lost unflushed entries,
	// and got the state of a node that had lost more.
	goesOn, err := n.goesOn(wal.EntryID{Index: applied.Index, Term: applied.Term})
	if err != nil {
		return drop{}, err
	}
	if applied.Index != installed || n.mark.Index() > installed && !goesOn {
		return drop{}, n.damage(snapshotsFile,
			"installed snapshot of entry %d has no record; the store is at %d, the commit mark at %d",
			installed, applied.Index, n.mark.Index())
	}
	members, err := n.opts.Store.Membership()
	if err != nil {
		return drop{}, err
	}
	if members.Index == 0 {
		return drop{}, storage.Damage(errors.New("raft: the installed store has no membership"))
	}
	configuration, err := decodeConfiguration(members.Index, members.Data)
	if err != nil {
		return drop{}, err
	}
	if err := n.reachTerm(applied.Term, newest, lostVote); err != nil {
		return drop{}, err
	}
	newest = drop{
		EntryID: wal.EntryID{Index: applied.Index, Term: applied.Term},
		meta:    snapshotMeta{Applied: applied.Index, Installed: true},
	}
	_, err = n.snapshots.record(&hraft.SnapshotMeta{
		Version: hraft.SnapshotVersionMax, Index: applied.Index, Term: applied.Term,
		Configuration: configuration, ConfigurationIndex: members.Index,
	}, newest.meta)
	return newest, err
}

// goesOn reports whether the log has an entry, by index and term, and all later entries up to the
// mark.
func (n *Node) goesOn(p wal.EntryID) (bool, error) {
	_, last, err := n.logBounds()
	if err != nil || last < n.mark.Index() || last < p.Index {
		return false, err
	}
	return n.logs.Holds(p)
}

// reachTerm gives a node the term of a store that it received outside of Raft, as a message of that
// term's leader would. A node that has lost its vote is refused before the install is recorded: the
// new term would hide the loss, and the record would be of a later term than a vote that is put
// back. Recover continues; checkTerm renews the vote.
func (n *Node) reachTerm(term uint64, newest drop, lostVote error) error {
	_, last, err := n.logBounds()
	if err != nil {
		return err
	}
	_, lostVote, err = n.compareTerm(last, newest, lostVote)
	switch {
	case err != nil:
		return err
	case lostVote != nil && n.sole:
		return nil
	case lostVote != nil:
		return lostVote
	case n.stable.Term() >= term:
		return nil
	}
	return n.stable.SetTerm(term)
}

// dropOldLog drops the log from before an installed snapshot, if a crash came before hashicorp/raft
// did.
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
		return n.damage("wal",
			"the log from %d to %d does not follow the snapshot of entry %d, and entries up to %d were committed",
			first, last, installed.Index, n.mark.Index())
	}
	n.opts.Logger.Info("dropping the log from before an installed snapshot",
		"first", first, "last", last, "snapshot", installed.Index)
	if err := n.logs.Drop(first, last); err != nil {
		return fmt.Errorf("raft: drop the log from before the snapshot: %w", err)
	}
	return nil
}

// checkLog compares the log with the store.
func (n *Node) checkLog(newest drop, lostVote error) error {
	first, last, err := n.logBounds()
	if err != nil {
		return err
	}
	end := last
	if last == 0 && newest.meta.Installed {
		end = newest.Index // no entry after the snapshot yet
	}
	applied := n.opts.Store.Applied().Index
	if end < applied {
		return storage.Damage(fmt.Errorf("%w: %s: the log ends at %d, the store at %d",
			ErrLogBehindStore, n.opts.FS.PathJoin(n.opts.Dir, "wal"), end, applied))
	}
	if end < n.mark.Index() {
		return wal.TooShort(end, n.mark.Index())
	}
	if err := n.checkTerm(last, newest, lostVote); err != nil {
		return err
	}
	if newest.meta.Applied > applied {
		return storage.Damage(fmt.Errorf("raft: store is behind the log: entries up to %d were dropped, the store holds %d",
			newest.meta.Applied, applied))
	}
	if first > newest.Index+1 {
		return n.damage(snapshotsFile, "the log begins at %d, the newest snapshot ends at %d", first, newest.Index)
	}
	return nil
}

// checkTerm refuses a node whose vote is lost, or renews the vote of an only member.
func (n *Node) checkTerm(last uint64, newest drop, lostVote error) error {
	term, lostVote, err := n.compareTerm(last, newest, lostVote)
	if err != nil || lostVote == nil {
		return err
	}
	return n.renewVote(term, lostVote)
}

// compareTerm compares the stored term with the term of the log's last entry, and of an installed
// snapshot: a node that lost a term could vote in it again. It returns the later of these terms.
func (n *Node) compareTerm(last uint64, newest drop, lostVote error) (term uint64, lost, err error) {
	if n.mark.Index() > 0 {
		term = 1 // at least: the log had an entry
	}
	if newest.meta.Installed {
		term = newest.Term
	}
	if last > 0 {
		var l hraft.Log
		if err := n.logs.GetLog(last, &l); err != nil {
			return 0, nil, err
		}
		term = max(term, l.Term)
	}
	if n.stable.Term() < term && lostVote == nil {
		lostVote = n.damage(wal.VoteFile, "it says term %d, the log ends in term %d", n.stable.Term(), term)
	}
	return term, lostVote, nil
}

// bootstrap creates a group of the founders if this node belongs to none.
func (n *Node) bootstrap(trans hraft.Transport) error {
	if len(n.opts.Founders) == 0 {
		return nil
	}
	exists, err := hraft.HasExistingState(n.logs, n.stable, n.snapshots)
	if err != nil {
		return fmt.Errorf("raft: read existing state: %w", err)
	}
	if exists && !n.bootstrapInterrupted() {
		return nil
	}
	if exists {
		if err := n.stable.SetTerm(0); err != nil {
			return fmt.Errorf("raft: bootstrap group: %w", err)
		}
	}
	var founders hraft.Configuration
	for _, m := range n.opts.Founders {
		founders.Servers = append(founders.Servers,
			hraft.Server{ID: hraft.ServerID(m.ID), Address: hraft.ServerAddress(m.Address)})
	}
	err = hraft.BootstrapCluster(n.config(nil), n.logs, n.stable, n.snapshots, trans, founders)
	if err != nil {
		return fmt.Errorf("raft: bootstrap group: %w", err)
	}
	return nil
}

// bootstrapInterrupted reports a group whose creation a crash interrupted between its two writes,
// the term and the configuration. Such a group can never elect a leader. The node is in term 1, has
// never voted and has no other state. A node that voted may have acknowledged events, and has lost
// them.
func (n *Node) bootstrapInterrupted() bool {
	last, lastErr := n.logs.LastIndex()
	list, listErr := n.snapshots.List()
	return errors.Join(lastErr, listErr) == nil && n.stable.Term() == 1 && n.stable.VotedTerm() == 0 &&
		last == 0 && len(list) == 0 && n.opts.Store.Applied().Index == 0
}
