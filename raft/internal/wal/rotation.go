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

	"runlog/storage"
)

// frameHeader is the size of raft-wal's frame header: type (1), reserved (3), length (4, little
// endian).
const frameHeader = 8

// finishRotation completes a rotation that a crash interrupted between two steps of raft-wal
// (v0.4.1). The append that fills a segment seals it in the same fsync. Another goroutine commits
// the metadata of the next segment afterwards. After a crash in between, raft-wal finds the sealed
// tail and keeps it as the tail, so every later append fails. finishRotation runs before raft-wal
// opens the log. It changes nothing in a log that ends before the commit mark.
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
		return fmt.Errorf("raft: finish log rotation: %w", err)
	}
	return nil
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

// writeAgain writes the nonzero parts of a file over themselves. After a failed sync, Linux marks
// unwritten pages as clean, and shows the new content until it evicts them. A process that stopped
// over the failed sync restarts and reads these pages, and its sync would do nothing (Rebello et
// al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
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

// sealOf returns the start of the tail's index, 0 without one, and the index of its last entry.
func sealOf(files walFiles, dir string, tail types.SegmentInfo) (indexStart, last uint64, err error) {
	w, err := segment.NewFiler(dir, files).RecoverTail(tail)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil // wal.Open makes it
	}
	if err != nil {
		return 0, 0, damaged(fmt.Errorf("raft: %s, the end of the log, is damaged: %w", files.disk.PathJoin(dir, segment.FileName(tail)), err))
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	_, indexStart, err = w.Sealed()
	return indexStart, w.LastIndex(), err
}

// sealIsWhole distinguishes a complete segment index from a torn write. A torn write's entries were
// dropped by the recovery, so its index lists more entries than there are.
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

// breakSeal wipes the header of a torn index: the segment then ends with its last whole write. No
// entry of the torn write was acknowledged.
func breakSeal(files walFiles, dir string, tail *types.SegmentInfo, indexStart uint64) error {
	f, err := files.open(dir, segment.FileName(*tail))
	if err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	_, err = f.WriteAt(make([]byte, frameHeader), int64(indexStart)-frameHeader)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("raft: repair the log's tail: %w", err)
	}
	return nil
}
