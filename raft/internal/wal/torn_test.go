package wal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/prometheus/client_golang/prometheus"
)

// tornLog is a log as a node opens it, without the node.
type tornLog struct{ *Log }

func openTornLog(dir string) (*tornLog, error) { return openTornLogOn(vfs.Default, dir) }

func openTornLogOn(disk vfs.FS, dir string) (*tornLog, error) {
	l, err := openForTest(disk, dir, 16<<10, func(error) {})
	return &tornLog{l}, err
}

// openForTest opens a log without applied entries.
func openForTest(disk vfs.FS, dir string, segment int, fail func(error)) (*Log, error) {
	return Open(testOptions(disk, dir, segment, fail))
}

func testOptions(disk vfs.FS, dir string, segment int, fail func(error)) Options {
	return Options{
		FS: disk, Dir: dir, SegmentBytes: segment, Applied: func() uint64 { return 0 }, Fail: fail, Overrule: func() error { return nil },
		WriteSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{}), WriteBytes: prometheus.NewCounter(prometheus.CounterOpts{}),
		Logger: slog.New(slog.DiscardHandler), Library: hclog.NewNullLogger(),
	}
}

// tornEntry is the entry at an index, different at each.
func tornEntry(index uint64) *hraft.Log {
	return &hraft.Log{Index: index, Term: 1, Data: bytes.Repeat([]byte{byte(index)}, 100)}
}

// check checks that the log has the entries 1 to last only, and continues from there.
func (l *tornLog) check(last uint64) error {
	end, err := l.LastIndex()
	if err != nil || end != last {
		return fmt.Errorf("the log ends at %d, want %d; error %w", end, last, err)
	}
	if err := l.StoreLog(tornEntry(last + 1)); err != nil {
		return err
	}
	for index := uint64(1); index <= last+1; index++ {
		var got hraft.Log
		if err := l.GetLog(index, &got); err != nil {
			return err
		}
		if !bytes.Equal(got.Data, tornEntry(index).Data) {
			return fmt.Errorf("entry %d is %x", index, got.Data)
		}
	}
	return nil
}

