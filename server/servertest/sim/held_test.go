package sim

import (
	"testing"
	"time"

	"runlog/storage/storagetest"
	"runlog/testbed/seed"
)

// TestHeldBUS3QUE6: a cluster that was made from a backup hands out no lease and no event, through
// restarts and changes of the leader, until it is released. Then all that has waited continues.
func TestHeldBUS3QUE6(t *testing.T) {
	storagetest.Large(t)
	opts := Options{
		Seed: seed.New(t), Held: true, Length: 20 * time.Second, Every: 500 * time.Millisecond, Kinds: map[Kind]int{Restart: 1, Transfer: 2, Kill: 1},
	}
	r, _ := inBubble(t, opts)
	if !r.OK() {
		t.Fatalf("seed %d: %v\n%s", opts.Seed, r.Invariants(), r)
	}
	if r.Seen[Released] != 1 || r.Seen[Leaders] < 3 || r.Report.Counts["deliveries"] == 0 {
		t.Errorf("seed %d: %v, %v", opts.Seed, r.Seen, r.Report.Counts)
	}
}
