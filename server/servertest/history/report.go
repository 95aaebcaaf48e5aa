package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Invariant names an invariant.
type Invariant string

// The invariants. Check checks I1 to I9 and those without a number.
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
	// WindowsClose, I5: a closed window never changes, and no event comes at or before a
	// completeThrough.
	WindowsClose Invariant = "I5"
	// SnapshotsFold, I6: a snapshot is the fold of the run's events.
	SnapshotsFold Invariant = "I6"
	// WatermarksRise, I7: the watermarks of one subscriber never go back, and never ahead.
	WatermarksRise Invariant = "I7"
	// Linearizable, I8: the appends and reads of a run are linearizable.
	Linearizable Invariant = "I8"
	// HashesAgree, I9: two nodes that have applied the same index have the same rolling hash.
	HashesAgree Invariant = "I9"
	// Progress, I10: appends succeed again after faults end. The caller that makes the faults
	// checks it.
	Progress Invariant = "I10"
	// FaultsHappened, I11: every kind of fault happened. The caller that makes the faults checks
	// it.
	FaultsHappened Invariant = "I11"
	// Chained: the chain of digests follows from the records (APP-11).
	Chained Invariant = "chain"
	// Rooted: at each size, the tree of records has the root of the log (TR-1).
	Rooted Invariant = "tree"
	// Queued: appends to a run that went through one queue of a client's library are stored in the
	// order of the calls.
	Queued Invariant = "queue"
	// DeliveredInOrder: no event that matches a subscription is skipped, comes too early, or comes
	// again without a cause (BUS-3, BUS-4, BUS-6).
	DeliveredInOrder Invariant = "bus"
	// Paced: the stamps of one leader advance by what elapses, give or take a tenth (APP-5).
	// CheckRate checks it.
	Paced Invariant = "rate"
	// WellFormed: the history itself is consistent.
	WellFormed Invariant = "history"
)

// Violation is one violation of an invariant.
type Violation struct {
	Invariant Invariant
	Run       string // empty where it is about none
	Detail    string
	Ops       []int // indexes in History.Ops, of those that show it
}

// Report is the result of a check.
type Report struct {
	// Counts tells what was checked, by kind.
	Counts map[string]int
	// Violations has at most 100 violations of each invariant. More counts the rest.
	Violations []Violation
	More       int

	history *History
	kept    map[Invariant]int
}

const (
	keptPerInvariant = 100
	shownViolations  = 10
)

// OK reports whether there is no violation.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// Add adds a violation; ops are indexes in the history.
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

// Has reports whether an invariant is violated.
func (r *Report) Has(inv Invariant) bool { return r.kept[inv] > 0 }

func (r *Report) count(what string, n int) { r.Counts[what] += n }

// String lists what was checked, and the first violations with their operations, those of each
// invariant in turn.
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
