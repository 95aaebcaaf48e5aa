package raft

import (
	"errors"
	"fmt"

	"runlog/raft/internal/wal"
	"runlog/storage"
)

// damage returns the error about a file or directory below the node's directory.
func (n *Node) damage(name, format string, args ...any) error {
	return storage.Damage(fmt.Errorf("raft: %s: %s", n.opts.FS.PathJoin(n.opts.Dir, name), fmt.Sprintf(format, args...)))
}

// alone reports whether this node is the only member of its group, according to its log, which is
// open and agrees with the store; or whether Recover makes it the only one.
func (n *Node) alone() (bool, error) {
	if n.sole {
		return true, nil
	}
	s, err := n.standing()
	return err == nil && len(s.Members) == 1 && s.Members[0].ID == n.opts.NodeID, err
}

// renewMark makes a lost commit mark again, if this node is the only member. The mark tells whether
// the log has lost its end. Such a node could elect a leader that lacks what the others have. An
// only member has no others, and its log agrees with its store.
func (n *Node) renewMark(lost error) error {
	alone, err := n.alone()
	if err != nil {
		return err
	}
	if !alone {
		return lost
	}
	if n.mark, err = wal.RenewMark(n.opts.FS, n.opts.Dir); err != nil {
		return err
	}
	n.opts.Logger.Warn("commit mark made again from the log of an only member", "err", lost)
	return n.mark.Advance(n.opts.Store.Applied().Index)
}

// renewVote sets the term of an only member whose vote is lost: it votes for no other node. A
// member of several could vote twice in one term.
func (n *Node) renewVote(term uint64, lost error) error {
	alone, err := n.alone()
	if err != nil {
		return err
	}
	if !alone {
		return lost
	}
	n.opts.Logger.Warn("term and vote made again from the log of an only member", "term", term, "err", lost)
	return errors.Join(n.witness.ForgetLeader(), n.stable.SetTerm(term))
}
