package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft-wal/types"
)

// segmentFiles is raft-wal's file system (D3). It fills a segment with zeros before use: a write
// then changes no file metadata, and fdatasync writes only data. The next segment is prepared in
// the background.
type segmentFiles struct {
	walFiles
	dir  string
	log  *slog.Logger
	size chan int64 // asks for a spare of that size; has room for one
	stop chan struct{}
	done sync.WaitGroup

	mu    sync.Mutex // guards the file "spare" too
	spare int64      // its size; 0: none
}

var _ types.VFS = (*segmentFiles)(nil)

// errStopped ends the preparation of a segment when the log closes.
var errStopped = errors.New("raft: the log was closed")

const (
	// Names without raft-wal's suffix, which it would take for segments.
	spareFile = "spare"
	newFile   = "spare.new"
	// zeroPiece is synced at a time, with a pause, so that appends do not wait for the disk.
	zeroPiece = 256 << 10
	zeroPause = time.Millisecond
	// zeroWrite is the size of one write. The kernel caches the bytes of one write in one folio,
	// and writes the whole folio if any byte changes. One page it must be: otherwise every small
	// entry would cost as much as the largest folio, about 300 KiB.
	zeroWrite = 4 << 10
)

// openSegmentFiles prepares dir, which exists, for segments of a size. A new log waits for its
// first one. close ends it.
func openSegmentFiles(disk vfs.FS, dir string, size int64, log *slog.Logger) (*segmentFiles, error) {
	f := &segmentFiles{walFiles: walFiles{disk}, dir: dir, log: log, size: make(chan int64, 1), stop: make(chan struct{})}
	for _, name := range []string{newFile, spareFile} {
		// A power loss may have undone the rename of a spare that was already in use. Such a file
		// may not be zeros, and its old content could be misread as the log's end.
		if err := disk.Remove(disk.PathJoin(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("raft: %w", err)
		}
	}
	segments, err := f.segments(dir)
	if err != nil {
		return nil, err
	}
	if len(segments) == 0 {
		if err := f.makeSpare(size, 0); err != nil {
			return nil, fmt.Errorf("raft: make first log segment: %w", err)
		}
	}
	f.ask(size)
	f.done.Go(f.prepare)
	return f, nil
}

func (f *segmentFiles) close() {
	close(f.stop)
	f.done.Wait()
}

// Create makes a segment from the spare. If the spare is not ready, it reserves blocks instead:
// slower to write, but correct.
func (f *segmentFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	defer f.ask(int64(size))
	path := f.disk.PathJoin(dir, name)
	found, err := exists(f.disk, path)
	if err == nil && found {
		err = fmt.Errorf("raft: segment %s: %w", name, fs.ErrExist)
	}
	if err != nil {
		return nil, err
	}
	taken, err := f.takeSpare(path, int64(size))
	if err != nil {
		return nil, err
	}
	if !taken {
		return f.walFiles.Create(dir, name, size)
	}
	return f.OpenWriter(dir, name)
}

// takeSpare renames the spare to path, if there is one of that size.
func (f *segmentFiles) takeSpare(path string, size int64) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.spare != size {
		return false, nil
	}
	f.spare = 0
	return true, f.disk.Rename(f.disk.PathJoin(f.dir, spareFile), path)
}

// ask requests a spare of a size, and replaces an earlier request.
func (f *segmentFiles) ask(size int64) {
	select {
	case <-f.size:
	default:
	}
	select {
	case f.size <- size:
	default:
	}
}

// prepare makes spares. An error does not stop it: Create works without a spare, and a full disk
// shows in the log's next write.
func (f *segmentFiles) prepare() {
	for {
		select {
		case <-f.stop:
			return
		case size := <-f.size:
			if err := f.makeSpare(size, zeroPause); err != nil && !errors.Is(err, errStopped) {
				f.log.Warn("cannot prepare spare log segment", "err", err)
			}
		}
	}
}

func (f *segmentFiles) makeSpare(size int64, pause time.Duration) (err error) {
	f.mu.Lock()
	ready := f.spare == size
	f.mu.Unlock()
	if ready {
		return nil
	}
	path := f.disk.PathJoin(f.dir, newFile)
	defer func() {
		if err != nil {
			_ = f.disk.Remove(path)
		}
	}()
	file, err := f.disk.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	err = f.zero(file, size, pause)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.disk.Rename(path, f.disk.PathJoin(f.dir, spareFile)); err != nil {
		return err
	}
	f.spare = size
	return nil
}

// zero fills a file in pieces, with a sync and a pause after each: one sync of the whole file would
// delay concurrent appends. A pause of 0 means that there are none.
func (f *segmentFiles) zero(file vfs.File, size int64, pause time.Duration) error {
	zeros := make([]byte, zeroWrite)
	for at := int64(0); at < size; {
		for end := min(at+zeroPiece, size); at < end; {
			clear(zeros) // the writer may change them
			n, err := file.Write(zeros[:min(zeroWrite, end-at)])
			if err != nil {
				return err
			}
			at += int64(n)
		}
		if pause == 0 {
			continue
		}
		if err := datasync(file); err != nil {
			return err
		}
		select {
		case <-f.stop:
			return errStopped
		case <-time.After(pause):
		}
	}
	return file.Sync()
}
