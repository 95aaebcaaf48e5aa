package server

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestLagAlertPRJ11: PROJECTOR_LAG_HIGH is raised once when snapshots are too far behind, and again
// only after they have caught up.
func TestLagAlertPRJ11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, onDisk(t))
		var w lagWatch
		for _, c := range []struct {
			lag    time.Duration
			alerts float64
		}{{0, 0}, {5 * time.Second, 0}, {5*time.Second + 1, 1}, {time.Hour, 1}, {time.Second, 1}, {6 * time.Second, 2}} {
			n.server.checkLag(&w, c.lag, 1, time.Unix(0, 0))
			if w.raised != (c.lag > 5*time.Second) {
				t.Errorf("lag %v: raised %v", c.lag, w.raised)
			}
			wantEqual(t, "alerts", n.metric("runlog_projector_lag_alerts_total"), c.alerts)
		}
	})
}

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

// TestLagAfterRestorePRJ11: a restored node, and a node whose projection database was deleted,
// start without an alert, however old their events are.
func TestLagAfterRestorePRJ11(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		later := func(o *Options) { o.Clock = func() time.Time { return time.Now().Add(time.Hour) } }
		old := startNode(t, onDisk(t))
		for i := range 40 { // more than is folded while a node starts
			var events []*runlogv1.EventWrite
			for j := range 1000 {
				events = append(events, numbered(j))
			}
			old.append(fmt.Sprint("run-", i), events...)
		}
		repo := newRepository(t)
		old.backUp(repo)
		restored := restoredFrom(t, repo, "", later)
		restored.start()
		old.restart(func() {
			later(&old.opts)
			if err := os.RemoveAll(filepath.Join(old.opts.DataDir, "projection")); err != nil {
				t.Fatal(err)
			}
		})
		for _, n := range []*node{restored, old} {
			n.settle()
			if runs := n.server.projector.Position(); runs == 0 {
				t.Error("nothing was folded")
			}
			wantEqual(t, "alerts", n.metric("runlog_projector_lag_alerts_total"), 0)
		}
	})
}
