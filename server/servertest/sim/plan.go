package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind names a kind of fault, or a scenario.
type Kind string

// Kinds of faults.
const (
	// PowerLoss hits one node or several at once; some of what was not synced is lost.
	PowerLoss Kind = "power-loss"
	// Kill ends processes. What they wrote and did not sync stays until the next loss of power.
	Kill       Kind = "kill"
	Restart    Kind = "restart"      // by an operator
	Split      Kind = "split"        // the cluster in two, both ways
	OneWay     Kind = "one-way"      // from one node to another nothing arrives
	Partial    Kind = "partial"      // two nodes do not reach each other, others reach both
	Reset      Kind = "reset"        // of the connections between two nodes
	LateReset  Kind = "late-reset"   // the same, but what was sent still arrives
	SlowLink   Kind = "slow-link"    // from one node to another
	ClientCut  Kind = "client-cut"   // a client does not reach a node
	ClientLost Kind = "client-reset" // the connections of a client are reset; what it sent arrives
	ClientLag  Kind = "client-slow"  // answers of a node reach a client late
	ClockJump  Kind = "clock-jump"   // forth or back
	SlowDisk   Kind = "slow-disk"    // writes to the log take long
	FullDisk   Kind = "full-disk"    // every write fails
	SyncError  Kind = "sync-error"   // syncs fail; what was written may be lost
	BitRot     Kind = "bit-rot"      // in a file of one node, found when it starts
	Transfer   Kind = "transfer"     // of the leadership, by an operator
	CrashPoint Kind = "crash-point"  // a loss of power right before a certain write
	Replace    Kind = "replace"      // of a node whose disk is lost, by an operator
	RotateKey  Kind = "rotate-key"   // of the cluster's signing key, by an operator
	ClockFar   Kind = "clock-far"    // one clock is wrong by hours for a while
)

// Kinds lists all kinds of faults but the scenarios.
func Kinds() []Kind {
	return []Kind{
		PowerLoss, Kill, Restart, Split, OneWay, Partial, Reset, LateReset, SlowLink, ClientCut, ClientLost, ClientLag,
		ClockJump, SlowDisk, FullDisk, SyncError, BitRot, Transfer, CrashPoint, Replace, RotateKey,
		ClockFar,
	}
}

// Fault is one entry of a plan: a fault, an action of an operator, or a scenario.
type Fault struct {
	Kind  Kind
	At    time.Duration // since the plan began
	For   time.Duration // until it ends
	Nodes []int         // that it hits; for one direction, from the first to the second
	// Client is the client that it hits, for kinds that hit one.
	Client int
	// Size depends on the kind: percent of the unsynced data that stays, or a latency or a jump in
	// nanoseconds.
	Size int64
	// Seed of what is drawn while the fault happens.
	Seed uint64
}

func (f Fault) String() string {
	s := fmt.Sprintf("%-12s at %8s for %8s nodes %v", f.Kind, f.At.Round(time.Millisecond), f.For.Round(time.Millisecond), f.Nodes)
	if strings.HasPrefix(string(f.Kind), "client") {
		s += fmt.Sprintf(" client %d", f.Client)
	}
	switch f.Kind {
	case PowerLoss, Kill, CrashPoint:
		if f.Size != killed {
			s += fmt.Sprintf(" keeps %d %%", f.Size)
		}
	case SlowLink, ClientLag, SlowDisk, ClockJump, ClockFar:
		s += fmt.Sprintf(" by %s", time.Duration(f.Size))
	default:
	}
	return s
}

// PlanOptions shape a plan.
type PlanOptions struct {
	Nodes, Clients int
	Length         time.Duration
	// Every is the mean time between two faults. Negative: none.
	Every time.Duration
	// Kinds that may happen, each with its weight. Default: all of them.
	Kinds map[Kind]int
	// Scenarios that may be played, each with its weight. Default: none.
	Scenarios map[Kind]int
	// Gap is the mean time between two scenarios.
	Gap time.Duration
}

// weights make losses of power the most frequent fault: acknowledged events must survive them above
// all. ClockFar has a draw of its own, see drawFar.
var weights = map[Kind]int{
	PowerLoss: 30, Kill: 6, Restart: 3, Split: 6, OneWay: 4, Partial: 4, Reset: 4, LateReset: 6, SlowLink: 5, ClientCut: 4,
	ClientLost: 6, ClientLag: 4, ClockJump: 6, SlowDisk: 4, FullDisk: 2, SyncError: 4, BitRot: 2, Transfer: 4, CrashPoint: 8, Replace: 2,
	RotateKey: 2,
}

// leastWeight is that of a kind which has no weight.
const leastWeight = 2

// fewKinds draws some of the kinds. One kind often ends what another one leads to before a check
// sees it: with losses of power, for example, no node's memory gets old (Groce et al., "Swarm
// Testing", ISSTA 2012).
func fewKinds(seed uint64) map[Kind]int {
	rng := rand.New(rand.NewPCG(seed, 0x6b696e6473))
	few := map[Kind]int{}
	for one := 2 + rng.IntN(5); len(few) == 0; {
		for _, k := range Kinds() {
			if rng.IntN(one) == 0 {
				few[k] = max(weights[k], leastWeight)
			}
		}
	}
	return few
}

// quiet are the kinds that leave all nodes running and connected, for OlderCopy: where no member
// that remembers more is reached, acknowledged events may be lost.
var quiet = map[Kind]int{ClientCut: 4, ClientLost: 6, ClientLag: 4, ClockJump: 6, RotateKey: 2}

