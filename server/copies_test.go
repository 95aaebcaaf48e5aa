package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/raft/witness"
	"runlog/testbed/bubble"
)

// TestGoodDirectoriesGoOnD3: whatever happens to a node that keeps its directory, it goes on. The
// others remember nothing that its directory does not have.
func TestGoodDirectoriesGoOnD3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3, eachOnDisk(t), func(_ int, o *Options) { o.Raft.TrailingEntries, o.Raft.TrailingBytes = 1, 1 })
		events := 0
		more := func(ns nodes) {
			for range 5 {
				ns[events%len(ns)].mustAppend("run", numbered(events))
				events++
			}
		}
		restart := func(n *node) {
			n.opts.Registry = nil
			n.start()
		}
		forget := func(name string) {
			for _, n := range all {
				if err := os.Remove(filepath.Join(n.opts.DataDir, "raft", name)); err != nil {
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
					n.restart()
					more(all)
				}
			}},
			{"restarted while another one is down", func() {
				all[0].close()
				more(all[1:])
				all[1].restart()
				more(all[1:])
				restart(all[0])
			}},
			{"given a snapshot, and restarted after that", func() {
				all[2].close()
				more(all[:2])
				for _, n := range all[:2] {
					if err := n.server.replica.Node().Truncate(); err != nil {
						t.Error(err)
					}
				}
				more(all[:2])
				restart(all[2])
				all.wantSame("run", uint64(events))
				if all[2].server.replica.Store().Installed() == 0 {
					t.Error("no snapshot was installed")
				}
				all[2].restart()
			}},
			{"all restarted, with their memory of the others lost", func() {
				all.close()
				forget("witness")
				for _, n := range all {
					n.opts.Registry = nil
				}
				all.start()
			}},
			{"upgraded from a build without incarnations", func() {
				all.close()
				forget("witness")
				forget("incarnations")
				for _, n := range all {
					n.opts.Registry = nil
				}
				all.start()
			}},
			{"moved to another directory and address", func() {
				all[1].restart(func() {
					dir := filepath.Join(t.TempDir(), "moved")
					if err := os.Rename(all[1].opts.DataDir, dir); err != nil {
						t.Fatal(err)
					}
					all[1].opts.DataDir, all[1].opts.RaftListen = dir, freeAddresses(t, 1)[0]
				})
			}},
		} {
			step.do()
			more(all)
			all.wantSame("run", uint64(events))
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
		all := startNodes(t, 1, eachOnDisk(t), func(_ int, o *Options) { o.Join, o.BootstrapExpect = nil, 0 })
		all[0].mustAppend("run", numbered(0))
		copied := filepath.Join(t.TempDir(), "copy")
		all[0].restart(func() {
			if err := os.CopyFS(copied, os.DirFS(all[0].opts.DataDir)); err != nil {
				t.Fatal(err)
			}
		})
		for _, id := range []string{"b", "c"} {
			n := &node{t: t, opts: diskOptions(t)}
			n.opts.NodeID, n.opts.Join, n.opts.Raft = id, []string{all[0].opts.RaftListen}, all[0].opts.Raft
			n.opts.JoinToken = all[0].joinToken()
			n.start()
			t.Cleanup(n.close)
			all = append(all, n)
		}
		bubble.Until(t, "all vote", func() bool {
			voters := 0
			for _, m := range all[1].server.replica.Node().Members() {
				if m.Voter {
					voters++
				}
			}
			return voters == 3
		})
		all[0].mustAppend("run", numbered(1))
		all.wantSame("run", 2)
		first := all[0]
		first.close()
		all[1].mustAppend("run", numbered(2))

		stopped := make(chan error, 10)
		first.opts.DataDir, first.opts.Registry = copied, nil
		first.opts.Fail = telling(stopped)
		s, err := Start(t.Context(), first.opts)
		if err == nil {
			defer s.Close()
			select {
			case err = <-stopped:
			case <-time.After(patience):
				t.Fatalf("the older copy goes on: %+v", s.replica.Node().Members())
			}
		}
		if !errors.Is(err, witness.ErrOlderCopy) || !strings.Contains(fmt.Sprint(err), "runlog cluster remove") {
			t.Errorf("the older copy stops itself because of %v", err)
		}
		all[2].mustAppend("run", numbered(3))
		all[1:].wantSame("run", 4)
	})
}
