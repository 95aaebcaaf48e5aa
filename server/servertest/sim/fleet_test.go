package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	fleet  = flag.Int("sim.fleet", 0, "run worlds in so many processes at a time, and print the sums; 0: do not")
	losses = flag.Int("sim.losses", 0, "with -sim.fleet: run until nodes have lost their power so many times")
	from   = flag.Uint64("sim.seed", 1, "the first seed")
	seeds  = flag.Int("sim.seeds", 0, "how many seeds")
	length = flag.Duration("sim.time", time.Minute, "fake time of a plan")
	every  = flag.Duration("sim.every", time.Second, "mean time between two faults; negative: none")
	crowd  = flag.Int("sim.clients", 4, "how many clients; negative: none")
	busy   = flag.Bool("sim.bus", false, "with subscriptions and their receivers in every world, not in each fourth alone")
	keep   = flag.String("sim.keep", "", "places of the plan's entries that happen, with commas between them; empty: all")
	shrink = flag.Int("sim.shrink", 0, "how often a world that fails runs again to find the faults that it needs; 0: do not")
	trace  = flag.Bool("sim.log", false, "write the nodes' logs and the faults to standard error")
	logs   = flag.String("sim.logs", "", "keep the logs of worlds that fail, or never end, in this directory; empty: do not")
	child  = flag.Bool("sim.child", false, "write the outcome of every seed to the file descriptor 3")
)

// lived is the result of one seed, as a child process reports it.
type lived struct {
	Seed       uint64
	Fake, Real time.Duration
	Happened   map[Kind]int
	Seen       map[string]int
	Counts     map[string]int
	Failed     []string // invariants
	Text       string   // the violations and the plan
	// Alive says that the seed has failed, as Text shows, and runs again to find the faults that it
	// needs. The outcome follows.
	Alive bool
}

// busEvery is how many worlds there are for one with subscriptions.
const busEvery = 4

// TestSeeds runs worlds one after the other in this process, as its flags say.
func TestSeeds(t *testing.T) {
	out := io.Discard
	if *child {
		out = os.NewFile(3, "outcomes")
	}
	for i := range *seeds {
		opts := Shape(*from+uint64(i), *length, *every, *crowd)
		opts.Keep, opts.Bus = kept(t), *busy || opts.Seed%busEvery == 0
		keepLog := logTo(t, &opts)
		r, took := inBubble(t, opts)
		l := lived{Seed: opts.Seed, Fake: r.Fake, Real: took, Happened: r.Happened, Seen: r.Seen}
		if r.Report != nil {
			l.Counts = r.Report.Counts
		}
		if !r.OK() {
			l.Failed = r.Invariants()
			l.Text = r.String() + keepLog(true)
			l.Text += shrunk(t, opts, r, func() { tell(t, out, &lived{Seed: l.Seed, Failed: l.Failed, Text: l.Text, Alive: true}) })
		} else {
			keepLog(false)
		}
		tell(t, out, &l)
		if !*child {
			t.Logf("seed %d: %s of the world in %s, %v, %v, %v", l.Seed, l.Fake.Round(time.Second), took.Round(time.Millisecond), l.Happened, l.Seen, l.Counts)
			if l.Failed != nil {
				t.Errorf("%v\n%s", l.Failed, l.Text)
			}
		}
	}
}

func tell(t *testing.T, out io.Writer, l *lived) {
	t.Helper()
	line, err := json.Marshal(l)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", line)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// logTo opens the log of a world as the flags say. The caller calls keep at the end, with whether
// the run failed; keep removes the log of one that did not, and returns where a kept log is. The
// log is written in advance because a run does not repeat exactly.
func logTo(t *testing.T, o *Options) (keep func(bool) string) {
	t.Helper()
	if *trace || *logs == "" {
		o.Log = logOf(*trace)
		return func(bool) string { return "" }
	}
	err := os.MkdirAll(*logs, 0o755)
	var f *os.File
	if err == nil {
		f, err = os.Create(filepath.Join(*logs, fmt.Sprintf("%d.log", o.Seed)))
	}
	if err != nil {
		t.Fatal(err)
	}
	o.Log = f
	return func(failed bool) string {
		_ = f.Close()
		if failed {
			return "its log is " + f.Name() + "\n"
		}
		_ = os.Remove(f.Name())
		return ""
	}
}

func kept(t *testing.T) (all []int) {
	t.Helper()
	for text := range strings.SplitSeq(*keep, ",") {
		if text == "" {
			continue
		}
		i, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("-sim.keep: %v", err)
		}
		all = append(all, i)
	}
	return all
}

