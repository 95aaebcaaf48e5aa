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

	"runlog/projector/tree"
	nodev1 "runlog/proto/node/v1"
)

// ErrRootDiffers means that a majority of the voters has one tree of records, and this node
// another.
var ErrRootDiffers = errors.New("the tree of records of this node differs from that of its cluster")

// AlertRootDiffers is raised while this node hears a voter that has another tree of records, and no
// majority has one that is not this node's. Either of the two may be wrong.
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
	// own has the heads of this node's tree, for the other nodes; nil: it is being made.
	own atomic.Pointer[[]head]
	// differing reports whether a voter has another tree.
	differing atomic.Bool
	voters    prometheus.Gauge // that have another tree
	logged    []string         // the voters that the log has last
}

func newRoots(reg prometheus.Registerer) *roots {
	r := &roots{voters: prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "runlog", Subsystem: "cluster", Name: "tree_differs",
		Help: "Voters that have another tree of records than this node, of those that answer (TR-1).",
	})}
	reg.MustRegister(r.voters)
	return r
}

// compareRoots compares the tree with those of the other voters, at intervals. If a majority of the
// voters has one that is not this node's, the node stops. If there is no such majority, it raises
// an alert for each voter that has another one.
func (c *Cluster) compareRoots() {
	for {
		select {
		case <-time.After(compareEvery):
		case <-c.stopping.Done():
			return
		}
		voters, found, err := c.compareNow(c.running.Load().tree)
		if err != nil {
			// The projection database is being rebuilt. The next comparison has it again.
			c.log.Info("cannot compare the tree of records; trying again", "err", err)
			found = &compared{}
		}
		if err := c.judgeRoots(voters, found); err != nil {
			c.opts.Fail(err)
			return
		}
	}
}

// compareNow reads this node's tree for the other nodes, and compares it with theirs.
func (c *Cluster) compareNow(mine Tree) (voters int, found *compared, err error) {
	heads, err := headsOf(mine)
	if err != nil {
		c.roots.own.Store(nil) // A tree that is being made again is not compared as it was.
		return 0, nil, err
	}
	c.roots.own.Store(&heads)
	voters, answered := c.AskVoters(c.stopping)
	found, err = compare(mine, answered)
	return voters, found, err
}

// headsOf returns the tree as it is, and as it was at each size that is left if the last bits of
// the present one are cleared, one after the other. Two sizes with equally many bits have at least
// one of these in common. So nodes that append all the time compare too, except at the moment when
// one of them has a bit more. Nodes of the same size compare everything.
func headsOf(t Tree) (heads []head, err error) {
	h := head{size: math.MaxInt64}
	for h.size > 0 {
		if h.size, h.root, err = t.TreeRoot(h.size); err != nil {
			return nil, err
		}
		if h.size > 0 {
			heads = append(heads, h)
		}
		h.size &= h.size - 1
	}
	return heads, nil
}

// describeTree says which tree this node has.
func (x *roots) describeTree(d *nodev1.DescribeResponse) {
	d.TreeFormat = tree.Format
	if own := x.own.Load(); own != nil {
		for _, h := range *own {
			d.TreeHeads = append(d.TreeHeads, &nodev1.TreeHead{Size: h.size, Root: h.root[:]})
		}
	}
}

// compared is what the answers of voters show.
type compared struct {
	// agree has the names of the voters without a difference, differ those of the others, each with
	// its largest head that is not this node's.
	agree  map[string]bool
	differ map[string]head
	// others has how many voters have a head that is not this node's.
	others map[head]int
}

// compare compares the tree with those in the answers, at each size of theirs that it has. Voters
// whose tree has another format, is being made, or is too large at each size, are left out.
func compare(mine Tree, answered []Surveyed) (*compared, error) {
	found := &compared{agree: map[string]bool{}, differ: map[string]head{}, others: map[head]int{}}
	for i := range answered {
		about, name := answered[i].About, NodeIDOf(answered[i].Member.ID)
		if about.TreeFormat != tree.Format {
			continue
		}
		last := int64(math.MaxInt64)
		for _, h := range about.TreeHeads {
			if h.Size <= 0 || h.Size >= last || len(h.Root) != len(head{}.root) {
				break // No node has sent this.
			}
			last = h.Size
			theirs := head{h.Size, [32]byte(h.Root)}
			size, root, err := mine.TreeRoot(theirs.size)
			if err != nil {
				return nil, err
			}
			if size < theirs.size {
				continue
			}
			if root == theirs.root {
				found.agree[name] = true
				continue
			}
			found.others[theirs]++
			if _, larger := found.differ[name]; !larger {
				found.differ[name] = theirs
			}
		}
	}
	for name := range found.differ {
		delete(found.agree, name)
	}
	return found, nil
}

// judgeRoots returns the error with which this node must stop, if a majority of the voters has one
// tree that is not this node's.
func (c *Cluster) judgeRoots(voters int, found *compared) error {
	x := c.roots
	x.voters.Set(float64(len(found.differ)))
	x.differing.Store(len(found.differ) > 0)
	var differ []string
	names := slices.Sorted(maps.Keys(found.differ))
	for _, name := range names {
		theirs := found.differ[name]
		differ = append(differ, fmt.Sprintf("%s (%d records, root %x)", name, theirs.size, theirs.root[:8]))
	}
	for _, have := range found.others {
		if 2*have > voters {
			return fmt.Errorf("cluster: compare the tree of records: %w: it differs at nodes %s. Remove the directory projection "+
				"from this node's data directory and start it again: the tree is then made from the log. If the node stops again, "+
				"its log differs: keep the directory, and replace the node (runlog cluster remove %s, then start it with --join and "+
				"another, new --data-dir)", ErrRootDiffers, strings.Join(differ, ", "), c.Identity().NodeID)
		}
	}
	if len(names) > 0 && !slices.Equal(names, x.logged) {
		c.log.Error("tree of records differs from that of another voter", "alert", AlertRootDiffers,
			"differ", strings.Join(differ, ", "), "agree", strings.Join(slices.Sorted(maps.Keys(found.agree)), ", "))
	}
	x.logged = names
	return nil
}
