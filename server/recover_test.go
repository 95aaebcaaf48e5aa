package server

import (
	"os"
	"slices"
	"testing"

	"runlog/server/offline"
	"runlog/testbed/bubble"
)

// TestRecover: the last of three nodes continues alone with every acknowledged event. A lost node
// that returns is refused as a non-member, and new nodes join.
func TestRecover(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3, eachOnDisk(t))
		for i := range 10 {
			all[i%3].mustAppend("run", numbered(i))
		}
		all.wantSame("run", 10)
		all.close()
		left, lost := all[1], all[2]
		left.opts.Join, left.opts.BootstrapExpect = nil, 0
		r, err := offline.Recover(offlineOptions(left.opts))
		if err != nil || r.NodeID != left.opts.NodeID || !slices.Equal(r.Lost, []string{all[0].opts.NodeID, lost.opts.NodeID}) {
			t.Fatalf("recovery %+v, %v", r, err)
		}
		left.opts.Registry = nil
		left.start()
		wantEqual(t, "last", left.append("run", numbered(10)).LastSeq, uint64(11))

		// The lost node starts again and stops itself.
		failed := make(chan error, 10)
		lost.opts.Registry, lost.opts.Fail = nil, telling(failed)
		if s, err := Start(t.Context(), lost.opts); err == nil {
			err = <-failed
			t.Logf("the lost node says: %v", err)
			_ = s.Close()
		} else {
			t.Logf("the lost node does not start: %v", err)
		}

		if members, err := left.server.replica.Node().CommittedMembers(); err != nil || len(members) != 1 {
			t.Errorf("members after the recovery: %v, %v", members, err)
		}
		young := &node{t: t, opts: diskOptions(t)}
		young.opts.NodeID, young.opts.Join = "young", []string{left.opts.RaftListen}
		young.opts.JoinToken = left.joinToken()
		young.start()
		t.Cleanup(young.close)
		nodes{left, young}.wantSame("run", 11)
		wantEqual(t, "last", young.append("run", numbered(11)).LastSeq, uint64(12))
		bubble.Until(t, "the new node votes", func() bool {
			members, err := left.server.replica.Node().CommittedMembers()
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
		opts := diskOptions(t)
		opts.DataDir = t.TempDir()
		if r, err := offline.Recover(offlineOptions(opts)); err == nil {
			t.Fatalf("recovery %+v", r)
		}
		if files, err := os.ReadDir(opts.DataDir); err != nil || len(files) > 0 {
			t.Fatalf("left behind: %v, %v", files, err)
		}
	})
}
