package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runlog/bench/load"
)

const (
	// fsyncBytes is what one write of the limit fsync appends: about a log entry that carries one
	// event.
	fsyncBytes = 900
	// writeBytes is what one write of the limit seq-write appends, and writeFile where it begins
	// anew, so that it takes so much disk and no more.
	writeBytes = 1 << 20
	writeFile  = 1 << 30
)

// openFsync prepares the limit fsync: append a little to a file and wait until it is durable, which
// is the least that a log does for an entry.
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

// pattern does not compress to nothing, for disks that try.
func pattern(size int) []byte {
	b := make([]byte, size)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}
