package transport

import (
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"
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
func knowsOf(t *testing.T, id string, first hraft.Configuration, later ...hraft.Configuration) *plainNode {
	t.Helper()
	n := newPlainNode(t, id, first, 50*time.Millisecond)
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
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, r := range rafts {
			if r.State() == hraft.Leader && r.Apply([]byte("committed"), patience).Error() == nil {
				return
			}
		}
	}
	t.Fatalf("%d nodes, which are a majority, elect nobody", len(nodes))
}

// TestPromotedIsElected: a leader is lost permanently right after it has promoted a node. The
// promoted node has the change and makes a majority with the leader, so it is committed; the third
// node does not have it yet. The two remaining nodes are a majority of three, and must continue
// (D4).
func TestPromotedIsElected(t *testing.T) {
	t.Parallel()
	before := votersIn([]hraft.ServerID{"lost", "behind"}, "promoted")
	after := votersIn([]hraft.ServerID{"lost", "behind", "promoted"})
	expectLeader(t, knowsOf(t, "behind", before), knowsOf(t, "promoted", before, after))
}

// TestPromotedWithoutKnowing: of two nodes promoted in sequence, the first lacks its own promotion,
// and two of the three others are lost. The second needs the first's vote, though the first is no
// voter in its own log.
func TestPromotedWithoutKnowing(t *testing.T) {
	t.Parallel()
	before := votersIn([]hraft.ServerID{"lost", "lost too", "old"}, "first", "second")
	one := votersIn([]hraft.ServerID{"lost", "lost too", "old", "first"}, "second")
	both := votersIn([]hraft.ServerID{"lost", "lost too", "old", "first", "second"})
	expectLeader(t, knowsOf(t, "old", before, one), knowsOf(t, "first", before), knowsOf(t, "second", before, one, both))
}
