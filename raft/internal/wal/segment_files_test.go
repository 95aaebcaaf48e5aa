package wal

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/testbed/bubble"
)

func openSegmentFilesForTest(t *testing.T, dir string) *segmentFiles {
	t.Helper()
	f, err := openSegmentFiles(vfs.Default, dir, 4096, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

// waitSpare waits for the background to have a spare of a size.
func waitSpare(t *testing.T, f *segmentFiles, size int64) {
	t.Helper()
	bubble.Until(t, "a spare segment", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.spare == size
	})
}

// TestSegmentsAreZeros proves D3: every new segment reads as zeros, also from spares, and a sync
// keeps the written bytes.
func TestSegmentsAreZeros(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := openSegmentFilesForTest(t, dir)
		const size = 3*zeroPiece + 5
		for _, name := range []string{"a.wal", "b.wal", "c.wal"} {
			w, err := f.Create(dir, name, size)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || len(data) != size || bytes.ContainsFunc(data, func(r rune) bool { return r != 0 }) {
				t.Fatalf("%s has %d bytes, not all of them 0; error %v", name, len(data), err)
			}
			if _, err := w.WriteAt([]byte("entry"), 10); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.Sync(), w.Sync(), w.Close()); err != nil {
				t.Fatal(err)
			}
			waitSpare(t, f, size)
			if _, err := f.Create(dir, name, size); !errors.Is(err, fs.ErrExist) {
				t.Fatalf("%s made twice: %v", name, err)
			}
		}
		waitSpare(t, f, size) // the refused Create asked for another one
		if _, err := os.Stat(filepath.Join(dir, newFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", newFile, err)
		}
	})
}

// TestSpareOfAnotherDay: a spare found at start may hold the end of an old log.
func TestSpareOfAnotherDay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{spareFile, newFile} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("stale"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		f := openSegmentFilesForTest(t, dir)
		w, err := f.Create(dir, "a.wal", 5)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		got := make([]byte, 5)
		if _, err := w.ReadAt(got, 0); err != nil || !bytes.Equal(got, make([]byte, 5)) {
			t.Errorf("%q, error %v", got, err)
		}
	})
}

// TestSpareOfAnotherSize: a spare that does not fit is replaced.
func TestSpareOfAnotherSize(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := openSegmentFilesForTest(t, dir)
		for i, size := range []uint64{4096, 8192, 8192} {
			w, err := f.Create(dir, string(rune('a'+i))+".wal", size)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(dir, string(rune('a'+i))+".wal"))
			if err != nil || info.Size() != int64(size) {
				t.Errorf("segment %d: %v, error %v; want %d bytes", i, info, err, size)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			waitSpare(t, f, int64(size))
		}
	})
}

// TestNoBlocksReserved: a segment is made even if the file system cannot reserve blocks, or a
// signal interrupts; a full disk is an error.
func TestNoBlocksReserved(t *testing.T) {
	for reason, made := range map[error]bool{syscall.EOPNOTSUPP: true, syscall.EINTR: true, syscall.ENOSPC: false} {
		disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFilePreallocate {
				return reason
			}
			return nil
		}))
		f, err := walFiles{disk}.Create("", "a.wal", 8192)
		if (err == nil) != made {
			t.Errorf("%v: error %v", reason, err)
		}
		if err != nil {
			continue
		}
		info, err := disk.Stat("a.wal")
		if err != nil || info.Size() != 8192 {
			t.Errorf("%v: %v, error %v", reason, info, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
