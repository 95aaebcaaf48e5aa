package raft

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft-wal/segment"

	"runlog/testbed/bubble"
)

const (
	metaFile    = "meta" // of the log, next to its segments
	frameHeader = 8      // bytes of a segment's frame header
)

// sealedTail leaves a log as a kill does between the fsync that seals a segment and the commit of
// the next segment's metadata. It returns the number of acknowledged events of "run", and the
// tail's file.
func sealedTail(t *testing.T, b *bed) (events int, tail string) {
	t.Helper()
	files := func() []string {
		found, err := filepath.Glob(filepath.Join(b.wal(), "*.wal"))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		return found
	}
	until := func(segments int) {
		for len(files()) < segments {
			b.fill("run", events, 1)
			events++
			// The rotation is concurrent; a further append would go to the new segment already.
			if sealed := files()[segments-2]; hasIndex(t, sealed) {
				bubble.Until(t, "the next segment", func() bool { return len(files()) >= segments })
			}
		}
	}
	meta := filepath.Join(b.wal(), metaFile)
	b.start()
	until(2)
	before, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	until(3)
	b.crash()
	if err := os.WriteFile(meta, before, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files()[2]); err != nil {
		t.Fatal(err)
	}
	return events, files()[1]
}

// hasIndex reports whether a segment is sealed.
func hasIndex(t *testing.T, file string) bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return findFrame(data, segment.FrameIndex) >= 0
}

// TestCrashInRotation proves APP-2 and D3: after a crash between sealing a segment and starting the
// next, a node starts, has every event, and takes more.
func TestCrashInRotation(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		events, _ := sealedTail(t, b)
		b.start()
		b.expect("run", events)
		b.fill("run", events, 5)
		b.expect("run", events+5)
		b.stop()
		b.start()
		b.expect("run", events+5)
		if errs := b.failures(); len(errs) > 0 {
			t.Errorf("the node stopped itself: %v", errs)
		}
	})
}

// TestTornSeal: the write that seals a segment is torn. Its entries were not acknowledged; the node
// starts with those before it and takes more.
func TestTornSeal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		events, tail := sealedTail(t, b)
		data, err := os.ReadFile(tail)
		if err != nil {
			t.Fatal(err)
		}
		// The mark trails the log, and does not cover the write yet.
		if err := os.Remove(filepath.Join(b.dir, "commit-mark")); err != nil {
			t.Fatal(err)
		}
		// The index is the last frame but one; the entry before it is part of the same write.
		index := lastFrame(t, data, segment.FrameIndex)
		data[index-9] ^= 0x40
		if err := os.WriteFile(tail, data, 0o644); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.expect("run", events-1)
		b.fill("run", events-1, 5)
		b.stop()
		b.start()
		b.expect("run", events+4)
	})
}

// lastFrame returns the offset of the last frame of a type.
func lastFrame(t *testing.T, data []byte, frame byte) int {
	t.Helper()
	at := findFrame(data, frame)
	if at < 0 {
		t.Fatalf("no frame of type %d", frame)
	}
	return at
}

// findFrame returns the offset of the last frame of a type, -1 without one.
func findFrame(data []byte, frame byte) int {
	at := -1
	for i := 32; i+frameHeader <= len(data) && data[i] != segment.FrameInvalid; {
		size := int(uint32(data[i+4]) | uint32(data[i+5])<<8 | uint32(data[i+6])<<16 | uint32(data[i+7])<<24)
		if data[i] == frame {
			at = i
		}
		if data[i] == segment.FrameCommit {
			size = 0 // its length field is a checksum
		}
		i += frameHeader + (size+7)&^7
	}
	return at
}
