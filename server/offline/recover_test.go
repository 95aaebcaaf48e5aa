package offline_test

import (
	"os"
	"slices"
	"testing"

	"runlog/server"
	"runlog/server/offline"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestRecover: the last of three nodes continues alone with every acknowledged event. A lost node
// that returns is refused as a non-member, and new nodes join.
func TestRecover(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t))
		for i := range 10 {
			all[i%3].MustAppend("run", servertest.Numbered(i))
		}
		all.WantSame("run", 10)
		before := all[1].Incarnation()
		all.Close()
		left, lost := all[1], all[2]
		left.Opts.Join, left.Opts.BootstrapExpect = nil, 0
		r, err := offline.Recover(servertest.OfflineOptions(left.Opts))
		if err != nil || r.NodeID != left.Opts.NodeID || !slices.Equal(r.Lost, []string{all[0].Opts.NodeID, lost.Opts.NodeID}) {
			t.Fatalf("recovery %+v, %v", r, err)
		}
		left.Opts.Registry = nil
		left.Start()
		servertest.WantEqual(t, "last", left.Append("run", servertest.Numbered(10)).LastSeq, uint64(11))

		// The lost node starts again and stops itself.
		failed := make(chan error, 10)
		lost.Opts.Registry, lost.Opts.Fail = nil, servertest.Telling(failed)
		if s, err := server.Start(t.Context(), lost.Opts); err == nil {
			err = <-failed
			t.Logf("the lost node says: %v", err)
			_ = s.Close()
		} else {
			t.Logf("the lost node does not start: %v", err)
		}

		if members, err := left.Server.Internals().Replica.Node().CommittedMembers(); err != nil || len(members) != 1 {
			t.Errorf("members after the recovery: %v, %v", members, err)
		}
		young := &servertest.Node{T: t, Opts: servertest.DiskOptions(t)}
		young.Opts.NodeID, young.Opts.Join = "young", []string{left.Opts.RaftListen}
		young.Opts.JoinToken = left.JoinToken()
		young.Start()
		t.Cleanup(young.Close)
		servertest.Nodes{left, young}.WantSame("run", 11)
		if now := left.Incarnation(); now == before || young.Incarnation() != now { // READ-7
			t.Errorf("incarnation %v before, %v after it, %v at a node that has joined", before, now, young.Incarnation())
		}
		servertest.WantEqual(t, "last", young.Append("run", servertest.Numbered(11)).LastSeq, uint64(12))
		bubble.Until(t, "the new node votes", func() bool {
			members, err := left.Server.Internals().Replica.Node().CommittedMembers()
			if err != nil {
				t.Fatal(err)
			}
			return len(members) == 2 && members[1].Voter
		})
	})
}

// TestRecoverNoNode: Recover does not turn a directory without an identity into a node.
func TestRecoverNoNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		opts := servertest.DiskOptions(t)
		opts.DataDir = t.TempDir()
		if r, err := offline.Recover(servertest.OfflineOptions(opts)); err == nil {
			t.Fatalf("recovery %+v", r)
		}
		if files, err := os.ReadDir(opts.DataDir); err != nil || len(files) > 0 {
			t.Fatalf("left behind: %v, %v", files, err)
		}
	})
}
