package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Invariant names what must hold.
type Invariant string

// The invariants. Check looks at I1 to I9 and at the two without a number.
const (
	// AckedIsStored, I1: every acknowledged event is on all nodes, exactly as it was acknowledged.
	AckedIsStored Invariant = "I1"
	// OnePerKey, I2: one record a key, sent by a client and not refused; repeated answers are
	// equal.
	OnePerKey Invariant = "I2"
	// Numbered, I3: runSeq counts from 1 without gaps, and the log is the same everywhere.
	Numbered Invariant = "I3"
	// Stamped, I4: persistedAt rises strictly from proposal to proposal, and is the same
	// everywhere.
	Stamped Invariant = "I4"
	// WindowsClose, I5: a closed window never changes, and nothing comes behind a completeThrough.
	WindowsClose Invariant = "I5"
	// SnapshotsFold, I6: a snapshot is the fold of the run's events.
	SnapshotsFold Invariant = "I6"
	// WatermarksRise, I7: the watermarks of one subscriber never go back, and never ahead.
	WatermarksRise Invariant = "I7"
	// Linearizable, I8: appends and reads of a run are.
	Linearizable Invariant = "I8"
	// HashesAgree, I9: the rolling hash is the same wherever two nodes have applied as much.
	HashesAgree Invariant = "I9"
	// Progress, I10: appends succeed again once faults end. It is for whoever makes the faults.
	Progress Invariant = "I10"
	// FaultsHappened, I11: every kind of fault did happen. It is for whoever makes the faults.
	FaultsHappened Invariant = "I11"
	// Chained: the chain of digests follows from the records (APP-11).
	Chained Invariant = "chain"
	// WellFormed: the history itself makes sense.
	WellFormed Invariant = "history"
)

// Violation is one thing that does not hold.
type Violation struct {
	Invariant Invariant
	Run       string // empty where it is about none
	Detail    string
	Ops       []int // indexes in History.Ops, of those that show it
}

// Report is what a check found.
type Report struct {
	// Counts tells what was looked at, by kind.
	Counts map[string]int
	// Violations are at most 100 of each invariant; More counts the rest.
	Violations []Violation
	More       int

	history *History
	kept    map[Invariant]int
}

const (
	keptPerInvariant = 100
	shownViolations  = 10
)

// OK tells whether everything holds.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// Add notes a violation; ops are indexes in the history.
func (r *Report) Add(inv Invariant, run string, ops []int, format string, args ...any) {
	if r.kept == nil {
		r.kept = map[Invariant]int{}
	}
	if r.kept[inv] == keptPerInvariant {
		r.More++
		return
	}
	r.kept[inv]++
	r.Violations = append(r.Violations, Violation{inv, run, fmt.Sprintf(format, args...), ops})
}

// Has tells whether an invariant is violated.
func (r *Report) Has(inv Invariant) bool { return r.kept[inv] > 0 }

func (r *Report) count(what string, n int) { r.Counts[what] += n }

// String says what was checked, and shows the first violations with the operations that show them,
// those of each invariant in turn.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d violations", len(r.Violations)+r.More)
	for _, what := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&b, ", %d %s", r.Counts[what], what)
	}
	b.WriteByte('\n')
	shown := r.shown()
	for _, v := range shown {
		fmt.Fprintf(&b, "%s", v.Invariant)
		if v.Run != "" {
			fmt.Fprintf(&b, " run %s", v.Run)
		}
		fmt.Fprintf(&b, ": %s\n", v.Detail)
		for _, i := range v.Ops {
			if r.history != nil && i < len(r.history.Ops) {
				fmt.Fprintf(&b, "    #%d %s\n", i, &r.history.Ops[i])
			}
		}
	}
	if rest := len(r.Violations) + r.More - len(shown); rest > 0 {
		fmt.Fprintf(&b, "and %d more\n", rest)
	}
	return b.String()
}

// shown takes the first of every invariant, then the second of every one, and so on.
func (r *Report) shown() []Violation {
	rank := make([]int, len(r.Violations))
	seen := map[Invariant]int{}
	order := make([]int, len(r.Violations))
	for i, v := range r.Violations {
		rank[i], order[i] = seen[v.Invariant], i
		seen[v.Invariant]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return rank[a] - rank[b] })
	var out []Violation
	for _, i := range order[:min(shownViolations, len(order))] {
		out = append(out, r.Violations[i])
	}
	return out
}
