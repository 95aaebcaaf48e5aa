package cluster

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/raft"
)

// ErrRootDiffers means that this node has another tree of records than a majority of the voters.
var ErrRootDiffers = errors.New("the tree of records of this node differs from that of its cluster")

// AlertRootDiffers is raised while another voter has another tree of records, and no majority says
// which of the two is wrong.
const AlertRootDiffers = "TREE_ROOT_DIFFERS"

// compareEvery is the time between two comparisons of roots.
const compareEvery = 10 * time.Second

// Tree is the tree of all records, as this node has folded it (TR-1).
type Tree interface {
	// TreeRoot returns the root of the tree when it had so many records, or as it is now if it does
	// not have as many. size is that of the root.
	TreeRoot(most int64) (size int64, root [32]byte, err error)
}

// head is a tree at a size. All nodes have the same root at the same size, or their logs, or what
// they have folded of them, are not the same.
type head struct {
	size int64
	root [32]byte
}

// roots compares this node's tree of records with those of the other voters.
type roots struct {
	// own is the tree as it was at the last comparison, for the other nodes; nil: not read yet.
	own atomic.Pointer[head]
	// differing reports whether another voter has another tree.
	differing atomic.Bool
	found     prometheus.Counter

	// The rest is used by the goroutine that compares, by the Raft IDs of the voters.

	// waiting has what a voter has said and this tree is too small for. A later answer does not
	// replace it: a node that is always behind would compare nothing.
	waiting map[string]head
	// differs has the trees that are not this node's. A tree that has differed once differs at each
	// larger size, unless its node folds it again.
	differs map[string]head
}

func newRoots(reg prometheus.Registerer) *roots {
	r := &roots{waiting: map[string]head{}, differs: map[string]head{}, found: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "cluster", Name: "tree_differs_total",
		Help: "Voters that were found to have another tree of records than this node (TR-1).",
	})}
	reg.MustRegister(r.found)
	return r
}

// compareRoots compares the tree with those of the other voters, at intervals. If a majority of the
// voters has another one than this node, the node stops. If fewer have, no node knows which is
// wrong: then each raises an alert.
func (c *Cluster) compareRoots() {
	for {
		select {
		case <-time.After(compareEvery):
		case <-c.stopping.Done():
			return
		}
		r := c.running.Load()
		c.heard(r)
		err := c.roots.compare(r.tree)
		if err != nil {
			// The projection database is being rebuilt. The next comparison has it again.
			c.log.Info("cannot compare the tree of records; trying again", "err", err)
			continue
		}
		if err := c.judgeRoots(r.node.Members()); err != nil {
			c.opts.Fail(err)
			return
		}
	}
}

// heard asks the other voters for their trees.
func (c *Cluster) heard(r *running) {
	_, answered := c.AskVoters(c.stopping)
	for i := range answered {
		id, about := answered[i].Member.ID, answered[i].About
		if _, waits := c.roots.waiting[id]; !waits && len(about.TreeRoot) == len(head{}.root) && about.TreeSize >= 0 {
			c.roots.waiting[id] = head{about.TreeSize, [32]byte(about.TreeRoot)}
		}
	}
}

// compare reads this node's tree, and compares it with those that are not larger.
func (x *roots) compare(tree Tree) error {
	size, root, err := tree.TreeRoot(math.MaxInt64)
	if err != nil {
		return err
	}
	x.own.Store(&head{size, root})
	for id, theirs := range x.waiting {
		if theirs.size > size {
			continue
		}
		at, mine, err := tree.TreeRoot(theirs.size)
		if err != nil {
			return err
		}
		if at < theirs.size {
			continue // The tree is being made again.
		}
		delete(x.waiting, id)
		if mine == theirs.root {
			delete(x.differs, id)
		} else {
			x.differs[id] = theirs
		}
	}
	return nil
}

// judgeRoots returns the error with which this node must stop, if a majority of the voters has
// another tree.
func (c *Cluster) judgeRoots(members []raft.Member) error {
	x := c.roots
	voters := map[string]bool{}
	for _, m := range members {
		if m.Voter {
			voters[m.ID] = true
		}
	}
	left := func(id string, _ head) bool { return !voters[id] }
	maps.DeleteFunc(x.waiting, left)
	maps.DeleteFunc(x.differs, left)
	var others []string
	for id, theirs := range x.differs {
		others = append(others, fmt.Sprintf("%s (%d records, root %x)", NodeIDOf(id), theirs.size, theirs.root[:8]))
	}
	slices.Sort(others)
	if 2*len(others) > len(voters) {
		x.found.Add(1)
		return fmt.Errorf("cluster: compare the tree of records: %w: it differs at nodes %s. Remove the directory projection "+
			"from this node's data directory and start it again: the tree is then made from the log. If the node stops again, "+
			"its log differs: keep the directory, and replace the node (runlog cluster remove %s, then start it with --join and "+
			"another, new --data-dir)", ErrRootDiffers, strings.Join(others, ", "), c.Identity().NodeID)
	}
	if was := x.differing.Swap(len(others) > 0); !was && len(others) > 0 {
		x.found.Add(1)
		c.log.Error("tree of records differs from that of another voter",
			"alert", AlertRootDiffers, "nodes", strings.Join(others, ", "))
	}
	return nil
}
