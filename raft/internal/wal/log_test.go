package wal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	hraft "github.com/hashicorp/raft"

	"runlog/testbed/bubble"
)

// TestLogFails proves D3: Fail is called for every error of the log.
func TestLogFails(t *testing.T) {
	var told []error
	s, err := openForTest(vfs.Default, t.TempDir(), 64<<10, func(err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	found := s.Written()
	for i := range uint64(3) {
		if err := s.StoreLog(&hraft.Log{Index: i + 1, Term: 1, Data: []byte("data")}); err != nil {
			t.Fatal(err)
		}
	}
	var l hraft.Log
	if err := s.GetLog(2, &l); err != nil || l.Index != 2 || string(l.Data) != "data" {
		t.Errorf("entry %+v, error %v", l, err)
	}
	if err := s.GetLog(9, &l); !errors.Is(err, hraft.ErrLogNotFound) {
		t.Errorf("an entry that is not there gives %v", err)
	}
	if s.Written()-found != 12 || !s.IsMonotonic() {
		t.Errorf("%d bytes written", s.Written()-found)
	}
	if err := s.DeleteRange(1, 1); err != nil || len(told) > 0 {
		t.Errorf("dropping the oldest entry gives %v, told %v", err, told)
	}
	// A hole, which raft-wal refuses.
	if err := s.StoreLog(&hraft.Log{Index: 7}); err == nil || len(told) != 1 {
		t.Errorf("a hole gives %v, told %v", err, told)
	}
	if err := s.DeleteRange(9, 9); err != nil || len(told) != 1 {
		t.Errorf("deleting nothing gives %v, told %v", err, told)
	}
	if err := s.StoreLog(&hraft.Log{Index: 4}); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(3, 3); err == nil || len(told) != 2 {
		t.Errorf("deleting from the middle gives %v, told %v", err, told)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLog(&hraft.Log{Index: 5}); err == nil || len(told) != 3 {
		t.Errorf("writing to a closed log gives %v, told %v", err, told)
	}
}

// TestDamagedLengthD3: raft-wal's decoder panics on an entry whose length has become a number of
// more than ten bytes. The log fails instead, as it does for other damage.
func TestDamagedLengthD3(t *testing.T) {
	dir, data := t.TempDir(), bytes.Repeat([]byte{0xff}, 40)
	s, err := openForTest(vfs.Default, dir, 64<<10, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2) { // raft-wal checks the last write itself.
		if err := s.StoreLog(&hraft.Log{Index: i + 1, Term: 1, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	file, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(file, append([]byte{40}, data...))
	if at < 0 {
		t.Fatal("the entry is not in the file")
	}
	file[at] |= 0x80
	if err := os.WriteFile(names[0], file, 0o644); err != nil {
		t.Fatal(err)
	}
	var told []error
	if s, err = openForTest(vfs.Default, dir, 64<<10, func(err error) { told = append(told, err) }); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var l hraft.Log
	if err := s.GetLog(1, &l); !errors.Is(err, errDamaged) || len(told) != 1 {
		t.Errorf("the entry is read as %+v with %v, told %v", l, err, told)
	}
	if err := s.GetLog(2, &l); err != nil || len(told) != 1 {
		t.Errorf("the entry behind it gives %v, told %v", err, told)
	}
}

// TestReadOfDroppedSegmentD3: raft-wal may close a dropped segment between a reader's look at the
// segments and its read. The reader looks again, and the node continues.
func TestReadOfDroppedSegmentD3(t *testing.T) {
	var closed atomic.Int32
	fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && closed.Add(-1) >= 0 {
			return &os.PathError{Op: "read", Path: op.Path, Err: os.ErrClosed}
		}
		return nil
	}))
	failed := 0
	s, err := openForTest(fs, t.TempDir(), 64<<10, func(error) { failed++ })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.StoreLog(&hraft.Log{Index: 1, Term: 1, Data: []byte("data")}); err != nil {
		t.Fatal(err)
	}
	var l hraft.Log
	s.cache.clear()
	closed.Store(1)
	if err := s.GetLog(1, &l); err != nil || string(l.Data) != "data" || failed > 0 {
		t.Errorf("entry %+v, error %v, %d failures", l, err, failed)
	}
	closed.Store(100)
	if err := s.GetLog(1, &l); !errors.Is(err, os.ErrClosed) || failed != 1 {
		t.Errorf("a file that stays closed gives %v, %d failures", err, failed)
	}
}

// TestLogBeginsRightAfterSnapshotD5: an empty log takes no entry that the installed snapshot
// covers, and leaves no hole after it. A refused entry loses nothing and stops nothing.
func TestLogBeginsRightAfterSnapshotD5(t *testing.T) {
	s, err := openForTest(vfs.Default, t.TempDir(), 64<<10, func(err error) { t.Errorf("the log fails: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	s.BeginAfter(EntryID{Index: 10, Term: 2})
	for _, index := range []uint64{1, 10, 12} {
		if err := s.StoreLog(&hraft.Log{Index: index, Term: 2}); err == nil {
			t.Errorf("entry %d was taken after a snapshot of entry 10", index)
		}
	}
	for _, index := range []uint64{11, 12} {
		if err := s.StoreLog(&hraft.Log{Index: index, Term: 2}); err != nil {
			t.Errorf("entry %d: %v", index, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStalled: Stalled returns the duration of a hanging write.
func TestStalled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := Log{opened: time.Now().Add(-time.Hour)}
		before := s.Stalled()
		s.writing.Store(int64(time.Hour - 2*time.Second))
		during := s.Stalled()
		s.writing.Store(0)
		if after := s.Stalled(); before != 0 || after != 0 || during != 2*time.Second {
			t.Errorf("stalled for %v before, %v during and %v after", before, during, after)
		}
	})
}