// fewScenarios draws some of the scenarios that go with all kinds, or none.
func fewScenarios(seed uint64) map[Kind]int {
	rng := rand.New(rand.NewPCG(seed, 0x73636e73))
	few := map[Kind]int{}
	for _, k := range []Kind{Deposed, StaleTail} {
		if rng.IntN(2) == 0 {
			few[k] = 1
		}
	}
	return few
}

// ofTwo are the kinds that need two nodes or more.
var ofTwo = []Kind{Split, OneWay, Partial, Reset, LateReset, SlowLink, Transfer, Replace, ClockFar}

// Plan draws the faults and scenarios of a run. It is a function of the seed and the options alone.
// Scenarios have a draw of their own, so that the faults of a seed are the same with them and
// without.
func Plan(seed uint64, opts PlanOptions) []Fault {
	rng := rand.New(rand.NewPCG(seed, 0x706c616e))
	weights := weights
	if opts.Kinds != nil {
		weights = opts.Kinds
	}
	var plan []Fault
	for at := time.Duration(0); opts.Every > 0; {
		at += time.Duration(rng.ExpFloat64() * float64(opts.Every))
		if at >= opts.Length {
			break
		}
		plan = append(plan, draw(rng, at, weights, &opts))
	}
	if opts.Kinds == nil {
		plan = append(plan, drawFar(seed, &opts)...)
	}
	plan = append(plan, drawScenarios(seed, &opts)...)
	slices.SortStableFunc(plan, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return plan
}

// drawFar draws the faults of kind ClockFar. They have a draw of their own, so that the other
// faults of a seed stay as they were.
func drawFar(seed uint64, opts *PlanOptions) (plan []Fault) {
	if opts.Nodes < 3 || opts.Every <= 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0x636c6f636b))
	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() * float64(farEvery*opts.Every))
		if at >= opts.Length {
			return plan
		}
		plan = append(plan, draw(rng, at, map[Kind]int{ClockFar: 1}, opts))
	}
}

// farEvery is how many other faults there are, on average, for one of kind ClockFar.
const farEvery = 15

// drawScenarios draws the scenarios of a plan. None begins within scenarioTime of the one before.
func drawScenarios(seed uint64, opts *PlanOptions) []Fault {
	if opts.Nodes < 3 || len(opts.Scenarios) == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0x7363656e65))
	var plan []Fault
	for at := time.Duration(0); ; at += scenarioTime {
		at += time.Duration(rng.ExpFloat64() * float64(opts.Gap))
		if at >= opts.Length {
			return plan
		}
		plan = append(plan, Fault{
			Kind: drawKind(rng, Scenarios(), opts.Scenarios), At: at, For: scenarioTime, Nodes: rng.Perm(opts.Nodes), Seed: rng.Uint64(),
		})
	}
}

// drawKind draws one of the kinds by their weights.
func drawKind(rng *rand.Rand, kinds []Kind, weights map[Kind]int) Kind {
	total := 0
	for _, k := range kinds {
		total += weights[k]
	}
	n := rng.IntN(total)
	for _, k := range kinds {
		if n -= weights[k]; n < 0 {
			return k
		}
	}
	panic("sim: a draw beyond the sum of the weights")
}

func draw(rng *rand.Rand, at time.Duration, weights map[Kind]int, opts *PlanOptions) Fault {
	f := Fault{At: at, Seed: rng.Uint64(), Client: rng.IntN(opts.Clients), Nodes: rng.Perm(opts.Nodes)[:min(2, opts.Nodes)]}
	f.Kind = drawKind(rng, Kinds(), weights)
	if opts.Nodes == 1 && slices.Contains(ofTwo, f.Kind) {
		f.Kind = PowerLoss
	}
	f.For = time.Duration(rng.Int64N(int64(4 * time.Second)))
	if rng.IntN(10) == 0 {
		f.For *= 4
	}
	switch f.Kind {
	case PowerLoss:
		f.Nodes = rng.Perm(opts.Nodes)[:1+rng.IntN(opts.Nodes)]
		if rng.IntN(2) == 0 {
			f.Nodes = f.Nodes[:1]
		}
		f.Size = []int64{0, 0, 100, int64(rng.IntN(101))}[rng.IntN(4)]
		f.For /= 4
	case CrashPoint:
		f.Nodes, f.Size = f.Nodes[:1], []int64{0, int64(rng.IntN(101)), killed, killed}[rng.IntN(4)]
	case Kill:
		f.Nodes, f.Size, f.For = rng.Perm(opts.Nodes)[:1+rng.IntN(opts.Nodes)], killed, f.For/4
	case Restart, BitRot:
		f.Nodes, f.Size, f.For = f.Nodes[:1], 100, f.For/4
	case Split:
		f.Nodes = rng.Perm(opts.Nodes)[:1+rng.IntN(max(opts.Nodes/2, 1))]
	case SlowLink, ClientLag:
		f.Size = rng.Int64N(int64(400 * time.Millisecond))
	case SlowDisk:
		f.Nodes, f.Size = f.Nodes[:1], rng.Int64N(int64(300*time.Millisecond))
	case ClockJump:
		f.Nodes, f.Size = f.Nodes[:1], rng.Int64N(int64(10*time.Second))-int64(5*time.Second)
	case ClockFar:
		f.Nodes, f.Size = f.Nodes[:1], int64(90*time.Minute)+rng.Int64N(int64(10*time.Hour))
		if rng.IntN(3) == 0 {
			f.Size = -f.Size
		}
	case FullDisk, SyncError, ClientCut, Transfer, Replace, RotateKey:
		f.Nodes = f.Nodes[:1]
	default:
	}
	return f
}
