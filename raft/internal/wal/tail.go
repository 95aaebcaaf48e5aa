package wal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"runlog/storage"
)

// Sizes of raft-wal's format. A frame is a header and its content, padded to a multiple of the
// header: type (1), reserved (3), length of the content (4, little endian). A commit frame ends
// each write. It has no content, and in place of a length the CRC32C of the write.
const (
	fileHeader  = 32
	frameHeader = 8
)

// repairTail prepares the segment that is written to, the tail, for raft-wal. It runs at each
// start, before raft-wal opens the log. The tail has up to three parts:
//
//	whole writes                settleTail makes them durable. If the last one has sealed the
//	                            segment, finishRotation does what should have followed.
//	what a torn write has left  wipeTorn makes zeros of it.
//	zeros                       not written yet
//
// mark is the commit mark, and applied an index up to which all entries are committed. A log that
// ends before one of them keeps its content: the node refuses it, unless it has installed a
// snapshot that goes further.
func repairTail(files walFiles, dir string, mark, applied uint64) error {
	meta := logMeta{disk: files.disk, dir: dir}
	state, err := meta.Load(dir)
	if err != nil {
		return err
	}
	if len(state.Segments) == 0 {
		return noSegments(files, dir)
	}
	tail := &state.Segments[len(state.Segments)-1]
	if err := settleTail(files, dir, *tail); err != nil {
		return err
	}
	if !tail.SealTime.IsZero() {
		return nil
	}
	found, index, last, err := endOf(files, dir, *tail)
	if err != nil || !found {
		return err
	}
	if max(last, tail.BaseIndex-1) < max(mark, applied) {
		return nil
	}
	if index != 0 {
		whole, err := sealIsWhole(files, dir, tail, index, last)
		if err != nil {
			return err
		}
		if whole {
			return finishRotation(&meta, state, index, last)
		}
	}
	return wipeTorn(files, dir, tail, last)
}

// noSegments refuses segments without metadata: raft-wal would delete them. A new log writes its
// metadata before its segments.
func noSegments(files walFiles, dir string) error {
	found, err := files.segments(dir)
	if err == nil && len(found) > 0 {
		err = storage.Damage(fmt.Errorf("raft: %s is missing, but log segments exist", files.disk.PathJoin(dir, metaFile)))
	}
	return err
}

// settleTail syncs the tail, and the names in the directory, after a killed process has written
// without a sync. From here on the found entries are in the log: the follower reports them to the
// leader without writing them again. Once the segment counts as sealed, nothing syncs it any more.
func settleTail(files walFiles, dir string, tail types.SegmentInfo) (err error) {
	f, err := files.OpenWriter(dir, segment.FileName(tail))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // raft-wal makes it
	}
	if err == nil {
		err = writeAgain(f)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("raft: sync the log's tail: %w", err)
	}
	return nil
}

// writeAgain writes the nonzero parts of a file over themselves. After a failed sync, Linux marks
// unwritten pages as clean, and shows the new content until it evicts them. A process that stopped
// over the failed sync restarts and reads these pages, and its sync would do nothing (Rebello et
// al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
func writeAgain(f types.WritableFile) error {
	return nonzero(f, 0, func(piece []byte, at int64) error {
		_, err := f.WriteAt(piece, at)
		return err
	})
}

// nonzero calls do for each piece of a file, from an offset on, that is not all zeros.
func nonzero(f io.ReaderAt, from int64, do func(piece []byte, at int64) error) error {
	piece := make([]byte, zeroPiece)
	for at := from; ; at += int64(len(piece)) {
		n, err := f.ReadAt(piece, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if slices.ContainsFunc(piece[:n], func(b byte) bool { return b != 0 }) {
			if err := do(piece[:n], at); err != nil {
				return err
			}
		}
		if n < len(piece) {
			return nil
		}
	}
}

// endOf returns what raft-wal recovers of the tail: the offset of its list of entries, 0 without
// one, and the index of its last entry, 0 without one.
func endOf(files walFiles, dir string, tail types.SegmentInfo) (found bool, index, last uint64, err error) {
	w, err := segment.NewFiler(dir, files).RecoverTail(tail)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, 0, nil // raft-wal makes it
	}
	if err != nil {
		return false, 0, 0, damaged(fmt.Errorf("raft: %s, the end of the log, is damaged: %w",
			files.disk.PathJoin(dir, segment.FileName(tail)), err))
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	_, index, err = w.Sealed()
	return true, index, w.LastIndex(), err
}

// wipeTorn makes zeros of everything behind the write that has the last entry. None of it was
// acknowledged.
//
// raft-wal leaves it there, and writes over it from its begin on. A later, shorter write that ends
// where a frame of the torn one begins would bring back the frames behind it: raft-wal checks the
// sum of the last write alone, and takes an index that it meets for a seal.
func wipeTorn(files walFiles, dir string, tail *types.SegmentInfo, last uint64) error {
	f, err := files.open(dir, segment.FileName(*tail))
	if err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	end := int64(0) // of a segment without entries, whose header raft-wal writes again
	if last >= tail.BaseIndex {
		end, err = behind(f, last-tail.BaseIndex+1)
	}
	wiped := false
	if err == nil {
		err = nonzero(f, end, func(piece []byte, at int64) error {
			wiped = true
			clear(piece)
			_, err := f.WriteAt(piece, at)
			return err
		})
	}
	if err == nil && wiped {
		err = datasync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("raft: repair the log's tail: %w", err)
	}
	return nil
}

// behind returns the offset behind the write that ends with the n-th entry of a segment.
func behind(f io.ReaderAt, n uint64) (int64, error) {
	at := int64(fileHeader)
	r := bufio.NewReaderSize(io.NewSectionReader(f, at, math.MaxInt64-at), zeroPiece)
	var header [frameHeader]byte
	for entries := uint64(0); ; {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return 0, err
		}
		at += frameHeader
		content := (int64(binary.LittleEndian.Uint32(header[4:])) + frameHeader - 1) &^ (frameHeader - 1)
		switch header[0] {
		case segment.FrameCommit:
			if entries == n {
				return at, nil
			}
			continue
		case segment.FrameEntry:
			entries++
		case segment.FrameIndex:
		default:
			return 0, fmt.Errorf("no write ends with entry %d of the segment", n)
		}
		if _, err := r.Discard(int(content)); err != nil {
			return 0, err
		}
		at += content
	}
}
