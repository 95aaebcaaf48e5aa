package procs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"runlog/testbed/seed"
)

// Network gives each node a network namespace of its own. The nodes reach each other over a bridge.
// The test reaches each node over a link that is never cut.
type Network struct {
	t     testing.TB
	id    string // process id and number, unique on this machine
	block int    // third octet of its addresses
	nodes int

	mu   sync.Mutex
	lost map[way]int // how many faults drop what goes there
	down map[int]int // how many have the link of a node down
}

// way is one direction between two nodes, and the place where its packets are dropped.
type way struct {
	from, to int
	late     bool // at the receiver
}

// spacePrefix starts the names of all namespaces.
const spacePrefix = "runlog-procs-"

// networks counts the networks of this process. They are made one at a time, because each looks for
// free addresses.
var networks struct {
	sync.Mutex
	made int
}

// WhyNoNetwork returns what a Network lacks on this machine; empty: nothing.
func WhyNoNetwork() string {
	if os.Geteuid() != 0 {
		return "network namespaces want root"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "network namespaces want the command ip (Debian: iproute2)"
	}
	probe := fmt.Sprintf("%s%d-probe", spacePrefix, os.Getpid())
	if err := output(exec.Command("ip", "netns", "add", probe)); err != nil {
		return "network namespaces cannot be made here: " + err.Error()
	}
	_ = exec.Command("ip", "netns", "del", probe).Run()
	return ""
}

// NewNetwork makes a network for so many nodes, and removes it when the test ends. WhyNoNetwork
// must return nothing.
func NewNetwork(t testing.TB, nodes int) *Network {
	t.Helper()
	networks.Lock()
	defer networks.Unlock()
	sweep()
	networks.made++
	n := &Network{
		t: t, id: fmt.Sprintf("%d-%d", os.Getpid(), networks.made), nodes: nodes, lost: map[way]int{}, down: map[int]int{},
	}
	n.block = freeBlock(t)
	t.Cleanup(n.remove)
	n.must("link", "add", n.bridge(), "type", "bridge")
	n.must("link", "set", n.bridge(), "up")
	for i := range nodes {
		ns, peer, client := n.space(i), fmt.Sprintf("rp%s-%d", n.id, i), fmt.Sprintf("rc%s-%d", n.id, i)
		n.must("netns", "add", ns)
		n.must("-n", ns, "link", "set", "lo", "up")
		n.must("link", "add", peer, "type", "veth", "peer", "name", "peers", "netns", ns)
		n.must("link", "set", peer, "master", n.bridge(), "up")
		n.must("-n", ns, "addr", "add", n.peerIP(i)+"/24", "dev", "peers")
		n.must("-n", ns, "link", "set", "peers", "up")
		n.must("link", "add", client, "type", "veth", "peer", "name", "clients", "netns", ns)
		n.must("addr", "add", fmt.Sprintf("10.215.%d.%d/30", n.block, 4*i+1), "dev", client)
		n.must("link", "set", client, "up")
		n.must("-n", ns, "addr", "add", n.clientIP(i)+"/30", "dev", "clients")
		n.must("-n", ns, "link", "set", "clients", "up")
		// A rule that drops incoming packets must come before the rule for the node's own
		// addresses.
		n.must("-n", ns, "rule", "add", "pref", "100", "lookup", "local")
		n.must("-n", ns, "rule", "del", "pref", "0")
	}
	return n
}

func (n *Network) bridge() string          { return "rb" + n.id }
func (n *Network) space(i int) string      { return fmt.Sprintf("%s%s-%d", spacePrefix, n.id, i) }
func (n *Network) peerIP(i int) string     { return fmt.Sprintf("10.216.%d.%d", n.block, i+1) }
func (n *Network) clientIP(i int) string   { return fmt.Sprintf("10.215.%d.%d", n.block, 4*i+2) }
func (n *Network) must(args ...string)     { n.t.Helper(); n.check(n.t.Fatal, args...) }
func (n *Network) mustSoon(args ...string) { n.t.Helper(); n.check(n.t.Error, args...) }

