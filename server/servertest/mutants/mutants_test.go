package mutants

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

var (
	which   = flag.String("mutants", "", "names of mutants, with commas between them; all: all of them; empty: none")
	timeout = flag.Duration("mutants.time", time.Minute, "processor time within which each run must find its mutant")
	runs    = flag.Int("mutants.runs", 1, "runs a mutant, each from a fresh seed")
	first   = flag.Uint64("mutants.seed", 0, "the first seed of every run; 0: a fresh one a run")
	table   = flag.String("mutants.table", "", "write the table of the results to this file")
)

func moduleDirs(t *testing.T) Dirs {
	t.Helper()
	dirs := Dirs{"": "../../.."}
	var err error
	if dirs[""], err = filepath.Abs(dirs[""]); err != nil {
		t.Fatal(err)
	}
	for _, m := range Modules() {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", m).Output()
		if err != nil {
			t.Fatal(err)
		}
		dirs[m] = strings.TrimSpace(string(out))
	}
	return dirs
}

// chosen returns the mutants that -mutants names. Without it, a test of the sources is skipped.
func chosen(t *testing.T) (list []Mutant) {
	t.Helper()
	if *which == "" {
		t.Skip("make mutants runs it")
	}
	names := strings.Split(*which, ",")
	for _, m := range All() {
		if *which == "all" || slices.Contains(names, m.Name) {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		t.Fatalf("no mutant is called %q", *which)
	}
	return list
}

// TestFits makes the edits of each mutant, and says which ones no longer fit the sources. It takes
// seconds, and is run with every change.
func TestFits(t *testing.T) {
	dirs := moduleDirs(t)
	for _, m := range All() {
		if m.Package != "" && !declares(t, filepath.Join(dirs[""], m.Package), m.Test) {
			t.Errorf("%s: %s has no %s", m.Name, m.Package, m.Test)
		}
		for _, edits := range [][]Edit{m.Edits, m.Control} {
			if _, err := Arguments(t.TempDir(), dirs, edits); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}

// TestApplied compiles the packages that each mutant changes.
func TestApplied(t *testing.T) {
	mutants, dirs := chosen(t), moduleDirs(t)
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for _, edits := range [][]Edit{m.Edits, m.Control} {
				packages := map[string]bool{}
				for _, e := range edits {
					if module, _ := dirs.locate(e.Package); module == "" {
						e.Package = "runlog/" + e.Package // A folder may be of another module.
					}
					packages[e.Package] = true
				}
				if len(edits) > 0 {
					goes(t, dirs, edits, append([]string{"build"}, slices.Sorted(maps.Keys(packages))...))
				}
			}
		})
	}
}

// declares reports whether a package has a test.
func declares(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return test != "" && slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && bytes.Contains(text, []byte("\nfunc "+test+"(t *testing.T) {\n"))
	})
}

// TestFound builds the simulator, or the tests of a package, with each mutant, and requires that
// they find the mutant. Without a mutant they must find nothing.
func TestFound(t *testing.T) {
	mutants, dirs := chosen(t), moduleDirs(t)
	var rows []row
	longest := 10 * time.Second
	if *which == "all" {
		longest = *timeout
	}
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			r := row{name: m.Name, trials: find(t, dirs, &m)}
			rows, longest = append(rows, r), max(longest, r.worst())
		})
	}
	t.Run("control", func(t *testing.T) {
		c := run(t, compile(t, dirs, &Mutant{}, nil), &Mutant{}, longest)
		rows = append(rows, row{name: "none", trials: []*trial{c}})
		if c.Found != "" {
			t.Errorf("a violation without a mutant: %s", c)
		}
	})
	write(t, rows)
}

// find requires that each run finds a mutant, and that the same faults find nothing in the edits
// that are no bug.
func find(t *testing.T, dirs Dirs, m *Mutant) []*trial {
	t.Helper()
	binary := compile(t, dirs, m, m.Edits)
	var trials []*trial
	for range *runs {
		r := run(t, binary, m, *timeout)
		trials = append(trials, r)
		if r.Found == "" {
			t.Errorf("not found: %s", r)
		}
		t.Log(r)
	}
	if (len(m.Control) > 0 || m.Package != "") && !t.Failed() {
		atMost := max(row{trials: trials}.worst(), 10*time.Second)
		if m.Package != "" {
			atMost = 1 // Once: with every test run, this test runs too.
		}
		// Delays may make writes slow (I10).
		c := run(t, compile(t, dirs, m, m.Control), m, atMost)
		if c.Found != "" && c.Found != "I10" {
			t.Errorf("without the bug: %s", c)
		}
		t.Logf("without the bug: %s", c)
	}
	return trials
}

// compile builds the tests that look for a mutant with edits. Those of this package have TestTrial.
func compile(t *testing.T, dirs Dirs, m *Mutant, edits []Edit) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "trial.test")
	pkg := "./" + cmp.Or(m.Package, "server/servertest/mutants")
	goes(t, dirs, edits, []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary, pkg})
	return binary
}

// goes runs the go command on the sources with edits.
func goes(t *testing.T, dirs Dirs, edits []Edit, command []string) {
	t.Helper()
	args, err := Arguments(t.TempDir(), dirs, edits)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", slices.Concat(command[:1], args, command[1:])...)
	cmd.Dir = dirs[""]
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", command[0], err, out)
	}
}

// run runs a binary seed after seed, from a fresh one on, until it finds a violation or has used
// its processor time. The test of another package runs again and again.
func run(t *testing.T, binary string, m *Mutant, atMost time.Duration) *trial {
	t.Helper()
	seed := cmp.Or(*first, rand.Uint64()>>16)
	if m.Test != "" {
		seed = 1 // counts the runs of a test that draws its own seeds
	}
	sum := &trial{First: seed, Seed: seed - 1, Test: m.Test, Seen: map[string]int{}}
	for sum.Found == "" && sum.took() < atMost {
		sum.take(process(t, binary, m, sum.Seed+1, atMost-sum.took()))
	}
	return sum
}

