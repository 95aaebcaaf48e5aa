package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// frameHeader is the size of raft-wal's frame header: type (1), reserved (3), length (4, little
// endian).
const frameHeader = 8

// finishRotation completes what a crash between two steps of raft-wal (v0.4.1) left undone. The
// append that fills a segment seals it in the same fsync; the meta data that begins the next
// segment is committed afterwards, by another goroutine. wal.Open finds the sealed tail and leaves
// it the tail, so that every later append fails. It is called before wal.Open, and changes nothing
// in a log that ends before the commit mark.
func finishRotation(files walFiles, dir string, mark uint64) (err error) {
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
	indexStart, last, err := sealOf(files, dir, *tail)
	if err != nil || indexStart == 0 {
		return err
	}
	whole, err := sealIsWhole(files, dir, tail, indexStart, last)
	if err != nil {
		return err
	}
	if last < mark {
		return TooShort(last, mark)
	}
	if !whole {
		return breakSeal(files, dir, tail, indexStart)
	}
	tail.SealTime, tail.MaxIndex, tail.IndexStart = time.Now(), last, indexStart
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: last + 1, MinIndex: last + 1,
		Codec: tail.Codec, SizeLimit: tail.SizeLimit, CreateTime: time.Now(),
	})
	state.NextSegmentID++
	if err := meta.CommitState(state); err != nil {
		return fmt.Errorf("raft: finish the rotation of the log: %w", err)
	}
	return nil
}

// noSegments refuses segments that no meta data tells of: wal.Open would delete them. A new log's
// are made after its meta data.
func noSegments(files walFiles, dir string) error {
	found, err := files.segments(dir)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("raft: %s is missing, and there are segments of a log; %s", files.disk.PathJoin(dir, metaFile), Advice)
	}
	return err
}

// settleTail puts on stable storage what a process that was killed has written to the tail and not
// synced, and the names in the directory. What is found is in the log from here on: a leader is
// told so when it sends it again, without a write, and once the segment counts as sealed nothing
// syncs it any more.
func settleTail(files walFiles, dir string, tail types.SegmentInfo) (err error) {
	f, err := files.OpenWriter(dir, segment.FileName(tail))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // wal.Open makes it
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

// writeAgain writes what a file says over itself, but for zeros. After a sync that failed, Linux
// counts pages as written that are not, and shows what they should say until they leave its memory:
// a process that stopped itself over it is started again, reads them, and its sync would have
// nothing to do (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
func writeAgain(f types.WritableFile) error {
	piece := make([]byte, zeroPiece)
	for at := int64(0); ; at += int64(len(piece)) {
		n, err := f.ReadAt(piece, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if slices.ContainsFunc(piece[:n], func(b byte) bool { return b != 0 }) {
			if _, err := f.WriteAt(piece[:n], at); err != nil {
				return err
			}
		}
		if n < len(piece) {
			return nil
		}
	}
}

// sealOf returns where the index of the tail begins, 0 when it has none, and its last entry's
// index.
func sealOf(files walFiles, dir string, tail types.SegmentInfo) (indexStart, last uint64, err error) {
	w, err := segment.NewFiler(dir, files).RecoverTail(tail)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil // wal.Open makes it
	}
	if err != nil {
		return 0, 0, fmt.Errorf("raft: recover the log's tail: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	_, indexStart, err = w.Sealed()
	return indexStart, w.LastIndex(), err
}

// sealIsWhole tells an index that was written out with its entries from the torn write of one,
// whose entries the recovery has dropped: such an index lists more entries than there are.
func sealIsWhole(files walFiles, dir string, tail *types.SegmentInfo, indexStart, last uint64) (_ bool, err error) {
	f, err := files.disk.Open(files.disk.PathJoin(dir, segment.FileName(*tail)))
	if err != nil {
		return false, fmt.Errorf("raft: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var header [frameHeader]byte
	if _, err := f.ReadAt(header[:], int64(indexStart)-frameHeader); err != nil {
		return false, fmt.Errorf("raft: read the log's tail: %w", err)
	}
	listed := uint64(binary.LittleEndian.Uint32(header[4:])) / 4
	return header[0] == segment.FrameIndex && listed > 0 && tail.BaseIndex+listed-1 == last, nil
}

// breakSeal wipes the header of a torn index, so that the segment ends where its last whole write
// ends. Nothing of the torn write was acknowledged.
func breakSeal(files walFiles, dir string, tail *types.SegmentInfo, indexStart uint64) error {
	f, err := files.open(dir, segment.FileName(*tail))
	if err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	_, err = f.WriteAt(make([]byte, frameHeader), int64(indexStart)-frameHeader)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("raft: mend the log's tail: %w", err)
	}
	return nil
}
