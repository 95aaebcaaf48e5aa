package history

import (
	"strings"
	"testing"
)

// TestReportIsReadable shows what a report says: counts, at most ten violations, those of each
// invariant first, and the operations that show them.
func TestReportIsReadable(t *testing.T) {
	h := &History{Ops: []Op{
		{Client: "c1", Node: "n1", Call: 1_000_000_000, Return: 1_500_000_000, Appends: []Append{{
			Run: "r", Events: []Event{{Key: "k", EventID: "0123456789abcdef"}}, Outcome: Outcome{Status: Acknowledged}, LastSeq: 2,
			Results: []Result{{EventID: "0123456789abcdef", RunSeq: 2, PersistedAt: 7, Idempotent: true, Diverged: true}},
		}}},
		{Client: "w", Call: 2_000_000_000, Return: 2_000_000_000, Mark: &Mark{Run: "r", LastEventSeq: 3}},
	}}
	r := Check(h, nil, &Final{Node: "n1"})
	for range 150 {
		r.Add(Progress, "", nil, "nothing is stored any more")
	}
	want := `153 violations, 1 append ops, 1 appends acknowledged, 1 duplicates, 1 events acknowledged, 1 mark ops, 1 nodes, 0 records, 0 runs
I1 run r: key k, acknowledged as runSeq 2, is not on node n1
    #0 c1 at n1 [00:00:01.000000000, 00:00:01.500000000] append to r k (0123456789ab…): acknowledged 2=0123456789ab…@7 duplicate diverged last 2
I8 run r: the run was told to be at 2; in the end it is at 0
    #0 c1 at n1 [00:00:01.000000000, 00:00:01.500000000] append to r k (0123456789ab…): acknowledged 2=0123456789ab…@7 duplicate diverged last 2
I7 run r: a watermark is at 3, and the log ends at 0
    #1 w [00:00:02.000000000] is told that run r is at 3
`
	got := r.String()
	if head, rest, _ := strings.Cut(got, "I10:"); head != want || strings.Count(rest, "I10:") != 6 || !strings.HasSuffix(rest, "and 143 more\n") {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if r.OK() || !r.Has(Progress) || r.Has(HashesAgree) || r.More != 50 {
		t.Errorf("OK %t, %d more", r.OK(), r.More)
	}
}

// TestReportIsRepeatable shows that the same input has the same report, as a seed that is run again
// must.
func TestReportIsRepeatable(t *testing.T) {
	broken := func() string {
		w := build(shape{seed: 4, runs: 9, clients: 5, ops: 300, unknown: 0.2, duplicates: 0.3})
		for _, f := range w.finals {
			f.Records = f.Records[:len(f.Records)/2]
		}
		return w.check().String()
	}
	if first := broken(); first != broken() {
		t.Error("reports differ")
	}
}