// shrunk returns the commands that repeat a failed run: all of it, and with few faults. It calls
// alive before each run.
func shrunk(t *testing.T, opts Options, r *Result, alive func()) string {
	t.Helper()
	command := fmt.Sprintf("make sim SEED=%d SEEDS=1 TIME=%s EVERY=%s", opts.Seed, opts.Length, opts.Every)
	if *busy {
		command += " BUS=1"
	}
	if *shrink == 0 || opts.Keep != nil {
		return "repeat it with: " + command + "\n"
	}
	opts.Log = nil
	few := Shrink(len(r.Plan), *shrink, func(keep []int) bool {
		alive()
		opts.Keep = append([]int{-1}, keep...) // an empty keep means no faults
		again, _ := inBubble(t, opts)
		return !again.OK()
	})
	text := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(few)), ","), "[]")
	return fmt.Sprintf("repeat it with: %s\nor, with %d of %d faults: %s KEEP=%s\n", command, len(few), len(r.Plan), command, text)
}

// TestFleet runs worlds in processes of their own, a few seeds each: memory that a library keeps
// for its process does not grow, and a panic ends one process only. It prints the sums, and
// requires that every kind of fault and every scenario happened, and that a hold was released
// (I11).
func TestFleet(t *testing.T) {
	if *fleet == 0 {
		return // make sim sets the flag
	}
	f := &sums{happened: map[Kind]int{}, seen: map[string]int{}, counts: map[string]int{}, began: time.Now(), told: time.Now(), next: *from}
	var all sync.WaitGroup
	for range *fleet {
		all.Go(func() {
			for first, n, more := f.take(); more; first, n, more = f.take() {
				if err := f.process(first, n); err != nil {
					f.fail(fmt.Sprintf("seeds %d to %d: %v", first, first+uint64(n)-1, err))
				}
			}
		})
	}
	all.Wait()
	t.Log(f)
	for _, text := range f.failed {
		t.Error(text)
	}
	if f.worlds >= 50 {
		for _, k := range slices.Concat(Kinds(), Scenarios()) {
			if f.happened[k] == 0 {
				t.Errorf("I11: %s never happened", k)
			}
		}
		if f.seen[Released] == 0 {
			t.Error("I11: no held cluster was released")
		}
	}
}

const (
	seedsAProcess = 10
	// seedPatience is how many seconds a process may be silent. After that fake time stands still.
	seedPatience = 300
	manyFailures = 5
)

type sums struct {
	mu         sync.Mutex
	next       uint64
	worlds     int
	fake, real time.Duration
	slowest    lived // without its outcome
	began      time.Time
	told       time.Time // when the sums were last written to standard error
	happened   map[Kind]int
	seen       map[string]int // events of the nodes themselves
	counts     map[string]int
	failed     []string
}

// take returns the next seeds to run, until there are enough.
func (f *sums) take() (first uint64, n int, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = seedsAProcess
	if *losses == 0 {
		n = min(n, *seeds-int(f.next-*from))
	} else if f.happened[PowerLoss] >= *losses {
		return 0, 0, false
	}
	if n <= 0 || len(f.failed) >= manyFailures {
		return 0, 0, false
	}
	first = f.next
	f.next += uint64(n)
	return first, n, true
}

func (f *sums) fail(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, text)
	fmt.Fprintln(os.Stderr, text)
}

