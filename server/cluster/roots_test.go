package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"runlog/projector/tree"
	"runlog/server/cluster"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// otherTree changes a byte of a hash in the tree of records of a node that is closed.
func otherTree(t *testing.T, n *servertest.Node, at int) {
	t.Helper()
	fs := n.Opts.FS
	db, err := pebble.Open(fs.PathJoin(n.Opts.DataDir, "projection"), &pebble.Options{
		FS: storage.WithMarkers(fs), FormatMajorVersion: pebble.FormatValueSeparation, DisableWAL: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte{tree.Tables[0], 0} // the edge of the leaves
	row, closer, err := db.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	row = slices.Clone(row)
	row[8+at] ^= 1
	if err := errors.Join(closer.Close(), db.Set(key, row, pebble.NoSync), db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// wantRootAlert waits until so many voters have another tree than a node, which raises the alert.
func wantRootAlert(t *testing.T, n *servertest.Node, voters float64) {
	t.Helper()
	bubble.Until(t, "the alert", func() bool { return n.Metric("runlog_cluster_tree_differs") == voters })
	survey, err := n.Server.Internals().Cluster.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range survey.Members {
		m := &survey.Members[i]
		raises := slices.Contains(m.About.Alerts, cluster.AlertRootDiffers)
		if cluster.NodeIDOf(m.Member.ID) == n.Opts.NodeID && raises != (voters > 0) {
			t.Errorf("node %s raises %q", n.Opts.NodeID, m.About.Alerts)
		}
	}
}

// TestRootDiffersTR1: the nodes of a cluster compare their trees of records. One that has another
// tree than a majority stops itself, whether it leads or not, and says what to do; the others
// continue. Without its projections it makes the tree of the others.
func TestRootDiffersTR1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		for i := range 20 {
			all[i%3].MustAppend("run", servertest.Numbered(i))
		}
		all.WantSame("run", 20)
		time.Sleep(time.Minute)
		for _, n := range all {
			if got := n.Metric("runlog_cluster_tree_differs"); got != 0 {
				t.Errorf("node %s finds %v other trees among equal ones", n.Opts.NodeID, got)
			}
		}
		wrong := all[1]
		stopped := make(chan error, 1)
		wrong.Opts.Fail = servertest.Telling(stopped)
		wrong.Restart(func() { otherTree(t, wrong, 0) })
		for i := range 5 {
			all[0].MustAppend("run", servertest.Numbered(20+i)) // larger trees differ too
		}
		select {
		case err := <-stopped:
			for _, want := range []string{"Remove the directory projection", "runlog cluster remove " + wrong.Opts.NodeID} {
				if !errors.Is(err, cluster.ErrRootDiffers) || !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("it stops itself because of %v; want %q", err, want)
				}
			}
		case <-time.After(servertest.Patience):
			t.Fatal("the node with another tree goes on")
		}
		for _, n := range []*servertest.Node{all[0], all[2]} {
			n.MustAppend("other", servertest.Numbered(0))
		}
		wrong.Opts.Fail = func(err error) { t.Errorf("the node stopped itself again: %v", err) }
		wrong.Restart(func() {
			if err := wrong.Opts.FS.RemoveAll(wrong.Opts.FS.PathJoin(wrong.Opts.DataDir, "projection")); err != nil {
				t.Fatal(err)
			}
		})
		time.Sleep(time.Minute)
		all.WantSame("run", 25)
	})
}

// TestOneOfTwoDiffersTR1: where no majority says which tree is wrong, both nodes raise an alert,
// and continue.
func TestOneOfTwoDiffersTR1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 2)
		all[0].MustAppend("run", servertest.Numbered(0), servertest.Numbered(1))
		all.WantSame("run", 2)
		all[1].Restart(func() { otherTree(t, all[1], 0) })
		for _, n := range all {
			wantRootAlert(t, n, 1)
		}
		all[0].MustAppend("run", servertest.Numbered(2))
		all.WantSame("run", 3)
	})
}

// TestThreeDifferTR1: of three nodes, two have other trees, each another one. No majority has one
// tree, so none stops, each raises the alert as long as the trees differ, and the cluster serves.
// Once one of the two has made its tree from the log, the other one differs from a majority, and
// stops. The alerts end when it has made its tree too.
func TestThreeDifferTR1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		for i := range 20 {
			all[i%3].MustAppend("run", servertest.Numbered(i))
		}
		all.WantSame("run", 20)
		var stopped [3]chan error
		for i, n := range all {
			stopped[i] = make(chan error, 1)
			n.Opts.Fail = servertest.Telling(stopped[i])
			n.Restart(func() {
				if i > 0 {
					otherTree(t, n, i)
				}
			})
		}
		wantNone := func(of ...int) {
			t.Helper()
			time.Sleep(time.Minute)
			for _, i := range of {
				select {
				case err := <-stopped[i]:
					t.Fatalf("node %d stops itself: %v", i, err)
				default:
				}
			}
		}
		wantNone(0, 1, 2)
		for i, n := range all {
			wantRootAlert(t, n, 2)
			n.MustAppend("run", servertest.Numbered(20+i))
		}
		wantNone(0, 1, 2)
		fromLog := func(n *servertest.Node) {
			n.Restart(func() {
				if err := n.Opts.FS.RemoveAll(n.Opts.FS.PathJoin(n.Opts.DataDir, "projection")); err != nil {
					t.Fatal(err)
				}
			})
		}
		fromLog(all[1])
		if err := <-stopped[2]; !errors.Is(err, cluster.ErrRootDiffers) {
			t.Errorf("the last node with another tree stops itself because of %v", err)
		}
		wantRootAlert(t, all[0], 1)
		fromLog(all[2])
		wantNone(0, 1, 2)
		for _, n := range all {
			wantRootAlert(t, n, 0)
		}
		all.WantSame("run", 23)
	})
}
