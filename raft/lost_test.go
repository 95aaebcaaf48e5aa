package raft

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/raft/internal/wal"
)

// TestSnapshotsLost shows that a truncated log is refused, with an error and its remedy, if its
// snapshot records are missing or old (D2): hashicorp/raft would panic.
func TestSnapshotsLost(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, b *bed){
		"all":  func(t *testing.T, b *bed) { remove(t, b.dir+"/snapshots") },
		"last": func(t *testing.T, b *bed) { removeLastSnapshot(t, b) },
	} {
		t.Run(name, func(t *testing.T) {
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
}

// TestVoteLost proves D2 for the term and the vote: a node that lost them does not vote again in a
// term of its log.
func TestVoteLost(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
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
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t).start()
			b.fill("run", 0, 3)
			b.stop()
			if err := lose(filepath.Join(b.dir, wal.VoteFile)); err != nil {
				t.Fatal(err)
			}
			if err := b.tryStart(); err == nil || !strings.Contains(err.Error(), "replace the node") {
				t.Errorf("started, error %v", err)
			}
		})
	}
}