// process runs a few seeds in a child process.
func (f *sums) process(first uint64, n int) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	var said strings.Builder
	cmd := exec.Command(os.Args[0], "-test.run=^TestSeeds$", "-test.timeout=0", "-sim.child", "-sim.seed="+strconv.FormatUint(first, 10),
		"-sim.seeds="+strconv.Itoa(n), "-sim.time="+length.String(), "-sim.every="+every.String(), "-sim.clients="+strconv.Itoa(*crowd), "-sim.shrink="+strconv.Itoa(*shrink), "-sim.logs="+*logs, "-sim.bus="+strconv.FormatBool(*busy))
	// One thread makes runs faster, and most of them repeatable.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "GODEBUG=asyncpreemptoff=1,randseednop=0")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &said, &said, []*os.File{write}
	if err := errors.Join(cmd.Start(), write.Close()); err != nil {
		return err
	}
	heard := make(chan struct{})
	defer close(heard)
	go quitSilent(cmd.Process, heard)
	seen, failing := 0, ""
	for lines := bufio.NewReader(read); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		heard <- struct{}{}
		var l lived
		if err := json.Unmarshal(line, &l); err != nil {
			return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
		if failing = ""; l.Alive {
			failing = fmt.Sprintf("%v\n%s", l.Failed, l.Text)
			continue
		}
		f.add(&l)
		seen++
	}
	if err := cmd.Wait(); err != nil || seen < n {
		// The end of a long output is what a reader gets to see.
		return fmt.Errorf("%s\n%s\nseed %d has not ended: %w", notWaiting(said.String()), failing, first+uint64(seen), err)
	}
	return nil
}

// quitSilent has a process print its goroutines and end if nothing is heard of it for seedPatience.
// It returns once heard is closed. It counts ticks: a machine that stands still drops them.
func quitSilent(p *os.Process, heard <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for silent := 0; ; {
		select {
		case _, more := <-heard:
			if !more {
				return
			}
			silent = 0
		case <-tick.C:
			if silent++; silent == seedPatience {
				_ = p.Signal(syscall.SIGQUIT)
			}
		}
	}
}

// notWaiting leaves out the registers, and the goroutines that wait durably, as fake time requires.
func notWaiting(text string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(text, "\n\n") {
		first, _, _ := strings.Cut(part, "\n")
		if strings.HasPrefix(first, "rax ") {
			break
		}
		if !strings.HasPrefix(first, "goroutine ") || strings.Contains(first, "bubble") && !strings.Contains(first, "(durable)") {
			b.WriteString(part + "\n\n")
		}
	}
	return b.String()[:min(b.Len(), 20_000)]
}

func (f *sums) add(l *lived) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.worlds, f.fake, f.real = f.worlds+1, f.fake+l.Fake, f.real+l.Real
	if l.Real > f.slowest.Real {
		f.slowest = lived{Seed: l.Seed, Fake: l.Fake, Real: l.Real}
	}
	for k, n := range l.Happened {
		f.happened[k] += n
	}
	for k, n := range l.Seen {
		f.seen[k] += n
	}
	for k, n := range l.Counts {
		f.counts[k] += n
	}
	if time.Since(f.told) >= time.Minute {
		f.told = time.Now()
		fmt.Fprintln(os.Stderr, f)
	}
	if l.Failed != nil {
		f.failed = append(f.failed, fmt.Sprintf("seed %d: %v\n%s", l.Seed, l.Failed, l.Text))
		fmt.Fprintln(os.Stderr, f.failed[len(f.failed)-1])
	}
}

// String returns the sums that make sim prints.
func (f *sums) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d worlds, seeds %d to %d, %d failed, in %s\n", f.worlds, *from, f.next-1, len(f.failed), time.Since(f.began).Round(time.Second))
	fmt.Fprintf(&b, "%s of fake time, %.0f s a second of a processor; the slowest world: %d, %s in %s\n", f.fake.Round(time.Second), f.fake.Seconds()/max(f.real.Seconds(), 1e-9),
		f.slowest.Seed, f.slowest.Fake.Round(time.Second), f.slowest.Real.Round(time.Second))
	fmt.Fprint(&b, "faults:")
	for _, k := range slices.Sorted(maps.Keys(f.happened)) {
		fmt.Fprintf(&b, " %s %d", k, f.happened[k])
	}
	fmt.Fprint(&b, "\nnodes:")
	for _, k := range slices.Sorted(maps.Keys(f.seen)) {
		fmt.Fprintf(&b, " %s %d", k, f.seen[k])
	}
	fmt.Fprint(&b, "\nchecked:")
	for _, k := range slices.Sorted(maps.Keys(f.counts)) {
		fmt.Fprintf(&b, " %s %d", k, f.counts[k])
	}
	fmt.Fprintf(&b, "\n%s, %d processors\n", runtime.Version(), runtime.NumCPU())
	return b.String()
}
