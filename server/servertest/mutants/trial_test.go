package mutants

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"runlog/server/servertest/history"
	"runlog/server/servertest/sim"
)

var (
	trialSeed  = flag.Uint64("trial.seed", 0, "the first seed of TestTrial; 0: it is skipped")
	trialTime  = flag.Duration("trial.time", 0, "processor time after which TestTrial begins no new seed; 0: one seed")
	trialKinds = flag.String("trial.kinds", "", "the kinds of faults and the scenarios that happen, with commas between them; empty: all kinds")
	trialEvery = flag.Duration("trial.every", 2*time.Second, "mean time between two faults, or scenarios, of trial.kinds")
	trialHeld  = flag.Bool("trial.held", false, "make each world from a backup, and hold it")
	trialTrace = flag.Bool("trial.log", false, "write the nodes' logs and the faults to standard error")
)

// trialPrefix starts the lines that report the state of a trial.
const trialPrefix = "TRIAL "

// trial is the result of some seeds.
type trial struct {
	// Found names the violated invariants, or "stopped itself"; empty: nothing was found.
	Found string
	// Detail is the first violation.
	Detail string
	// Test of another package that looks for the mutant; empty: the simulator does.
	Test string
	// First is the seed that the trial started from, and Seed the last one. Runs of Test count from
	// 1.
	First, Seed uint64
	// Seconds of processor time; other processes use the machine too.
	Seconds     float64
	PowerLosses int
	// Seen counts events of the nodes themselves, see sim.Result.
	Seen map[string]int
}

func (r *trial) took() time.Duration { return time.Duration(r.Seconds * float64(time.Second)) }

func (r *trial) String() string {
	if r.Test != "" {
		return fmt.Sprintf("%q in run %d of %s after %.1f s: %s", r.Found, r.Seed, r.Test, r.Seconds, r.Detail)
	}
	return fmt.Sprintf("%q with seed %d (-mutants.seed=%d) after %.1f s and %d power losses: %s", r.Found, r.Seed, r.First, r.Seconds, r.PowerLosses, r.Detail)
}

// TestTrial runs the simulator, seed after seed, and fails at the first violation. In a build
// without a mutant it must find none.
func TestTrial(t *testing.T) {
	if *trialSeed == 0 {
		t.Skip("TestFound runs it")
	}
	r := trial{Seed: *trialSeed, Seen: map[string]int{}}
	for {
		t.Run(fmt.Sprint("seed-", r.Seed), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, r.Seed)
			// hashicorp/raft draws from it, if GODEBUG=randseednop=0 is set
			rand.Seed(int64(r.Seed)) //nolint:staticcheck
			synctest.Test(t, func(t *testing.T) {
				r.add(sim.Run(worldOf(r.Seed)))
				line, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				// in the bubble: its end may panic, see leaked
				fmt.Println(trialPrefix + string(line))
			})
		})
		if r.Found != "" {
			t.Fatal(&r)
		}
		if processor() >= *trialTime {
			return
		}
		r.Seed++
	}
}

// add adds the result of one more seed.
func (r *trial) add(result *sim.Result) {
	r.PowerLosses += result.Happened[sim.PowerLoss]
	for what, n := range result.Seen {
		r.Seen[what] += n
	}
	r.Seconds = processor().Seconds()
	r.Found, r.Detail = judge(result)
}

// worldOf returns the options of a seed. The rate of faults differs from seed to seed.
func worldOf(seed uint64) sim.Options {
	opts := sim.Options{
		Seed: seed, Length: 30 * time.Second, Log: trialLog(), Held: *trialHeld,
		Every: []time.Duration{150 * time.Millisecond, 400 * time.Millisecond, time.Second}[seed%3],
	}
	if *trialKinds == "" {
		return opts
	}
	opts.Kinds, opts.Scenarios = map[sim.Kind]int{}, map[sim.Kind]int{}
	for name := range strings.SplitSeq(*trialKinds, ",") {
		if kind := sim.Kind(name); slices.Contains(sim.Scenarios(), kind) {
			opts.Scenarios[kind]++
		} else {
			opts.Kinds[kind]++
		}
	}
	if opts.Every, opts.Gap = *trialEvery, *trialEvery; len(opts.Kinds) == 0 {
		opts.Every = -1
	}
	return opts
}

func trialLog() io.Writer {
	if *trialTrace {
		return os.Stderr
	}
	return nil
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// accessFaults are how the violations of what a caller may see and do begin (SEC-3 to SEC-6).
var accessFaults = []string{"foreign answer", "foreign append", "forged identity", "stream after revocation", "tenant limit"}

// judge names the violated invariants of a run. Those that clients would notice come first.
func judge(r *sim.Result) (found, detail string) {
	var names []string
	add := func(name, text string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if detail == "" {
			detail = name + ": " + text
		}
	}
	if r.Report != nil {
		for _, inv := range []history.Invariant{
			history.AckedIsStored, history.OnePerKey, history.Numbered, history.Stamped, history.WindowsClose, history.SnapshotsFold,
			history.WatermarksRise, history.Linearizable, history.Queued, history.DeliveredInOrder, history.Paced, history.HashesAgree, history.Chained, history.Rooted, history.WellFormed,
		} {
			for _, v := range r.Report.Violations {
				if v.Invariant == inv {
					add(string(inv), v.Detail)
				}
			}
		}
	}
	for _, b := range r.Broken {
		switch {
		case strings.Contains(b, "stopped itself"):
			add("stopped itself", b)
		case strings.Contains(b, "no write succeeds"):
			add(string(history.Progress), b)
		case strings.Contains(b, "TR-1: "):
			add(string(history.Rooted), b)
		case strings.Contains(b, "fresh list: "):
			add("READ-6", b)
		case strings.Contains(b, "proof: "):
			add("proof", b)
		case strings.Contains(b, "attempt: "):
			add("attempt", b)
		case strings.Contains(b, "lease: "):
			add("lease", b)
		case strings.Contains(b, "hold: "):
			add("hold", b)
		case strings.Contains(b, "decision: "):
			add("decision", b)
		case strings.Contains(b, "attestation: "):
			add("attestation", b)
		case strings.Contains(b, "bus: "):
			add(string(history.DeliveredInOrder), b)
		case strings.Contains(b, "verification of"):
			add(string(history.Chained), b)
		case slices.ContainsFunc(accessFaults, func(text string) bool { return strings.Contains(b, text+": ") }):
			add("access", b)
		default:
			add("not whole", b)
		}
	}
	return strings.Join(names, ", "), detail
}