// TestTornWriteD2 cuts the last write to the log at every byte, from its start as a slow disk does
// and from its end as a reordering disk does. Entries acknowledged before are there, the write is
// there whole or not at all, and the log continues.
func TestTornWriteD2(t *testing.T) {
	t.Parallel()
	const acknowledged = 3
	template := t.TempDir()
	l, err := openTornLog(template)
	if err != nil {
		t.Fatal(err)
	}
	for index := uint64(1); index <= acknowledged; index++ {
		if err := l.StoreLog(tornEntry(index)); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Base(segmentPath(t, template))
	before := readFile(t, filepath.Join(template, name))
	if err := errors.Join(l.StoreLog(tornEntry(acknowledged+1)), l.Close()); err != nil {
		t.Fatal(err)
	}
	after := readFile(t, filepath.Join(template, name))
	meta := readFile(t, filepath.Join(template, metaFile))
	first, end := differ(before, after)
	if end-first < 100 {
		t.Fatalf("the write has %d bytes", end-first)
	}
	for at := first; at <= end; at++ {
		fromBegin := append(bytes.Clone(after[:at]), before[at:]...)
		fromEnd := append(bytes.Clone(before[:at]), after[at:]...)
		for way, data := range map[string][]byte{"from its begin": fromBegin, "from its end": fromEnd} {
			want := uint64(acknowledged)
			if bytes.Equal(data, after) {
				want++
			}
			if err := checkTorn(t.TempDir(), name, data, meta, want); err != nil {
				t.Fatalf("cut at byte %d of %d, written %s: %v", at-first, end-first, way, err)
			}
		}
	}
}

// TestTornWritesPileUpD2: two writes are torn, one after the other, and a shorter one is
// acknowledged at their place. It ends where a frame of the second one begins, and that one ends
// where a frame of the first one begins. No entry of a torn write comes back.
func TestTornWritesPileUpD2(t *testing.T) {
	t.Parallel()
	const data = 200
	frame := frameSize(t, data)
	dir := t.TempDir()
	at := 0 // where the log ends in the file
	write := func(torn bool, entries ...*hraft.Log) {
		t.Helper()
		l, err := openTornLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		if end, err := l.LastIndex(); err != nil || end != entries[0].Index-1 {
			t.Fatalf("the log ends at %d before entry %d: %v", end, entries[0].Index, err)
		}
		if err := errors.Join(l.StoreLogs(entries), l.Close()); err != nil {
			t.Fatal(err)
		}
		if !torn {
			return
		}
		// The begin of the write did not reach the disk.
		path := segmentPath(t, dir)
		file := readFile(t, path)
		clear(file[at : at+frameHeader])
		if err := os.WriteFile(path, file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(index, term uint64, size int) *hraft.Log {
		return &hraft.Log{Index: index, Term: term, Data: bytes.Repeat([]byte{byte(term)}, size)}
	}
	write(false, entry(1, 1, data))
	at = fileHeader + frame + frameHeader
	write(true, entry(2, 2, data+frame+frameHeader), entry(3, 2, data))
	write(true, entry(2, 3, data), entry(3, 3, data))
	write(false, entry(2, 4, data-frameHeader))
	l, err := openTornLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	last, err := l.LastIndex()
	if err != nil || last != 2 {
		own, err := l.Entry(last)
		t.Errorf("the log ends at %d, in term %d: %v; entry 2 of term 4 is the last one that was acknowledged", last, own.Term, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// frameSize is the size of the frame of an entry with so much data.
func frameSize(t *testing.T, data int) int {
	t.Helper()
	var content bytes.Buffer
	l := &hraft.Log{Index: 1, Term: 1, Data: make([]byte, data), Extensions: make([]byte, noncesSize+checksumSize)}
	if err := (&raftwal.BinaryCodec{}).Encode(l, &content); err != nil {
		t.Fatal(err)
	}
	return frameHeader + (content.Len()+frameHeader-1)/frameHeader*frameHeader
}

// TestTornSealOfAWholeSegmentD2: a write that fills a segment by itself is torn. The log ends with
// the segment before, at the commit mark, and takes the entry again.
func TestTornSealOfAWholeSegmentD2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opts := testOptions(vfs.Default, dir, 16<<10, func(error) {})
	opts.Committed, opts.Applied = 1, func() uint64 { return 1 }
	store := func(index uint64) {
		t.Helper()
		l, err := Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		full := &hraft.Log{Index: index, Term: 1, Data: bytes.Repeat([]byte{byte(index)}, 20<<10)}
		if err := errors.Join(l.StoreLog(full), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	store(1)
	l, err := Open(opts) // It finishes the rotation, if that was cut off.
	if err != nil {
		t.Fatal(err)
	}
	names, err := l.files.segments(dir)
	if err = errors.Join(err, l.Close()); err != nil || len(names) != 2 {
		t.Fatalf("segments %v, error %v", names, err)
	}
	meta, tail := readFile(t, filepath.Join(dir, metaFile)), filepath.Join(dir, names[1])
	store(2)
	data := readFile(t, tail)
	clear(data[8<<10 : 12<<10])
	if err := errors.Join(os.WriteFile(tail, data, 0o644), os.WriteFile(filepath.Join(dir, metaFile), meta, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, last := range []uint64{1, 2} {
		if l, err = Open(opts); err != nil {
			t.Fatalf("before entry %d is there: %v", last+1, err)
		}
		end, err := l.LastIndex()
		if err = errors.Join(err, l.Close()); err != nil || end != last {
			t.Fatalf("the log ends at %d, want %d; error %v", end, last, err)
		}
		store(last + 1)
	}
}

func checkTorn(dir, name string, data, meta []byte, last uint64) error {
	err := errors.Join(os.WriteFile(filepath.Join(dir, name), data, 0o644), os.WriteFile(filepath.Join(dir, metaFile), meta, 0o644))
	if err != nil {
		return err
	}
	l, err := openTornLog(dir)
	if err != nil {
		return err
	}
	return errors.Join(l.check(last), l.Close())
}

// differ returns the first and the last difference of two texts of one length.
func differ(a, b []byte) (first, end int) {
	for first < len(a) && a[first] == b[first] {
		first++
	}
	end = len(a)
	for end > first && a[end-1] == b[end-1] {
		end--
	}
	return first, end
}

func segmentPath(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(found) != 1 {
		t.Fatalf("segments %v, error %v", found, err)
	}
	return found[0]
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
