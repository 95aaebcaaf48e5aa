//go:build unix

package procs

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/server/servertest/history"
	"runlog/testbed/await"
)

var (
	binaryFlag = flag.String("procs.binary", "", "the command runlog; empty: it is built")
	seedFlag   = flag.Uint64("procs.seed", 1, "the first seed of TestRounds and TestDeliveries")
	seedsFlag  = flag.Int("procs.seeds", 1, "how many seeds they play")
	timeFlag   = flag.Duration("procs.time", 0, "they begin no seed after so long; 0: they play all seeds")
	faultsFlag = flag.Int("procs.faults", 0, "faults of a round; 0: each kind once")
	everyFlag  = flag.Duration("procs.every", 400*time.Millisecond, "mean time between two faults")
	keepFlag   = flag.Bool("procs.keep", false, "keep the data of a cluster whose test has failed")
)

// source is the directory of this module.
const source = "../../.."

// built holds the commands that this run of the tests has built.
var built struct {
	sync.Mutex
	dir  string
	path map[string]string // by version
}

func TestMain(m *testing.M) {
	for name, role := range map[string]func(string) error{asEngine: engine, asHook: hook, asNATS: natsNode} {
		if at := os.Getenv(name); at != "" {
			if err := role(at); err != nil {
				fmt.Println("broken", err)
				_, _ = fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// binaryOf builds the command runlog from a source with a version, once, and returns its path. args
// are further arguments of go build.
func binaryOf(t *testing.T, source, version string, args ...string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "runlog-procs-bin-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir, built.path = dir, map[string]string{}
	}
	if path := built.path[version]; path != "" {
		return path
	}
	path := filepath.Join(built.dir, "runlog-"+version)
	if err := Build(await.Context(t), source, path, version, args...); err != nil {
		t.Fatal(err)
	}
	built.path[version] = path
	return path
}

// binary returns the path of the tested command.
func binary(t *testing.T) string {
	t.Helper()
	if *binaryFlag != "" {
		return *binaryFlag
	}
	return binaryOf(t, source, "tested")
}

// newCluster makes a cluster of the tested command, and starts it.
func newCluster(t *testing.T, opts Options) *Cluster {
	t.Helper()
	opts.Binary, opts.Keep = binary(t), *keepFlag
	c := New(t, opts)
	c.Start()
	return c
}

// totals are the sums over rounds.
type totals struct {
	happened map[Kind]int
	counts   map[string]int
	rounds   int
}

func (s *totals) add(happened map[Kind]int, r *history.Report) {
	s.rounds++
	for k, n := range happened {
		s.happened[k] += n
	}
	for k, n := range r.Counts {
		s.counts[k] += n
	}
}

func (s *totals) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds; faults:", s.rounds)
	for _, k := range slices.Sorted(maps.Keys(s.happened)) {
		fmt.Fprintf(&b, " %d %s", s.happened[k], k)
	}
	b.WriteString("; checked:")
	for _, k := range slices.Sorted(maps.Keys(s.counts)) {
		fmt.Fprintf(&b, " %d %s,", s.counts[k], k)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// seeds are those that a test plays. It begins none after the time of -procs.time.
func seeds(t *testing.T) iter.Seq[uint64] {
	ctx, cancel := t.Context(), func() {}
	if *timeFlag > 0 {
		ctx, cancel = context.WithTimeout(ctx, *timeFlag)
	}
	return func(yield func(uint64) bool) {
		defer cancel()
		for i := range *seedsFlag {
			if ctx.Err() != nil || !yield(*seedFlag+uint64(i)) {
				return
			}
		}
	}
}

// TestRounds proves APP-1 to APP-5, APP-10, IDM-6, IDM-7, IDM-10, READ-1 to READ-4, WATCH-1 to
// WATCH-3 and PRJ-1 against processes that are killed, paused and restarted, and, with root on
// Linux, against networks that are cut. Clients use every call meanwhile.
func TestRounds(t *testing.T) {
	t.Parallel()
	began := time.Now()
	sum := &totals{happened: map[Kind]int{}, counts: map[string]int{}}
	violations := 0
	for seed := range seeds(t) {
		for _, network := range []bool{false, true} {
			name := "processes"
			if network {
				name = "networks"
			}
			if !t.Run(fmt.Sprintf("%s/seed=%d", name, seed), func(t *testing.T) { violations += round(t, sum, seed, network) }) {
				t.Logf("repeat it with: go test ./server/servertest/procs -count=1 -v -run 'TestRounds/%s' -procs.seed=%d -procs.faults=%d", name, seed, *faultsFlag)
			}
		}
	}
	t.Logf("%s; violations: %d; in %s", sum, violations, time.Since(began).Round(time.Second))
}

// round plays one seed, and returns the number of violations.
func round(t *testing.T, sum *totals, seed uint64, network bool) int {
	opts, kinds := Options{Seed: seed}, ProcessKinds
	if network {
		if why := WhyNoNetwork(); why != "" {
			t.Skip(why)
		}
		opts.Network, kinds = NewNetwork(t, 3), slices.Concat(NetworkKinds, NetworkKinds, []Kind{Kill, Pause})
	}
	n := *faultsFlag
	if n == 0 {
		n = len(kinds)
	}
	plan := Plan(seed, 3, n, *everyFlag, kinds)
	c := newCluster(t, opts)
	c.Work(8)
	c.AwaitAck(1)
	happened := c.Play(plan)
	for _, k := range kinds {
		// a transfer may find no leader
		if happened[k] == 0 && n >= len(kinds) && k != Transfer {
			t.Errorf("%s: %s did not happen", history.FaultsHappened, k)
		}
	}
	r := c.Settle()
	if t.Failed() {
		for _, f := range plan {
			t.Log(f)
		}
	}
	sum.add(happened, r)
	t.Logf("%v; %s", happened, r)
	return len(r.Violations) + r.More
}

// TestCrossCheck checks a small history with porcupine, which does not use the nodes' logs (I8):
// few clients, short runs, and a leader that is killed.
func TestCrossCheck(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{Seed: *seedFlag, RunLives: 200 * time.Millisecond})
	c.Work(3)
	c.AwaitAck(20)
	leader := c.Leader()
	leader.Kill()
	c.AwaitAck(20)
	leader.Start()
	t.Log(c.Settle())
	if err := history.CrossCheck(c.clients.History(), c.finals...); err != nil {
		c.keepHistory()
		t.Error(err)
	}
}