// take adds the result of later seeds.
func (r *trial) take(later *trial) {
	r.Seed, r.Found, r.Detail = later.Seed, later.Found, later.Detail
	r.Seconds, r.PowerLosses = r.Seconds+later.Seconds, r.PowerLosses+later.PowerLosses
	for what, n := range later.Seen {
		r.Seen[what] += n
	}
}

// process runs a binary in a process of its own, seed after seed, for so much processor time. The
// process may end earlier, see leaked. The test of another package runs once.
func process(t *testing.T, binary string, m *Mutant, seed uint64, atMost time.Duration) *trial {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary, "-test.run=^"+cmp.Or(m.Test, "TestTrial")+"$", "-test.timeout="+patience(t, atMost).String())
	if m.Test == "" {
		cmd.Args = append(cmd.Args, "-trial.seed="+strconv.FormatUint(seed, 10), "-trial.time="+atMost.String(),
			"-trial.kinds="+strings.Join(m.Faults, ","), "-trial.every="+cmp.Or(m.Every, 2*time.Second).String(), "-trial.held="+strconv.FormatBool(m.Held))
		// as make sim sets it
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "GODEBUG=asyncpreemptoff=1,randseednop=0")
	} else {
		cmd.Dir = t.TempDir() // A failed property test leaves a file.
		if draws(t, m.Package) {
			// How small the failing case is does not matter here.
			cmd.Args = append(cmd.Args, "-rapid.shrinktime=1s")
		}
	}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	r := &trial{Seed: seed - 1}
	for line := range strings.Lines(stdout.String()) {
		if _, text, ok := strings.Cut(line, trialPrefix); ok {
			if err := json.Unmarshal([]byte(text), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Seconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if m.Test != "" {
		if r.Seed = seed; err != nil {
			r.Found, r.Detail = failure(m.Test, stdout.String()+stderr.String())
		}
		return r
	}
	if err == nil && r.Seen == nil {
		t.Fatal("the trial has printed no result")
	}
	if err == nil || r.Found != "" {
		return r
	}
	// It ended in the seed after the last that it printed, or while that seed's bubble ended.
	if said := stdout.String() + stderr.String(); !leaked(said) {
		r.Found, r.Detail = "panic", firstPanic(said)
		r.Seed++
		if strings.Contains(r.Detail, "test timed out") {
			t.Log(said) // The goroutines tell a world that hangs from a machine that is busy.
		}
	}
	return r
}

// draws reports whether a package has property tests, so that its test binary has rapid's flags.
func draws(t *testing.T, pkg string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", pkg, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", pkg, err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(text, []byte(`"pgregory.net/rapid"`))
	})
}

// failure returns what ended the test of another package, and the first line about it.
func failure(test, out string) (found, detail string) {
	_, after, failed := strings.Cut(out, "--- FAIL: "+test+" ")
	if !failed {
		return "panic", firstPanic(out)
	}
	lines := strings.SplitN(after, "\n", 3)
	return test, strings.TrimSpace(lines[min(1, len(lines)-1)])
}

// patience is how long a process may take for so much processor time. Other programs may leave it a
// twentieth of a processor.
func patience(t *testing.T, processor time.Duration) time.Duration {
	longest := 20*processor + 5*time.Minute
	if deadline, ok := t.Deadline(); ok {
		longest = min(longest, time.Until(deadline)*9/10) // This test reports it.
	}
	return longest
}

// leaked reports whether a process ended because a bubble was left with no goroutines but those
// that wait for a future which hashicorp/raft forgot at shutdown. A real process ends with them.
func leaked(out string) bool {
	_, stacks, ended := strings.Cut(out, "main bubble goroutine has exited but blocked goroutines remain")
	if !ended {
		return false
	}
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		if head, _, _ := strings.Cut(stack, "\n"); strings.Contains(head, "synctest bubble") &&
			!strings.Contains(stack, "raft.(*deferError).Error") {
			return false
		}
	}
	return true
}

func firstPanic(out string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return strings.TrimSpace(line)
		}
	}
	return out
}

// row is a line of the table: the runs of one mutant.
type row struct {
	name   string
	trials []*trial
}

// sorted are the processor times of the runs.
func (r row) sorted() []time.Duration {
	var all []time.Duration
	for _, one := range r.trials {
		all = append(all, one.took())
	}
	slices.Sort(all)
	return all
}

func (r row) worst() time.Duration { return slices.Max(append(r.sorted(), 0)) }

// found returns how many runs found the mutant, and all invariants that they name.
func (r row) found() (times int, by []string) {
	for _, one := range r.trials {
		if one.Found == "" {
			continue
		}
		times++
		by = append(by, strings.Split(one.Found, ", ")...)
	}
	slices.Sort(by)
	return times, slices.Compact(by)
}

// write writes the table of the results.
func write(t *testing.T, rows []row) {
	t.Helper()
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mutant\tfound\tmedian s\tworst s\tseeds in all\tfound by")
	for _, r := range rows {
		if len(r.trials) == 0 {
			continue
		}
		times, by := r.found()
		seeds := uint64(0)
		for _, one := range r.trials {
			seeds += one.Seed - one.First + 1
		}
		fmt.Fprintf(w, "%s\t%d of %d\t%.1f\t%.1f\t%d\t%s\n", r.name, times, len(r.trials),
			r.sorted()[len(r.trials)/2].Seconds(), r.worst().Seconds(), seeds, strings.Join(by, ", "))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
	if *table != "" {
		if err := os.WriteFile(*table, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
