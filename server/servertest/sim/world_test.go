package sim

import (
	"errors"
	"fmt"
	"testing"

	"runlog/raft"
	"runlog/testbed/bubble"
)

// TestStopsAreExplained: of the stops of a node whose disk is good, only the one after which a node
// must start again is no violation.
func TestStopsAreExplained(t *testing.T) {
	for _, c := range []struct {
		err        error
		violations int
	}{
		{fmt.Errorf("%w: entries up to 7", raft.ErrOverruled), 0},
		{errors.New("another"), 1},
	} {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(Options{Seed: 1, Nodes: 1, Every: -1})
			n := w.nodes[0]
			n.powerOn()
			n.life.fail(c.err)
			w.end()
			if len(w.broken) != c.violations {
				t.Errorf("after %q: %q, want %d violations", c.err, w.broken, c.violations)
			}
		})
	}
}
