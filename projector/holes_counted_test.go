package projector

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/testbed/bubble"
)

// TestHolesAreToldPRJ12: a hole is counted once, and what is no hole is not.
func TestHolesAreToldPRJ12(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		reg := prometheus.NewRegistry()
		b.opts.Registerer = reg
		b.reopen()
		holes := func(want float64) {
			t.Helper()
			b.settle()
			if got := counted(t, reg, "runlog_projector_holes_total"); got != want {
				t.Errorf("%v holes, want %v", got, want)
			}
		}
		for range 3 {
			b.propose(b.more("run", 2), b.more("other", 1))
			b.settle()
		}
		holes(0)
		b.reopen(func() { b.lose("run") })
		b.propose(b.more("run", 1))
		holes(1)
		b.propose(b.more("run", 1))
		holes(1)
		b.check("after a hole")
		// One event alone is missing.
		b.propose(b.more("single", 1))
		b.settle()
		b.reopen(func() { b.lose("single") })
		b.propose(b.more("single", 1))
		b.check("after another")
	})
}
