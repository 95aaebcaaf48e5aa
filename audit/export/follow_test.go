package export

import (
	"fmt"
	"testing"
)

// TestRunsAreForgotten: what is remembered of runs is bounded, and those that were seen lately are
// remembered.
func TestRunsAreForgotten(t *testing.T) {
	f := newFollower(&Report{}, "line")
	f.run("often").seq = 7
	for i := range 3 * maxRuns {
		f.run(fmt.Sprint("run-", i)).seq = 1
		if i%(maxRuns/2) == 0 && f.run("often").seq != 7 {
			t.Fatalf("forgotten after %d others", i)
		}
		if n := len(f.runs.young) + len(f.runs.old); n > 2*maxRuns {
			t.Fatalf("%d are remembered", n)
		}
	}
	if f.run("run-0").seq != 0 {
		t.Error("the first is remembered")
	}
}
