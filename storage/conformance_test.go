package storage_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/storage/storagetest/stories"
)

// cramped makes every run leave memory as soon as another is touched, and every large proposal
// larger than a memtable.
var cramped = storage.Options{ActiveBytes: 1, RowBytes: 1, MemTableBytes: 16 << 10}

// TestConformance holds the store to the model (APP-1 to APP-6, APP-11, APP-12, IDM-6 to IDM-8,
// READ-1).
func TestConformance(t *testing.T) {
	t.Run("roomy", func(t *testing.T) {
		stories.Tell(t, func(t rapid.TB) storagetest.System { return open(t, storage.Options{}) })
	})
	t.Run("cramped", func(t *testing.T) {
		stories.Tell(t, func(t rapid.TB) storagetest.System { return open(t, cramped) })
	})
	t.Run("workloads", func(t *testing.T) {
		storagetest.Workloads(t, func(t rapid.TB) storagetest.System {
			if rapid.Bool().Draw(t.(*rapid.T), "cramped") {
				return open(t, cramped)
			}
			return open(t, storage.Options{})
		})
	})
}

// open opens a store on a disk of its own, which is in memory.
func open(t rapid.TB, opts storage.Options) *storagetest.Local {
	t.Helper()
	if opts.FS == nil {
		opts.FS = vfs.NewMem()
	}
	l, err := storagetest.Open(opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	l.SetFence = func(s *storage.Store, index, term uint64, clock int64, f *storagetest.SetFence) (storage.Outcome, error) {
		return s.ApplyFence(index, term, clock, f.RunID, f.Fence)
	}
	return l
}
