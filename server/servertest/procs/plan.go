//go:build unix

package procs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind of a fault.
type Kind string

// Kinds of faults.
const (
	Kill      Kind = "kill"       // SIGKILL of one node
	KillTwo   Kind = "kill-two"   // of two at once
	KillAll   Kind = "kill-all"   // of all at once
	KillAgain Kind = "kill-again" // of one, and once more while it starts
	// SIGSTOP of one node for longer than the election timeout, then SIGCONT
	Pause    Kind = "pause"
	PauseTwo Kind = "pause-two" // of two
	Restart  Kind = "restart"   // SIGTERM, as an operator does it
	Transfer Kind = "transfer"  // of the leadership, by an operator

	Split   Kind = "split"   // one node does not reach the others, nor they it
	OneWay  Kind = "one-way" // what one node sends to the others is lost, or what they send to it
	Partial Kind = "partial" // two nodes do not reach each other, the third reaches both
	Unplug  Kind = "unplug"  // the link of one node to all others is down
)

// ProcessKinds need no Network, NetworkKinds need one.
var (
	ProcessKinds = []Kind{Kill, KillTwo, KillAll, KillAgain, Pause, PauseTwo, Restart, Transfer}
	NetworkKinds = []Kind{Split, OneWay, Partial, Unplug}
)

// Fault is one entry of a plan: a fault, or an action of an operator.
type Fault struct {
	Kind  Kind
	After time.Duration // since the one before it began
	For   time.Duration // until it ends
	Nodes []int         // a permutation: those that it is about come first
	// Leader: the current leader takes the place of the first node.
	Leader bool
	// Seed of what is drawn while the fault happens.
	Seed uint64
}

func (f Fault) String() string {
	nodes := fmt.Sprint(f.Nodes)
	if f.Leader {
		nodes += " leader first"
	}
	return fmt.Sprintf("%-10s after %6s for %6s nodes %s", f.Kind, f.After.Round(time.Millisecond), f.For.Round(time.Millisecond), nodes)
}

// Plan draws n faults of the kinds. It is a function of its arguments alone. Every kind comes once
// before one comes again.
func Plan(seed uint64, nodes, n int, every time.Duration, kinds []Kind) []Fault {
	rng := rand.New(rand.NewPCG(seed, 0x706c616e))
	var plan []Fault
	var deck []Kind
	for range n {
		if len(deck) == 0 {
			deck = slices.Clone(kinds)
			rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := Fault{
			Kind: deck[0], After: time.Duration(rng.ExpFloat64() * float64(every)), For: time.Duration(rng.Int64N(int64(every))),
			Nodes: rng.Perm(nodes), Leader: rng.IntN(2) == 0, Seed: rng.Uint64(),
		}
		deck = deck[1:]
		switch f.Kind {
		case Pause, PauseTwo:
			f.For += Election * 2
		case Split, OneWay, Partial, Unplug:
			f.For += Election * time.Duration(rng.IntN(8))
		default:
		}
		plan = append(plan, f)
	}
	return plan
}
