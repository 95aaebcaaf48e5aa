package server

import (
	"testing"
	"time"

	"runlog/storage"
	"runlog/testbed/bubble"
)

// TestLagAtStartPRJ11: folding from scratch after a start raises no alert while it makes progress.
// The alert becomes possible after the first catch-up, or after a standstill longer than the limit.
func TestLagAtStartPRJ11(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const limit = 5 * time.Second
		type look struct {
			second   int
			lag      time.Duration
			at       storage.Position
			upToDate bool
			want     bool
		}
		for name, looks := range map[string][]look{
			"a long fold":            {{0, time.Hour, 0, true, false}, {1, time.Hour, 5, true, false}, {60, time.Hour, 6, true, false}, {61, 0, 7, true, false}, {62, limit + 1, 7, true, true}},
			"it stands still":        {{0, time.Hour, 3, true, false}, {5, time.Hour, 3, true, false}, {6, time.Hour, 3, true, true}, {7, time.Hour, 4, true, true}, {8, limit, 5, true, false}},
			"the log comes later":    {{0, 0, 3, false, false}, {1, time.Hour, 3, false, false}, {2, time.Hour, 4, true, false}, {3, limit, 9, true, false}, {4, time.Hour, 9, true, true}},
			"nothing to fold for it": {{0, 0, 3, true, false}, {1, time.Hour, 3, true, true}},
		} {
			w := lagWatch{starting: true}
			for _, l := range looks {
				if got := w.look(l.lag, limit, l.at, l.upToDate, time.Unix(int64(l.second), 0)); got != l.want {
					t.Errorf("%s, second %d: the alert stands: %t", name, l.second, got)
				}
			}
		}
	})
}
