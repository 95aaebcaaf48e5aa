package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"runlog/server"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// build gives a node the machines of an older build, or of a newer build with one more machine.
func build(newer bool) func(int, *server.Options) {
	return func(_ int, o *server.Options) {
		o.Store.Machines, o.Store.FeatureLevel = machine.All(), 1
		if newer {
			o.Store.Machines, o.Store.FeatureLevel = storagetest.Machines(), 2
		}
	}
}

// newOperation is an operation that level 1 does not know.
func newOperation(t testing.TB) storage.Command {
	t.Helper()
	value := "x"
	c, err := storagetest.Request{Write: &storagetest.Write{Rows: []storagetest.WriteRow{{Key: "T1", Value: &value}}, Needs: 2}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRollingUpgradeRaisesLevel upgrades nodes one after the other under load. Until the last
// upgrade, the leader refuses operations of the new build, no node gets one that it cannot apply,
// and a node may return to the older build. Then the level rises by itself, the operations are
// accepted, and the older build is refused with one line.
func TestRollingUpgradeRaisesLevel(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ns := servertest.StartNodes(t, 3, build(false))
		ns.Leader().MustAppend("run", servertest.Steps(fmt.Sprint("s", 0), 1)...)
		upgrade := func(n *servertest.Node, newer bool) {
			n.Close()
			build(newer)(0, &n.Opts)
			n.Start()
			ns.Leader()
		}
		refused := func() {
			t.Helper()
			leader := ns.Leader()
			_, err := leader.Server.Internals().Replica.Submit(t.Context(), newOperation(t))
			var level *storage.LevelError
			if !errors.As(err, &level) && !errors.Is(err, storage.ErrUnknownOperation) {
				t.Fatalf("a new operation at level 1: %v", err)
			}
		}
		for i, n := range ns {
			refused()
			upgrade(n, true)
			ns.Leader().MustAppend("run", servertest.Steps(fmt.Sprint("s", i+1), 1)...)
			if i == 1 { // it can be taken back
				upgrade(n, false)
				refused()
				upgrade(n, true)
			}
		}
		bubble.Until(t, "the level has risen", func() bool {
			o, err := ns.Leader().Server.Internals().Replica.Submit(t.Context(), newOperation(t))
			if err == nil && (o.Err != nil || string(o.Answers[0].Reply) != `"T1"="x" `) {
				t.Fatalf("outcome %+v", o)
			}
			return err == nil
		})
		for _, n := range ns {
			bubble.Until(t, n.Opts.NodeID+" is at level 2", func() bool { return n.Server.Internals().Replica.Store().Level() == 2 })
		}
		n := ns.Followers()[0]
		if err := n.Server.Internals().Replica.Store().MakeDurable(n.Server.Internals().Replica.Store().Applied().Index); err != nil {
			t.Fatal(err)
		}
		n.Close()
		build(false)(0, &n.Opts)
		err := n.TryStart(t.Context())
		var old *storage.BuildTooOldError
		if !errors.As(err, &old) || old.Level != 2 || old.Supports != 1 || strings.Contains(err.Error(), "\n") {
			t.Fatalf("an older build starts: %v", err)
		}
		upgrade(n, true)
		ns.Leader().MustAppend("run", servertest.Steps("last", 1)...)

		late := &servertest.Node{T: t, Opts: servertest.Options(t)}
		late.Opts.NodeID, late.Opts.Join = "late", []string{ns.Leader().Opts.RaftListen}
		late.Opts.JoinToken = ns.Leader().JoinToken()
		build(false)(0, &late.Opts)
		err = late.TryStart(t.Context())
		t.Cleanup(late.Close)
		if err == nil || !strings.Contains(err.Error(), "upgrade the node's binary") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("an older build joins at level 2: %v", err)
		}
	})
}
