//go:build unix

package procs

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Play starts each fault of a plan at its time, or when no other fault hits its nodes. It returns
// when the last has ended, with how often each kind happened.
func (c *Cluster) Play(plan []Fault) map[Kind]int {
	var faults sync.WaitGroup
	var mu sync.Mutex
	happened := map[Kind]int{}
	for _, f := range plan {
		Pass(f.After)
		faults.Go(func() {
			if c.do(f) {
				mu.Lock()
				defer mu.Unlock()
				happened[f.Kind]++
			}
		})
	}
	faults.Wait()
	return happened
}

// Pass lets real time pass. A plan says how long a fault lasts, and at which moment between two
// events a process is killed. The kernel and other processes have no other clock.
func Pass(d time.Duration) { time.Sleep(d) }

// do makes one fault happen, and ends it.
func (c *Cluster) do(f Fault) bool {
	order := c.order(f)
	rng := rand.New(rand.NewPCG(f.Seed, 1))
	switch f.Kind {
	case Kill, KillAgain:
		c.kill(f, order[:1], rng)
	case KillTwo:
		c.kill(f, order[:2], rng)
	case KillAll:
		c.kill(f, order, rng)
	case Pause:
		c.pause(f, order[:1])
	case PauseTwo:
		c.pause(f, order[:2])
	case Restart:
		defer hold(order[:1])()
		order[0].Stop()
		Pass(f.For)
		order[0].Start()
	case Transfer:
		return c.Transfer(nil) == nil
	default:
		heal := c.opts.Network.cut(f, c.index(order[0]), c.index(order[1]))
		Pass(f.For)
		heal()
	}
	return true
}

// order returns the nodes, with those first that the fault hits.
func (c *Cluster) order(f Fault) []*Node {
	var order []*Node
	for _, i := range f.Nodes {
		order = append(order, c.nodes[i])
	}
	if leader := c.leads(); f.Leader && leader != nil {
		i := slices.Index(order, leader)
		order[0], order[i] = order[i], order[0]
	}
	return order
}

// hold waits until no other fault hits the nodes, and reserves them until the caller calls the
// returned function.
func hold(nodes []*Node) (release func()) {
	sorted := slices.SortedFunc(slices.Values(nodes), func(a, b *Node) int {
		if a.Name < b.Name { // one order, or two faults would wait for each other
			return -1
		}
		return 1
	})
	for _, n := range sorted {
		n.busy.Lock()
	}
	return func() {
		for _, n := range sorted {
			n.busy.Unlock()
		}
	}
}

// kill kills nodes at once, and starts them again one after another.
func (c *Cluster) kill(f Fault, nodes []*Node, rng *rand.Rand) {
	defer hold(nodes)()
	var killed sync.WaitGroup
	for _, n := range nodes {
		killed.Go(n.Kill)
	}
	killed.Wait()
	for _, n := range nodes {
		Pass(f.For / time.Duration(len(nodes)))
		n.Start()
	}
	if f.Kind == KillAgain {
		Pass(time.Duration(rng.IntN(300)) * time.Millisecond)
		nodes[0].Kill()
		nodes[0].Start()
	}
}

// pause stops processes, and continues them later.
func (c *Cluster) pause(f Fault, nodes []*Node) {
	defer hold(nodes)()
	for _, n := range nodes {
		n.Pause()
	}
	Pass(f.For)
	for _, n := range nodes {
		n.Resume()
	}
}
