package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// A rotation of raft-wal (v0.4.1) has four steps:
//
//  1. An append writes its entries, the index of the segment and a commit frame. One sync makes
//     all of it durable, and seals the segment.
//  2. The append returns: its entries are acknowledged.
//  3. Another goroutine commits the metadata: the segment is sealed, and the next one is the tail.
//  4. It creates the file of the next segment.
//
// A crash may come in each:
//
//	in step   a start finds                        and does
//	1         an index, but the write is torn      wipeTorn: the write was not acknowledged
//	1, 2, 3   a sealed segment that is still the   finishRotation: it does step 3
//	          tail of the metadata
//	4         a tail without a file                nothing: raft-wal makes the file
//
// Without that, raft-wal keeps the sealed segment as the tail, and every later append fails.

// finishRotation does step 3. index is where the list of entries begins in the sealed segment.
func finishRotation(meta *logMeta, state types.PersistentState, index, last uint64) error {
	tail := &state.Segments[len(state.Segments)-1]
	tail.SealTime, tail.MaxIndex, tail.IndexStart = time.Now(), last, index
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

// sealIsWhole distinguishes a complete segment index from a torn write. A torn write's entries were
// dropped by the recovery, so its index lists more entries than there are.
func sealIsWhole(files walFiles, dir string, tail *types.SegmentInfo, index, last uint64) (_ bool, err error) {
	f, err := files.disk.Open(files.disk.PathJoin(dir, segment.FileName(*tail)))
	if err != nil {
		return false, fmt.Errorf("raft: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var header [frameHeader]byte
	if _, err := f.ReadAt(header[:], int64(index)-frameHeader); err != nil {
		return false, fmt.Errorf("raft: read the log's tail: %w", err)
	}
	listed := uint64(binary.LittleEndian.Uint32(header[4:])) / 4
	return header[0] == segment.FrameIndex && listed > 0 && tail.BaseIndex+listed-1 == last, nil
}
