package bench

import (
	"testing"

	"runlog/bench/benchtest"
	"runlog/bench/load"
	"runlog/bench/target"
)

// TestStaleRead: a read that does not show what was acknowledged before it is an error (READ-2).
func TestStaleRead(t *testing.T) {
	f := benchtest.NewStore()
	req := load.NewHistories(load.NewSession(50, load.FillText(50)), 3, 0).Next()
	if _, err := f.Append(req); err != nil {
		t.Fatal(err)
	}
	r := &reading{reader: fakeNode{f}}
	for seq, want := range map[uint64]string{3: "", 4: "STALE_READ"} {
		m := &load.Marked{Run: req.RunId, Seq: seq}
		for _, err := range []error{r.askRun(t.Context(), m), r.askSnapshot(t.Context(), m), r.askEvents(t.Context(), m)} {
			if want == "" && err != nil || want != "" && (err == nil || target.ReasonOf(err) != want) {
				t.Errorf("up to %d: want %q, got %v", seq, want, err)
			}
		}
	}
}
