package sim

import (
	"flag"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seed   = flag.Uint64("sim.seed", 1, "the first seed")
	seeds  = flag.Int("sim.seeds", 1, "how many seeds")
	length = flag.Duration("sim.time", time.Minute, "fake time of a plan")
	every  = flag.Duration("sim.every", time.Second, "mean time between two faults; negative: none")
	trace  = flag.Bool("sim.log", false, "write what happens to standard error")
)

func TestSim(t *testing.T) {
	for i := range *seeds {
		began := time.Now()
		var r *Result
		synctest.Test(t, func(t *testing.T) {
			opts := Options{Seed: *seed + uint64(i), Every: *every, Length: *length}
			if *trace {
				opts.Log = os.Stderr
			}
			r = Run(opts)
		})
		t.Logf("seed %d: %s in %s, %d faults: %v", *seed+uint64(i), r.Fake, time.Since(began), len(r.Plan), r.Happened)
		for _, b := range r.Broken {
			t.Error(b)
		}
		if r.Report != nil {
			t.Log(r.Report.String())
			if len(r.Report.Violations) > 0 {
				t.Error("violations")
			}
		}
	}
}
