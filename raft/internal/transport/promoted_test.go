package transport

import (
	"fmt"
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"

	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// votersIn returns a configuration in which some of the nodes vote, and the others do not.
func votersIn(voters []hraft.ServerID, others ...hraft.ServerID) (c hraft.Configuration) {
	for _, id := range voters {
		c.Servers = append(c.Servers, hraft.Server{ID: id, Address: hraft.ServerAddress(id)})
	}
	for _, id := range others {
		c.Servers = append(c.Servers, hraft.Server{ID: id, Address: hraft.ServerAddress(id), Suffrage: hraft.Nonvoter})
	}
	return c
}

// knowsOf returns a node whose log has a configuration, and later ones.
func knowsOf(t *testing.T, hosts *network.Network, id string, first hraft.Configuration, later ...hraft.Configuration) *plainNode {
	t.Helper()
	n := newPlainNode(t, hosts, id, first, 50*time.Millisecond)
	for i, c := range later {
		if err := n.log.StoreLog(&hraft.Log{Index: uint64(2 + i), Term: 5, Type: hraft.LogConfiguration, Data: hraft.EncodeConfiguration(c)}); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// expectLeader starts nodes that reach each other, and checks that one is elected and commits.
func expectLeader(t *testing.T, nodes ...*plainNode) {
	t.Helper()
	var rafts []*hraft.Raft
	for _, n := range nodes {
		for _, other := range nodes {
			n.reach(other)
		}
	}
	for _, n := range nodes {
		rafts = append(rafts, n.start(t, n.trans))
	}
	bubble.Until(t, fmt.Sprintf("%d nodes, which are a majority, elect one", len(nodes)), func() bool {
		for _, r := range rafts {
			if r.State() == hraft.Leader && r.Apply([]byte("committed"), bubble.Limit).Error() == nil {
				return true
			}
		}
		return false
	})
}

// TestPromotedIsElected: a leader is lost permanently right after it has promoted a node. The
// promoted node has the change and makes a majority with the leader, so it is committed; the third
// node does not have it yet. The two remaining nodes are a majority of three, and must continue
// (D4).
func TestPromotedIsElected(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		before := votersIn([]hraft.ServerID{"lost", "behind"}, "promoted")
		after := votersIn([]hraft.ServerID{"lost", "behind", "promoted"})
		hosts := network.New(1)
		expectLeader(t, knowsOf(t, hosts, "behind", before), knowsOf(t, hosts, "promoted", before, after))
	})
}

// TestPromotedWithoutKnowing: of two nodes promoted in sequence, the first lacks its own promotion,
// and two of the three others are lost. The second needs the first's vote, though the first is no
// voter in its own log.
func TestPromotedWithoutKnowing(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		before := votersIn([]hraft.ServerID{"lost", "lost too", "old"}, "first", "second")
		one := votersIn([]hraft.ServerID{"lost", "lost too", "old", "first"}, "second")
		both := votersIn([]hraft.ServerID{"lost", "lost too", "old", "first", "second"})
		hosts := network.New(1)
		expectLeader(t, knowsOf(t, hosts, "old", before, one), knowsOf(t, hosts, "first", before), knowsOf(t, hosts, "second", before, one, both))
	})
}
