package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/raft"
	"runlog/raft/witness"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestGoodDirectoriesGoOnD3: whatever happens to a node that keeps its directory, it continues. The
// others remember nothing that its directory does not have.
func TestGoodDirectoriesGoOnD3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t), func(_ int, o *server.Options) { o.Raft.TrailingEntries, o.Raft.TrailingBytes = 1, 1 })
		events := 0
		more := func(ns servertest.Nodes) {
			for range 5 {
				ns[events%len(ns)].MustAppend("run", servertest.Numbered(events))
				events++
			}
		}
		restart := func(n *servertest.Node) {
			n.Opts.Registry = nil
			n.Start()
		}
		forget := func(name string) {
			for _, n := range all {
				if err := os.Remove(filepath.Join(n.Opts.DataDir, "raft", name)); err != nil {
					t.Error(err)
				}
			}
		}
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"restarted one by one", func() {
				for _, n := range all {
					n.Restart()
					more(all)
				}
			}},
			{"restarted while another one is down", func() {
				all[0].Close()
				more(all[1:])
				all[1].Restart()
				more(all[1:])
				restart(all[0])
			}},
			{"given a snapshot, and restarted after that", func() {
				all[2].Close()
				more(all[:2])
				for _, n := range all[:2] {
					if err := n.Server.Internals().Replica.Node().Truncate(); err != nil {
						t.Error(err)
					}
				}
				more(all[:2])
				restart(all[2])
				all.WantSame("run", uint64(events))
				if all[2].Server.Internals().Replica.Store().Installed() == 0 {
					t.Error("no snapshot was installed")
				}
				all[2].Restart()
			}},
			{"all restarted, with their memory of the others lost", func() {
				all.Close()
				forget("witness")
				for _, n := range all {
					n.Opts.Registry = nil
				}
				all.Start()
			}},
			{"upgraded from a build without incarnations", func() {
				all.Close()
				forget("witness")
				forget("incarnations")
				for _, n := range all {
					n.Opts.Registry = nil
				}
				all.Start()
			}},
			{"moved to another directory and address", func() {
				all[1].Restart(func() {
					dir := filepath.Join(t.TempDir(), "moved")
					if err := os.Rename(all[1].Opts.DataDir, dir); err != nil {
						t.Fatal(err)
					}
					all[1].Opts.DataDir, all[1].Opts.RaftListen = dir, servertest.FreeAddresses(t, 1)[0]
				})
			}},
		} {
			step.do()
			more(all)
			all.WantSame("run", uint64(events))
			t.Logf("%s: %d events", step.name, events)
		}
	})
}

// TestCopyFromBeforeTheOthersD3: the directory of the first node of a cluster is put back from a
// copy that was made when the node was alone. It knows none of those that remember more, and leads
// at once; their greetings stop it. It names what it has taken meanwhile.
func TestCopyFromBeforeTheOthersD3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 1, servertest.EachOnDisk(t), func(_ int, o *server.Options) { o.Join, o.BootstrapExpect = nil, 0 })
		all[0].MustAppend("run", servertest.Numbered(0))
		copied := filepath.Join(t.TempDir(), "copy")
		all[0].Restart(func() {
			if err := os.CopyFS(copied, os.DirFS(all[0].Opts.DataDir)); err != nil {
				t.Fatal(err)
			}
		})
		for _, id := range []string{"b", "c"} {
			n := &servertest.Node{T: t, Opts: servertest.DiskOptions(t)}
			n.Opts.NodeID, n.Opts.Join, n.Opts.Raft = id, []string{all[0].Opts.RaftListen}, all[0].Opts.Raft
			n.Opts.JoinToken = all[0].JoinToken()
			n.Start()
			t.Cleanup(n.Close)
			all = append(all, n)
		}
		bubble.Until(t, "all vote", func() bool {
			voters := 0
			for _, m := range all[1].Server.Internals().Replica.Node().Members() {
				if m.Voter {
					voters++
				}
			}
			return voters == 3
		})
		all[0].MustAppend("run", servertest.Numbered(1))
		all.WantSame("run", 2)
		first := all[0]
		first.Close()
		all[1].MustAppend("run", servertest.Numbered(2))

		stopped := make(chan error, 10)
		first.Opts.DataDir, first.Opts.Registry = copied, nil
		first.Opts.Fail = servertest.Telling(stopped)
		s, err := server.Start(t.Context(), first.Opts)
		if err == nil {
			defer s.Close()
			select {
			case err = <-stopped:
			case <-time.After(servertest.Patience):
				t.Fatalf("the older copy goes on: %+v", s.Internals().Replica.Node().Members())
			}
		}
		if !errors.Is(err, witness.ErrOlderCopy) || !strings.Contains(fmt.Sprint(err), "runlog cluster remove") {
			t.Errorf("the older copy stops itself because of %v", err)
		}
		all[2].MustAppend("run", servertest.Numbered(3))
		all[1:].WantSame("run", 4)
	})
}

