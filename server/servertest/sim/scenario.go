package sim

import (
	"context"
	"math/rand/v2"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// Scenarios. A scenario is a short sequence of faults, and each step waits for what the cluster
// does. It leads to a state that independent faults rarely lead to.
const (
	// Deposed: a leader cannot reach a follower and retries. Another leader takes over and changes
	// the old leader's log. The next retry reaches the follower, which the new leader cannot reach.
	Deposed Kind = "deposed"
	// StaleTail: a leader is cut off and its log gets entries that nobody else has. The others
	// elect a leader. The new leader reaches the old one when it has committed other entries.
	StaleTail Kind = "stale-tail"
)

// Scenarios lists all of them.
func Scenarios() []Kind { return []Kind{Deposed, StaleTail} }

const (
	// scenarioTime is the least time from the begin of one scenario to that of the next.
	scenarioTime = 7 * time.Second
	// scenarioPatience is how long one step waits for the cluster. After that the scenario ends.
	scenarioPatience = 5 * time.Second
	scenarioPoll     = 5 * time.Millisecond
	// retryPatience is how long a scenario waits for a retry, which may never come.
	retryPatience = 1500 * time.Millisecond
)

// scenario is one that is played.
type scenario struct {
	world *world
	rng   *rand.Rand
	// leader is the node that leads when the scenario begins. The others are in the plan's order.
	leader *node
	others []*node
	// parted are the pairs of nodes that refuse each other's connections.
	parted map[[2]*node]struct{}
}

// stage plays a scenario and mends its faults. Only one is played at a time. A scenario that finds
// no leader, or whose cluster does not do what it waits for, does not count.
func (w *world) stage(f Fault, rng *rand.Rand) {
	w.staging.Lock()
	defer w.staging.Unlock()
	s := &scenario{world: w, rng: rng, parted: map[[2]*node]struct{}{}}
	defer s.joinAll()
	if !s.cast(f.Nodes) {
		return
	}
	play := s.deposed
	if f.Kind == StaleTail {
		play = s.staleTail
	}
	if play() {
		w.count(f.Kind)
	}
}

// cast waits for a leader, and gives out the roles.
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

// await waits until something is so. It tells whether it is.
func (s *scenario) await(so func() bool) bool { return await(scenarioPatience, so) }

func await(patience time.Duration, so func() bool) bool {
	for end := time.Now().Add(patience); !so(); time.Sleep(scenarioPoll) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// awaitRetry waits until a node tries to connect to another one, or has not for a while.
func (s *scenario) awaitRetry(from, to *node) {
	before := s.world.net.attempts(from.host, to.host)
	await(retryPatience, func() bool { return s.world.net.attempts(from.host, to.host) > before })
}

// awaitSuccessor waits until a node leads that did not when the scenario began.
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

// pause waits for a time that is drawn.
func (s *scenario) pause(least, most time.Duration) {
	time.Sleep(least + time.Duration(s.rng.Int64N(int64(most-least))))
}

// part lets a node and each of the others refuse connections of one another until they are joined.
// A retry then fails at once. On a way that is only cut, the first attempt waits for its timeout.
func (s *scenario) part(n *node, others ...*node) {
	for _, o := range others {
		if o != n {
			s.world.net.refuse(n.host, o.host)
			s.parted[[2]*node{n, o}] = struct{}{}
		}
	}
}

// join lets two nodes reach each other again.
func (s *scenario) join(a, b *node) {
	for _, pair := range [][2]*node{{a, b}, {b, a}} {
		if _, yes := s.parted[pair]; yes {
			s.world.net.admit(a.host, b.host)
			delete(s.parted, pair)
		}
	}
}

func (s *scenario) joinAll() {
	for pair := range s.parted {
		s.join(pair[0], pair[1])
	}
}

// transfer asks the leader to hand the leadership to another node.
func (s *scenario) transfer(to *node) {
	o := s.world.operator
	o.once(Fault{Kind: Transfer, Nodes: []int{s.leader.index}}, func(ctx context.Context, via runlogv1.ClusterServiceClient, _ runlogv1.AuditServiceClient) error {
		_, err := via.TransferLeadership(ctx, &runlogv1.TransferLeadershipRequest{NodeId: to.host})
		return err
	})
}

// deposed plays Deposed. A transfer keeps the follower's term as it is: the old leader's vote is
// enough for the successor. At last the follower loses its power, or its process, before anybody
// else reaches it.
func (s *scenario) deposed() bool {
	if len(s.others) < 2 {
		return false
	}
	successor, follower := s.others[0], s.others[1]
	s.part(follower, s.world.nodes...)
	s.pause(300*time.Millisecond, time.Second)
	s.transfer(successor)
	if s.awaitSuccessor() == nil {
		return false
	}
	// A retry that fails now is followed by another one, which reads the log again.
	s.pause(300*time.Millisecond, 700*time.Millisecond)
	s.join(s.leader, follower)
	s.pause(400*time.Millisecond, time.Second)
	s.kill(follower)
	s.pause(200*time.Millisecond, 800*time.Millisecond)
	return true
}

// staleTail plays StaleTail.
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

// kill kills a node's process, or takes the power of its machine, and starts it again.
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
