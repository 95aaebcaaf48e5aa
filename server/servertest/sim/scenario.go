package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Scenarios: short sequences of faults whose steps wait for the cluster.
const (
	// Deposed: a leader cannot reach a follower and retries. Another leader takes over and changes
	// the old leader's log. The next retry reaches the follower, which the new leader cannot reach.
	Deposed Kind = "deposed"
	// StaleTail: a leader is cut off, and its log gets entries that no other node has. The others
	// elect a leader, which commits other entries. Then the two leaders reach each other.
	StaleTail Kind = "stale-tail"
	// OlderCopy: the directory of a node is put back from an older copy. Of the nodes that it
	// reaches, some remember more.
	OlderCopy Kind = "older-copy"
)

// Scenarios lists all of them.
func Scenarios() []Kind { return []Kind{Deposed, StaleTail, OlderCopy} }

const (
	// scenarioTime is the least time between the starts of two scenarios.
	scenarioTime = 7 * time.Second
	// scenarioPatience is how long one step waits for the cluster. After that the scenario ends.
	scenarioPatience = 5 * time.Second
	scenarioPoll     = 5 * time.Millisecond
)

// scenario is the state of one scenario while it runs.
type scenario struct {
	world *world
	rng   *rand.Rand
	// leader is the node that leads when the scenario begins.
	leader *node
	// others are the other nodes, in the plan's order.
	others []*node
	// parted are the pairs of nodes that refuse each other's connections.
	parted map[[2]*node]struct{}
}

// stage runs a scenario and ends its faults. Scenarios run one at a time. A scenario does not
// count if it finds no leader, or if a step waits in vain.
func (w *world) stage(f Fault, rng *rand.Rand) {
	if !w.take(w.staging) {
		return
	}
	defer w.staging.pass()
	s := &scenario{world: w, rng: rng, parted: map[[2]*node]struct{}{}}
	defer s.joinAll()
	if !s.cast(f.Nodes) {
		return
	}
	play := map[Kind]func() bool{Deposed: s.deposed, StaleTail: s.staleTail, OlderCopy: s.olderCopy}
	if play[f.Kind]() {
		w.count(f.Kind)
	}
}

// cast waits for a leader and assigns the roles.
func (s *scenario) cast(order []int) bool {
	if !s.await(func() bool { s.leader = s.world.leading(); return s.leader != nil }) {
		return false
	}
	for _, i := range order {
		if n := s.world.nodes[i]; n != s.leader {
			s.others = append(s.others, n)
		}
	}
	return true
}

// await waits for a condition for at most scenarioPatience. It reports whether the condition holds.
func (s *scenario) await(holds func() bool) bool {
	for end := time.Now().Add(scenarioPatience); !holds(); time.Sleep(scenarioPoll) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// awaitSuccessor waits until another node leads than when the scenario began.
func (s *scenario) awaitSuccessor() (successor *node) {
	s.await(func() bool {
		successor = s.world.leading()
		if successor == s.leader {
			successor = nil
		}
		return successor != nil
	})
	return successor
}

// pause sleeps for a drawn time.
func (s *scenario) pause(least, most time.Duration) {
	time.Sleep(least + time.Duration(s.rng.Int64N(int64(most-least))))
}

// part lets a node and each of the others refuse connections of each other until join. A retry then
// fails at once; on a way that is cut, an attempt waits for its timeout.
func (s *scenario) part(n *node, others ...*node) {
	for _, o := range others {
		if o != n {
			s.world.net.Refuse(n.host, o.host)
			s.parted[[2]*node{n, o}] = struct{}{}
		}
	}
}

// join lets two nodes reach each other again.
func (s *scenario) join(a, b *node) {
	for _, pair := range [][2]*node{{a, b}, {b, a}} {
		if _, yes := s.parted[pair]; yes {
			s.world.net.Admit(a.host, b.host)
			delete(s.parted, pair)
		}
	}
}

func (s *scenario) joinAll() {
	for pair := range s.parted {
		s.join(pair[0], pair[1])
	}
}

// deposed runs Deposed. In the end the follower is restarted before another node than the old
// leader reaches it: the start checks its log against its term.
func (s *scenario) deposed() bool {
	if len(s.others) < 2 {
		return false
	}
	successor, follower := s.others[0], s.others[1]
	s.part(follower, s.world.nodes...)
	s.pause(300*time.Millisecond, time.Second)
	if !s.depose(successor, follower) {
		return false
	}
	// After a retry that fails now, the next one reads the log again.
	s.pause(300*time.Millisecond, 700*time.Millisecond)
	s.join(s.leader, follower)
	s.pause(400*time.Millisecond, time.Second)
	s.kill(follower)
	s.pause(200*time.Millisecond, 800*time.Millisecond)
	return true
}

// depose replaces the leader without the follower, so that the follower's term stays. With three
// nodes that needs the old leader's vote, and a transfer. With more nodes the others can be a
// majority: they may elect a leader while the old one is cut off with entries of its own, which its
// successor then replaces.
func (s *scenario) depose(successor, follower *node) bool {
	rest := slices.DeleteFunc(slices.Clone(s.others), func(n *node) bool { return n == follower })
	if len(rest) <= len(s.world.nodes)/2 || s.rng.IntN(2) == 0 {
		s.world.operator.transfer(Fault{Kind: Transfer, Nodes: []int{s.leader.index}}, successor.host)
		return s.awaitSuccessor() != nil
	}
	s.part(s.leader, rest...)
	elected := s.awaitSuccessor()
	if elected == nil {
		return false
	}
	s.join(s.leader, elected)
	return true
}

// staleTail runs StaleTail.
func (s *scenario) staleTail() bool {
	if len(s.others) < 2 {
		return false
	}
	s.part(s.leader, s.others...)
	successor := s.awaitSuccessor()
	if successor == nil {
		return false
	}
	s.pause(100*time.Millisecond, 2*time.Second)
	s.join(s.leader, successor)
	s.pause(time.Second, 3*time.Second)
	return true
}

// kill kills a node's process, or takes its power, and starts the node again.
func (s *scenario) kill(n *node) {
	left := []int{killed, 0, 100}[s.rng.IntN(3)]
	if n.powerOff(nil, s.rng, left) {
		kind := PowerLoss
		if left == killed {
			kind = Kill
		}
		s.world.count(kind)
	}
	s.pause(10*time.Millisecond, 500*time.Millisecond)
	n.powerOn()
}
