package storage_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestConformance holds the store to the model (APP-1 to APP-6, APP-11, APP-12, IDM-6 to IDM-8, READ-1).
func TestConformance(t *testing.T) {
	for name, opts := range map[string]storage.Options{
		"roomy": {},
		// Every run leaves memory as soon as another is touched, and every large proposal is larger than
		// a memtable.
		"cramped": {ActiveBytes: 1, MemTableBytes: 16 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			storagetest.Run(t, func(t rapid.TB) storagetest.System { return open(t, opts) })
		})
	}
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
	return l
}