// check runs the command ip, and calls failed if it fails.
func (n *Network) check(failed func(...any), args ...string) {
	n.t.Helper()
	if err := output(exec.Command("ip", args...)); err != nil {
		failed(err)
	}
}

func (n *Network) remove() { removeNetwork(n.id, n.nodes) }

// removeNetwork removes what is left of a network. Links go first: with their namespace the kernel
// removes them later.
func removeNetwork(id string, nodes int) {
	for i := range nodes {
		_ = exec.Command("ip", "link", "del", fmt.Sprintf("rp%s-%d", id, i)).Run()
		_ = exec.Command("ip", "link", "del", fmt.Sprintf("rc%s-%d", id, i)).Run()
		_ = exec.Command("ip", "netns", "del", fmt.Sprintf("%s%s-%d", spacePrefix, id, i)).Run()
	}
	_ = exec.Command("ip", "link", "del", "rb"+id).Run()
}

// sweep removes the networks that killed test processes have left behind.
func sweep() {
	list, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return
	}
	for _, line := range strings.Split(string(list), "\n") {
		name, _, _ := strings.Cut(line, " ")
		rest, ours := strings.CutPrefix(name, spacePrefix)
		parts := strings.Split(rest, "-")
		if !ours || len(parts) < 2 {
			continue
		}
		if _, err := os.Stat("/proc/" + parts[0]); os.IsNotExist(err) {
			const most = 9 // nodes of a network
			removeNetwork(parts[0]+"-"+parts[1], most)
		}
	}
}

// freeBlock finds a block of addresses that is free on this machine.
func freeBlock(t testing.TB) int {
	t.Helper()
	out, err := exec.Command("ip", "-o", "-4", "addr").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range seed.Rand(t).Perm(256) {
		if !strings.Contains(string(out), " 10.215."+strconv.Itoa(block)+".") {
			return block
		}
	}
	t.Fatal("all of 10.215.0.0/16 is taken")
	return 0
}

// cut cuts a node off as the fault says, until heal is called. two is the second node of a partial
// cut.
func (n *Network) cut(f Fault, one, two int) (heal func()) {
	if f.Kind == Unplug {
		n.unplug(one, true)
		return func() { n.unplug(one, false) }
	}
	rng := rand.New(rand.NewPCG(f.Seed, 1))
	late, in := rng.IntN(2) == 0, rng.IntN(2) == 0
	var ways []way
	for other := range n.nodes {
		if other == one || f.Kind == Partial && other != two {
			continue
		}
		if f.Kind != OneWay || !in {
			ways = append(ways, way{one, other, late})
		}
		if f.Kind != OneWay || in {
			ways = append(ways, way{other, one, late})
		}
	}
	for _, w := range ways {
		n.lose(w, true)
	}
	return func() {
		for _, w := range ways {
			n.lose(w, false)
		}
	}
}

// unplug takes down a node's link to the others, or brings it up.
func (n *Network) unplug(i int, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !counted(n.down, i, on) {
		return
	}
	n.mustSoon("-n", n.space(i), "link", "set", "peers", map[bool]string{true: "down", false: "up"}[on])
}

// lose starts or stops to drop the packets of a way.
func (n *Network) lose(w way, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !counted(n.lost, w, on) {
		return
	}
	verb := map[bool]string{true: "add", false: "del"}[on]
	if w.late {
		n.mustSoon("-n", n.space(w.to), "rule", verb, "pref", strconv.Itoa(10+w.from), "iif", "peers", "from", n.peerIP(w.from), "blackhole")
		return
	}
	n.mustSoon("-n", n.space(w.from), "route", verb, "blackhole", n.peerIP(w.to)+"/32")
}

// counted counts the faults of one thing, up or down. It reports whether the first one begins or
// the last one ends.
func counted[K comparable](faults map[K]int, k K, on bool) bool {
	if on {
		faults[k]++
		return faults[k] == 1
	}
	faults[k]--
	return faults[k] == 0
}
