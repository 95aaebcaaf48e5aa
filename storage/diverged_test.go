package storage_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
)

// TestInstallOfAnotherHistoryAPP2 proves APP-2 and D5: a checkpoint of nodes that have lost what
// this store has applied does not replace it, even if it reaches further, and nothing changes.
func TestInstallOfAnotherHistoryAPP2(t *testing.T) {
	fs := vfs.NewMem()
	source, target := open(t, storage.Options{}), open(t, storage.Options{FS: fs})
	for n := range 3 {
		propose(t, source, "run", n, 2)
	}
	target.Entries = source.Entries
	if err := target.Replay(nil); err != nil {
		t.Fatal(err)
	}
	propose(t, target, "acknowledged", 0, 1)
	for n := range 4 {
		propose(t, source, "other", n, 2)
	}
	before := target.Applied()
	err := target.Store.Install(bytes.NewReader(streamOf(t, source)))
	if !errors.Is(err, storage.ErrDiverged) {
		t.Errorf("the checkpoint is answered with %v", err)
	}
	if target.Applied() != before {
		t.Errorf("applied %+v, was %+v", target.Applied(), before)
	}
	if _, err := target.Store.Run("acknowledged"); err != nil {
		t.Errorf("the run is gone: %v", err)
	}
	onlyLive(t, fs)
}
