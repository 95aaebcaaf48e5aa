package plan_test

import (
	"testing"
	"time"

	"runlog/engine/plan"
)

// TestDelay: the delay lies between 0 and the longest one, for all retries that a plan may have.
func TestDelay(t *testing.T) {
	t.Parallel()
	const year = 366 * 24 * time.Hour
	for _, r := range []plan.Retry{{}, {Initial: year, Max: year}, {Initial: 3 * time.Hour}, {Initial: 1, Max: year}, {Max: time.Millisecond}} {
		most := r.Max
		if most == 0 {
			most = max(r.Initial, time.Minute)
		}
		for n := int64(1); n <= 1000; n++ {
			if d := r.Delay(n); d < 0 || d > most {
				t.Fatalf("%+v: delay %v after attempt %d", r, d, n)
			}
		}
	}
}
