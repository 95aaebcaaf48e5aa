package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"runlog/testbed/network"
)

// play starts each fault of the plan at its time, and returns when the last has ended.
func (w *world) play() {
	var faults sync.WaitGroup
	began := time.Now()
	for i, f := range w.plan {
		if !w.wanted(i) {
			continue
		}
		time.Sleep(time.Until(began.Add(f.At)))
		w.log.Info("fault", "no", i, "what", f.String())
		faults.Go(func() { w.do(f) })
	}
	faults.Wait()
}

// do makes one fault happen, and ends it.
func (w *world) do(f Fault) {
	rng := rand.New(rand.NewPCG(f.Seed, 1))
	switch f.Kind {
	case PowerLoss, Kill:
		w.turnOff(f, rng)
	case BitRot:
		w.rot(f, rng)
	case CrashPoint:
		w.crash(f, rng)
	case Restart:
		w.restart(f)
	case Split, OneWay, Partial, ClientCut:
		w.cutWays(f)
	case SlowLink, ClientLag:
		for _, l := range w.ways(f) {
			w.net.Delay(l, time.Duration(f.Size))
			defer w.net.Delay(l, -time.Duration(f.Size))
		}
		w.count(f.Kind)
		time.Sleep(f.For)
	case Reset, LateReset:
		if w.net.ResetBetween(w.host(f.Nodes[0]), w.host(f.Nodes[1]), f.Kind == LateReset) > 0 {
			w.count(f.Kind)
		}
	case ClientLost:
		if w.net.ResetBetween(clientHost(f.Client), w.host(f.Nodes[0]), true) > 0 {
			w.count(f.Kind)
		}
	case ClockJump:
		w.nodes[f.Nodes[0]].clock.jump(time.Duration(f.Size))
		w.count(f.Kind)
	case ClockFar:
		w.misset(f)
	case SlowDisk, FullDisk, SyncError:
		w.hurtDisk(f)
	case Transfer:
		w.operator.transfer(f, "")
	case RotateKey:
		w.operator.rotateKey(f)
	case Replace:
		w.replace(f)
	case Deposed, StaleTail, OlderCopy:
		w.stage(f, rng)
	}
}

func (w *world) host(i int) string { return w.nodes[i].host }

func clientHost(i int) string { return fmt.Sprintf("client-%d", i) }

// turnOff takes the power of nodes at one instant, and powers them on again one by one.
func (w *world) turnOff(f Fault, rng *rand.Rand) {
	var off []*node
	for _, i := range f.Nodes {
		if n := w.nodes[i]; n.powerOff(nil, rng, int(f.Size)) {
			off = append(off, n)
			w.count(f.Kind)
		}
	}
	for _, n := range off {
		time.Sleep(f.For / time.Duration(len(off)))
		n.powerOn()
	}
}

// powerAfter takes the power of every second node whose process was killed, soon after its restart.
// With the power goes what the killed process had written and not synced.
func (w *world) powerAfter(n *node, rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		return
	}
	select {
	case <-time.After(time.Duration(rng.Int64N(int64(2 * time.Second)))):
	case <-w.healed:
		return
	}
	if n.powerOff(nil, rng, 0) {
		w.count(PowerLoss)
		time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
		n.powerOn()
	}
}

// restart shuts a node down as an operator does, and starts it again.
func (w *world) restart(f Fault) {
	n := w.nodes[f.Nodes[0]]
	if n.stop() {
		w.count(f.Kind)
		time.Sleep(f.For)
		n.powerOn()
	}
}

// ways are the links that a fault of the network hits.
func (w *world) ways(f Fault) []network.Link {
	both := func(a, b string) []network.Link { return []network.Link{{From: a, To: b}, {From: b, To: a}} }
	switch f.Kind {
	case Split:
		var all []network.Link
		for i, n := range w.nodes {
			for j, m := range w.nodes {
				if slices.Contains(f.Nodes, i) && !slices.Contains(f.Nodes, j) {
					all = append(all, both(n.host, m.host)...)
				}
			}
		}
		return all
	case Partial:
		return both(w.host(f.Nodes[0]), w.host(f.Nodes[1]))
	case ClientCut:
		return both(clientHost(f.Client), w.host(f.Nodes[0]))
	case ClientLag:
		return []network.Link{{From: w.host(f.Nodes[0]), To: clientHost(f.Client)}}
	default:
		return []network.Link{{From: w.host(f.Nodes[0]), To: w.host(f.Nodes[1])}}
	}
}

func (w *world) cutWays(f Fault) {
	ways := w.ways(f)
	for _, l := range ways {
		w.net.Block(l)
	}
	w.count(f.Kind)
	time.Sleep(f.For)
	for _, l := range ways {
		w.net.Open(l)
	}
}

// misset lets the clock of one node be wrong by hours for a while. At most one clock is at a time:
// a majority of wrong clocks is right.
func (w *world) misset(f Fault) {
	if !w.take(w.missetting) {
		return
	}
	defer w.missetting.pass()
	c := w.nodes[f.Nodes[0]].clock
	c.jump(time.Duration(f.Size))
	w.count(f.Kind)
	time.Sleep(f.For)
	c.jump(-time.Duration(f.Size))
	time.Sleep(clocksCompared)
}

// clocksCompared is more than the time until a leader compares its clock with the others' again.
const clocksCompared = 2 * time.Second

// hurtDisk lets a disk fail for a while. A node that gets an error stops itself, and finds a good
// disk when it starts again.
func (w *world) hurtDisk(f Fault) {
	n := w.nodes[f.Nodes[0]]
	n.mu.Lock()
	d := n.disk
	n.mu.Unlock()
	switch f.Kind {
	case SlowDisk:
		d.latency.Store(f.Size)
		defer d.latency.Store(0)
	case FullDisk:
		d.full.Store(true)
		defer d.full.Store(false)
	default:
		d.syncFails.Store(true)
		defer d.syncFails.Store(false)
	}
	time.Sleep(f.For)
	if d.hit.sync.Load()+d.hit.full.Load()+d.hit.slow.Load() > 0 {
		w.count(f.Kind)
	}
}

// allServe tells whether every node serves.
func (w *world) allServe() bool {
	return !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.serving() == nil })
}

// rot flips a bit on the disk of a node that is off, lets the node run with it for a while, and
// flips it back, as if the disk was repaired. It does nothing unless all nodes serve: no other node
// has what the bad disk had.
func (w *world) rot(f Fault, rng *rand.Rand) {
	n := w.nodes[f.Nodes[0]]
	if !w.take(w.rotting) {
		return
	}
	defer w.rotting.pass()
	if !w.allServe() || !n.powerOff(nil, rng, 100) {
		return
	}
	n.mu.Lock()
	spot, found := n.disk.rot(rng)
	n.mu.Unlock()
	if found {
		w.note(n.host, "bit flipped", "file", spot.path, "at", spot.at)
		w.count(BitRot)
	}
	n.powerOn()
	time.Sleep(f.For)
	n.powerOff(nil, rng, 100)
	n.mu.Lock()
	n.disk.repair(spot)
	n.mu.Unlock()
	n.powerOn()
}
