package raft

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/raft/internal/wal"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// TestSnapshotsLost shows that a truncated log is refused, with an error and its remedy, if its
// snapshot records are missing or old (D2): hashicorp/raft would panic.
func TestSnapshotsLost(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, b *bed){
		"all":  func(t *testing.T, b *bed) { remove(t, b.dir+"/snapshots") },
		"last": func(t *testing.T, b *bed) { removeLastSnapshot(t, b) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.opts.TrailingEntries = 1
				b.start().fill("run", 0, 10)
				if err := b.node.Truncate(); err != nil {
					t.Fatal(err)
				}
				b.fill("run", 10, 10)
				if err := b.node.Truncate(); err != nil {
					t.Fatal(err)
				}
				b.stop()
				lose(t, b)
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("Start panics: %v", p)
					}
				}()
				if err := b.tryStart(); err == nil {
					t.Error("started")
				}
			})
		})
	}
}

// removeLastSnapshot leaves the records of snapshots as they were before the last one.
func removeLastSnapshot(t *testing.T, b *bed) {
	t.Helper()
	s := snapshotStore{disk: vfs.Default, dir: b.dir}
	if err := s.load(); err != nil || len(s.mu.records) != 2 {
		t.Fatalf("%d snapshots, error %v", len(s.mu.records), err)
	}
	earlier := s.mu.records[1]
	s.mu.records = nil
	if _, err := s.record(&earlier.Meta, earlier.snapshotMeta); err != nil {
		t.Fatal(err)
	}
}

// TestLogMetaLost proves D2: a log without metadata is refused, and its segments stay.
func TestLogMetaLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start().fill("run", 0, 10)
		b.stop()
		away := t.TempDir() + "/meta"
		if err := os.Rename(filepath.Join(b.wal(), metaFile), away); err != nil {
			t.Fatal(err)
		}
		if err := b.tryStart(); err == nil || !strings.Contains(err.Error(), "meta is missing") {
			t.Fatalf("started, or with another reason: %v", err)
		}
		if err := os.Rename(away, filepath.Join(b.wal(), metaFile)); err != nil {
			t.Fatal(err)
		}
		b.start().expect("run", 10)
	})
}

// votesLost are ways to lose the file of term and vote.
func votesLost(t *testing.T) map[string]func(path string) error {
	return map[string]func(path string) error{
		"removed": os.Remove,
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"of an earlier term": func(path string) error {
			early := t.TempDir()
			s, err := wal.OpenStable(vfs.Default, early, func(err error) { t.Error(err) })
			if err == nil {
				err = s.SetTerm(1)
			}
			return errors.Join(err, os.Rename(filepath.Join(early, wal.VoteFile), path))
		},
	}
}

// TestVoteLost proves D2 for the term and the vote: a member of several that lost them does not
// start, as it could vote twice in a term. The error names the file.
func TestVoteLost(t *testing.T) {
	for name, lose := range votesLost(t) {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGroup(t, 3, Options{})
				g.fill("run", 0, 3)
				g.settle()
				m := g.follower()
				g.halt(m, false)
				kept, err := os.ReadFile(filepath.Join(m.dir, wal.VoteFile))
				if err == nil {
					err = lose(filepath.Join(m.dir, wal.VoteFile))
				}
				if err != nil {
					t.Fatal(err)
				}
				for range 2 { // What the first start makes does not deceive the second.
					if err := m.tryOpen(); !storage.Damaged(err) || !strings.Contains(err.Error(), wal.VoteFile) {
						t.Fatalf("started, error %v", err)
					}
				}
				if err := os.WriteFile(filepath.Join(m.dir, wal.VoteFile), kept, 0o644); err != nil {
					t.Fatal(err)
				}
				m.open()
				g.run(m)
				g.settle()
				g.expectEqual(3)
			})
		})
	}
}

