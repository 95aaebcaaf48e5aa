package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"runlog/bench/load"
)

const (
	// fsyncBytes is the size of a write of the limit fsync: about a log entry with one event.
	fsyncBytes = 900
	// writeBytes is the size of a write of the limit seq-write. writeFile is the size at which it
	// starts again from the beginning, to bound its disk space.
	writeBytes = 1 << 20
	writeFile  = 1 << 30
)

// openFsync prepares the limit fsync: append a few bytes to a file and sync it, the minimal work of
// a log for an entry.
func openFsync(b *bed) (*work, error) {
	f, w, err := openFile(b, fsyncBytes)
	if err != nil {
		return nil, err
	}
	record := pattern(fsyncBytes)
	w.lanes = []load.Lane{load.Caller(func(context.Context) (int, error) {
		if _, err := f.Write(record); err != nil {
			return 0, err
		}
		return 1, datasync(f)
	}).Lane()}
	return w, nil
}

// openWrite prepares the limit seq-write: write a file from its beginning to its end, in large
// pieces, each made durable, over and over.
func openWrite(b *bed) (*work, error) {
	f, w, err := openFile(b, writeBytes)
	if err != nil {
		return nil, err
	}
	piece, at := pattern(writeBytes), int64(0)
	w.lanes = []load.Lane{load.Caller(func(context.Context) (int, error) {
		if _, err := f.WriteAt(piece, at); err != nil {
			return 0, err
		}
		at = (at + writeBytes) % writeFile
		return 1, datasync(f)
	}).Lane()}
	return w, nil
}

func openFile(b *bed, bytes int) (*os.File, *work, error) {
	f, err := os.Create(filepath.Join(b.o.Dir, b.w.Name))
	if err != nil {
		return nil, nil, err
	}
	return f, &work{requestBytes: bytes, release: func() error { return errors.Join(f.Close(), os.Remove(f.Name())) }}, nil
}

// pattern resists compression, for disks that compress.
func pattern(size int) []byte {
	b := make([]byte, size)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}
