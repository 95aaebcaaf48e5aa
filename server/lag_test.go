package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestLagAlertPRJ11: PROJECTOR_LAG_HIGH is raised once when snapshots are too far behind, and again
// only after they have caught up.
func TestLagAlertPRJ11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		var w server.LagWatch
		for _, c := range []struct {
			lag    time.Duration
			alerts float64
		}{{0, 0}, {5 * time.Second, 0}, {5*time.Second + 1, 1}, {time.Hour, 1}, {time.Second, 1}, {6 * time.Second, 2}} {
			n.Server.CheckLag(&w, c.lag, 1, time.Unix(0, 0))
			if w.Raised() != (c.lag > 5*time.Second) {
				t.Errorf("lag %v: raised %v", c.lag, w.Raised())
			}
			servertest.WantEqual(t, "alerts", n.Metric("runlog_projector_lag_alerts_total"), c.alerts)
		}
	})
}

// TestLagAfterRestorePRJ11: a restored node, and a node whose projection database was deleted,
// start without an alert, however old their events are.
func TestLagAfterRestorePRJ11(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		later := func(o *server.Options) { o.Clock = func() time.Time { return time.Now().Add(time.Hour) } }
		old := servertest.Start(t, servertest.OnDisk(t))
		for i := range 40 { // more than is folded while a node starts
			var events []*runlogv1.EventWrite
			for j := range 1000 {
				events = append(events, servertest.Numbered(j))
			}
			old.Append(fmt.Sprint("run-", i), events...)
		}
		repo := servertest.NewRepository(t)
		old.BackUp(repo)
		restored := servertest.RestoredFrom(t, repo, "", later)
		restored.Start()
		old.Restart(func() {
			later(&old.Opts)
			if err := os.RemoveAll(filepath.Join(old.Opts.DataDir, "projection")); err != nil {
				t.Fatal(err)
			}
		})
		for _, n := range []*servertest.Node{restored, old} {
			n.Settle()
			if runs := n.Server.Internals().Projector.Position(); runs == 0 {
				t.Error("nothing was folded")
			}
			servertest.WantEqual(t, "alerts", n.Metric("runlog_projector_lag_alerts_total"), 0)
		}
	})
}