// TestVoteLostBeforeInstall proves D2 and D5: a node that lost its vote, and got the store of
// another node outside of Raft, does not start, and completes no install. With its vote put back,
// of an earlier term than the store, it continues from there. Found by a simulation.
func TestVoteLostBeforeInstall(t *testing.T) {
	for name, lose := range votesLost(t) {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGroup(t, 3, Options{TrailingEntries: 1})
				g.fill("run", 0, 5)
				g.settle()
				m := g.follower()
				g.halt(m, false)
				g.nextTerm()
				g.leaveBehind("run", 5, 20)
				m.seed(t, g.leader())
				path := filepath.Join(m.dir, wal.VoteFile)
				kept, err := os.ReadFile(path)
				if err == nil {
					err = lose(path)
				}
				if err != nil {
					t.Fatal(err)
				}
				for range 2 { // What the first start makes does not deceive the second.
					if err := m.tryOpen(); !storage.Damaged(err) || !strings.Contains(err.Error(), wal.VoteFile) {
						t.Fatalf("started, error %v", err)
					}
				}
				if err := os.WriteFile(path, kept, 0o644); err != nil {
					t.Fatal(err)
				}
				m.open()
				g.run(m)
				g.expectEqual(25)
			})
		})
	}
}

// TestVoteWithoutLogLost is TestVoteLostBeforeInstall for a node that had voted before it received
// its first entry.
func TestVoteWithoutLogLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 1, Options{})
		g.fill("run", 0, 5)
		m := g.newMember("voted", Options{})
		m.open()
		if err := m.node.stable.SetTerm(g.leader().node.Term() + 1); err != nil {
			t.Fatal(err)
		}
		m.shut()
		m.seed(t, g.leader())
		if err := os.Truncate(filepath.Join(m.dir, wal.VoteFile), 0); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := m.tryOpen(); !storage.Damaged(err) || !strings.Contains(err.Error(), wal.VoteFile) {
				t.Fatalf("started, error %v", err)
			}
		}
	})
}

// seed gives a stopped member the store of another one, outside of Raft.
func (m *member) seed(t *testing.T, from *member) {
	t.Helper()
	c, err := from.store.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	o := m.prepare(string(m.id))
	received, err := o.Store.Receive(c.Stream())
	if err == nil {
		err = received.Install()
	}
	if err := errors.Join(err, c.Close(), o.Listener.Close(), o.Store.Close()); err != nil {
		t.Fatal(err)
	}
}

// marksLost are ways to lose the commit mark.
var marksLost = map[string]func(path string) error{
	"removed":   os.Remove,
	"emptied":   func(path string) error { return os.Truncate(path, 0) },
	"truncated": func(path string) error { return os.Truncate(path, 5) },
	"a bit flipped": func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text[3] ^= 4
		return os.WriteFile(path, text, 0o644)
	},
}

const markFile = "commit-mark"

// TestMarkLost proves D2 for the commit mark: a member of several that lost it does not start,
// because its log may have lost its end too. The error names the file.
func TestMarkLost(t *testing.T) {
	for name, lose := range marksLost {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGroup(t, 3, Options{})
				g.fill("run", 0, 3)
				g.settle()
				m := g.follower()
				g.halt(m, false)
				if err := lose(filepath.Join(m.dir, markFile)); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := m.tryOpen(); !storage.Damaged(err) || !strings.Contains(err.Error(), markFile) {
						t.Fatalf("started, error %v", err)
					}
				}
			})
		})
	}
}

// TestOnlyMemberRenews: an only member makes a lost vote or commit mark again, and has everything
// (APP-2). Both files are whole again after that.
func TestOnlyMemberRenews(t *testing.T) {
	try := func(name, file string, lose func(path string) error) {
		t.Run(file+" "+name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newBed(t).start()
				b.fill("run", 0, 3)
				b.stop()
				if err := lose(filepath.Join(b.dir, file)); err != nil {
					t.Fatal(err)
				}
				b.start().expect("run", 3)
				b.fill("run", 3, 2)
				b.stop()
				if m, err := wal.OpenMark(vfs.Default, b.dir); err != nil || m.Index() == 0 {
					t.Errorf("the mark is %d: %v", m.Index(), err)
				}
				b.start().expect("run", 5)
				if len(b.failures()) > 0 {
					t.Error(b.failures())
				}
			})
		})
	}
	for name, lose := range votesLost(t) {
		try(name, wal.VoteFile, lose)
	}
	for name, lose := range marksLost {
		try(name, markFile, lose)
	}
}

// TestMarkAndEndLost proves D2: an only member whose commit mark is lost does not start if its log
// has lost its end too, as far as the store knows.
func TestMarkAndEndLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 3)
		b.stop()
		remove(t, filepath.Join(b.dir, markFile))
		replaceLog(t, b)
		if err := b.tryStart(); !errors.Is(err, ErrLogBehindStore) {
			t.Errorf("started, error %v", err)
		}
	})
}
