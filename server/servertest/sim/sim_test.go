package sim

import (
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
	"runlog/testbed/seed"
)

// inBubble runs one world in a bubble of its own.
func inBubble(t *testing.T, opts Options) (r *Result, took time.Duration) {
	t.Helper()
	began := time.Now()
	t.Run(fmt.Sprint("seed-", opts.Seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, opts.Seed)
		// hashicorp/raft draws from it, if GODEBUG=randseednop=0 is set
		rand.Seed(int64(opts.Seed)) //nolint:staticcheck
		bubble.Test(t, func(*testing.T) { r = Run(opts) })
	})
	if r == nil {
		t.Fatalf("seed %d: the run did not end", opts.Seed)
	}
	return r, time.Since(began)
}

// TestWorlds proves APP-1 to APP-5, IDM-6, IDM-10, READ-1 to READ-4, WATCH-3, PRJ-1, SEC-3 to
// SEC-6, SEC-9, SEC-10, ATT-4, BUS-3, QUE-6 and QUE-9 under faults, with fresh seeds.
func TestWorlds(t *testing.T) {
	first := seed.New(t)
	for i := range uint64(2) {
		opts := Shape(first+i, 15*time.Second, 500*time.Millisecond, 4)
		if r, _ := inBubble(t, opts); !r.OK() {
			t.Errorf("%v; repeat it with: make sim SEED=%d SEEDS=1 TIME=%s EVERY=%s\n%s", r.Invariants(), opts.Seed, 15*time.Second, opts.Every, r)
		}
	}
}

// TestCorpus proves the same with the seeds that have failed before. A seed that fails is added to
// testdata/seeds together with its fix.
func TestCorpus(t *testing.T) {
	storagetest.Large(t)
	for _, opts := range corpus(t) {
		if r, _ := inBubble(t, opts); !r.OK() {
			t.Errorf("seed %d: %v\n%s", opts.Seed, r.Invariants(), r)
		}
	}
}

// corpus reads the seeds that have failed before. A line has the seed, the length, the mean time
// between faults, and a comment.
func corpus(t *testing.T) (all []Options) {
	t.Helper()
	text, err := os.ReadFile("testdata/seeds")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		var seed uint64
		var length, every time.Duration
		if seed, err = strconv.ParseUint(fields[0], 10, 64); err == nil && len(fields) > 2 {
			if length, err = time.ParseDuration(fields[1]); err == nil {
				every, err = time.ParseDuration(fields[2])
			}
		}
		if err != nil || len(fields) < 3 {
			t.Fatalf("testdata/seeds: %q: want a seed, a length and a mean time between faults: %v", line, err)
		}
		opts := Shape(seed, length, every, 4)
		all = append(all, opts)
	}
	return all
}

// TestPlan requires that a plan is a function of its seed, that it has every kind, and that
// scenarios leave the faults of a seed as they are.
func TestPlan(t *testing.T) {
	opts := PlanOptions{
		Nodes: 3, Clients: 4, Length: time.Hour, Every: time.Second, Gap: 10 * time.Second,
		Scenarios: map[Kind]int{Deposed: 1, StaleTail: 1, OlderCopy: 1},
	}
	same := func(a, b Fault) bool { return a.String() == b.String() && a.Seed == b.Seed }
	a, b := Plan(7, opts), Plan(7, opts)
	if !slices.EqualFunc(a, b, same) {
		t.Error("two plans of one seed differ")
	}
	for _, k := range slices.Concat(Kinds(), Scenarios()) {
		if !slices.ContainsFunc(a, func(f Fault) bool { return f.Kind == k }) {
			t.Errorf("an hour without %s", k)
		}
	}
	opts.Scenarios = nil
	faults := slices.DeleteFunc(a, func(f Fault) bool { return slices.Contains(Scenarios(), f.Kind) })
	if !slices.EqualFunc(Plan(7, opts), faults, same) {
		t.Error("the faults of a seed differ with scenarios")
	}
}

// TestShapesHaveScenarios requires that the seeds of ordinary worlds draw each scenario.
func TestShapesHaveScenarios(t *testing.T) {
	drawn := map[Kind]int{}
	for seed := range uint64(200) {
		for k := range Shape(seed, time.Minute, time.Second, 4).Scenarios {
			drawn[k]++
		}
	}
	for _, k := range Scenarios() {
		if drawn[k] < 20 {
			t.Errorf("%s is drawn in %d worlds of 200", k, drawn[k])
		}
	}
}

// TestScenarios plays each scenario in a world without other faults: it must come to its end, and
// the product must survive it.
func TestScenarios(t *testing.T) {
	storagetest.Large(t)
	draws := seed.Rand(t)
	for i, k := range slices.Concat(Scenarios(), Scenarios()) {
		opts := Options{
			Seed: draws.Uint64(), Length: 20 * time.Second, Every: -1,
			Scenarios: map[Kind]int{k: 1}, Gap: time.Second,
		}
		if i >= len(Scenarios()) {
			opts.Nodes = 5
		}
		r, _ := inBubble(t, opts)
		if !r.OK() {
			t.Errorf("%s with seed %d: %v\n%s", k, opts.Seed, r.Invariants(), r)
		}
		if r.Happened[k] == 0 || r.Seen[Leaders] < 2 && k != OlderCopy {
			t.Errorf("%s with seed %d: %v, %v", k, opts.Seed, r.Happened, r.Seen)
		}
	}
}

// TestFewKinds requires that each kind is drawn without each other kind in some world.
func TestFewKinds(t *testing.T) {
	without := map[[2]Kind]bool{}
	for seed := range uint64(500) {
		few := Shape(seed*10+1, time.Minute, time.Second, 4).Kinds
		for k := range few {
			for _, other := range Kinds() {
				without[[2]Kind{k, other}] = without[[2]Kind{k, other}] || few[other] == 0
			}
		}
	}
	for _, k := range Kinds() {
		for _, other := range Kinds() {
			if k != other && !without[[2]Kind{k, other}] {
				t.Errorf("%s never happens without %s", k, other)
			}
		}
	}
}

// TestShrink requires that Shrink keeps exactly the faults that are needed.
func TestShrink(t *testing.T) {
	asked := 0
	got := Shrink(50, 1000, func(keep []int) bool {
		asked++
		return slices.Contains(keep, 13) && slices.Contains(keep, 40)
	})
	if !slices.Equal(got, []int{13, 40}) {
		t.Errorf("%v after %d questions", got, asked)
	}
	if got := Shrink(50, 0, nil); len(got) != 50 {
		t.Errorf("%v without a question", got)
	}
}

// logOf returns the log of a world.
func logOf(on bool) io.Writer {
	if on {
		return os.Stderr
	}
	return nil
}

// TestReliabilityDocument requires that make accepts the commands in docs/reliability.md.
func TestReliabilityDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("(?:`|\\$ )(make [^`\\n…]+)(?:`|\\n)").FindAllStringSubmatch(string(text), -1)
	if len(commands) < 4 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, c := range commands {
		args := append([]string{"-n", "-C", "../../.."}, strings.Fields(c[1])[1:]...)
		if out, err := exec.Command("make", args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c[1], err, out)
		}
	}
}