// TestTwoLeadersOfOneTermD3: an older copy has forgotten the vote with which a leader was elected,
// and votes for another one in the same term. At the end of its log, the node that has what the
// first leader acknowledged has an entry with the index and the term of another entry of the second
// leader. Raft takes them for the same. The node stops itself, and the salvage knows from where on.
func TestTwoLeadersOfOneTermD3(t *testing.T) {
	t.Parallel()
	for range 20 { // an election can take two terms
		came := false
		bubble.Test(t, func(t *testing.T) { came = twoLeadersOfOneTerm(t) })
		if came || t.Failed() {
			return
		}
	}
	t.Error("there never were two leaders of one term: the test proved nothing")
}

// twoLeadersOfOneTerm reports whether there were.
func twoLeadersOfOneTerm(t *testing.T) bool {
	all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t))
	behind, holder, older := all[0], all[1], all[2]
	all[0].MustAppend("run", servertest.Numbered(0))
	all.WantSame("run", 1)
	copied := filepath.Join(t.TempDir(), "copy")
	older.Restart(func() {
		if err := os.CopyFS(copied, os.DirFS(older.Opts.DataDir)); err != nil {
			t.Fatal(err)
		}
		behind.Close() // it remembers nothing that the copy lacks
	})
	common := indexOf(holder)
	holder.MustAppend("acknowledged", servertest.Numbered(0))
	holder.Restart()
	holder.MustAppend("acknowledged", servertest.Numbered(1))
	term, end := all[1:].Leader().Server.Internals().Replica.Node().Term(), indexOf(holder)
	holder.Close()
	older.Close()

	for _, n := range []*servertest.Node{behind, older} {
		n.Opts.Registry = nil
	}
	older.Opts.DataDir = copied
	older.Opts.Fail = servertest.Telling(make(chan error, 1)) // it may stop, too
	pair := servertest.Nodes{behind, older}
	pair.Start()
	if got := pair.Leader().Server.Internals().Replica.Node().Term(); got != term {
		t.Logf("the first leader was elected in term %d, the second in term %d", term, got)
		return false
	}
	for i := 0; indexOf(behind) < end; i++ {
		pair.Leader().MustAppend("later", servertest.Numbered(i))
	}
	servertest.MoveLeader(t, pair)
	pair.Leader().MustAppend("later", servertest.Numbered(1<<20))

	for range 3 { // as a supervisor would start it
		stopped := make(chan error, 1)
		holder.Opts.Registry, holder.Opts.Fail = nil, servertest.Telling(stopped)
		_ = holder.TryStart(t.Context()) // it may stop itself before it is ready
		var err error
		select {
		case err = <-stopped:
		case <-time.After(servertest.Patience):
			t.Fatal("the node that has what was acknowledged goes on")
		}
		if !errors.Is(err, raft.ErrDiverged) || !errors.Is(err, witness.ErrTwoLeaders) || !strings.Contains(fmt.Sprint(err), "runlog cluster salvage") {
			t.Errorf("it stops itself because of %v", err)
		}
		holder.Close()
		d, err := raft.ReadDivergence(vfs.Default, filepath.Join(holder.Opts.DataDir, "raft"))
		if err != nil || d == nil || d.First > common+1 || d.Last < end {
			t.Errorf("it keeps the divergence %+v, %v; acknowledged were entries %d to %d", d, err, common+1, end)
		}
	}
	return true
}

// indexOf returns the last index of a node's log.
func indexOf(n *servertest.Node) uint64 {
	return n.Server.Internals().Replica.Node().Progress().LastIndex
}
