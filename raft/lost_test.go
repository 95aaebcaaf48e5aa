package raft

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSnapshotsLost shows that a log whose begin was dropped is refused, with an error that tells what to
// do, when the snapshots that say so are gone or are older ones (D2): hashicorp/raft would panic.
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

func removeLastSnapshot(t *testing.T, b *bed) {
	t.Helper()
	all, err := os.ReadDir(b.dir + "/snapshots")
	if err != nil || len(all) != 2 {
		t.Fatalf("%d snapshots, error %v", len(all), err)
	}
	remove(t, b.dir+"/snapshots/"+all[1].Name())
}

// TestVoteLost proves D2 for the term and the vote: a node that forgot them does not vote again in a term of
// its log.
func TestVoteLost(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"removed": os.Remove,
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"of an earlier term": func(path string) error {
			early := vote{term: 1}
			return os.WriteFile(path, early.bytes(), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t).start()
			b.fill("run", 0, 3)
			b.stop()
			if err := lose(filepath.Join(b.dir, voteFile)); err != nil {
				t.Fatal(err)
			}
			if err := b.tryStart(); err == nil || !strings.Contains(err.Error(), "restore") {
				t.Errorf("started, error %v", err)
			}
		})
	}
}
