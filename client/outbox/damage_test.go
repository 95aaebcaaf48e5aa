package outbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// sample makes the file of an outbox: records 1 to 6, of which 2 is removed and 5 is rejected.
func sample(t testing.TB) (disk *crashFS, reqs map[uint64]*runlogv1.AppendEventsRequest) {
	t.Helper()
	disk, reqs = newCrashFS(), map[uint64]*runlogv1.AppendEventsRequest{}
	o := openOn(t, disk)
	for n := range 6 {
		req := request("run", n, 10*n)
		id, err := o.Put(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		reqs[id] = req
		switch id {
		case 3:
			o.Done(2)
		case 5:
			o.Reject(5, "INVALID_ARGUMENT_FIELD: no")
		}
		idle(o)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	return disk, reqs
}

func openOn(t testing.TB, disk *crashFS) *Outbox {
	t.Helper()
	o, err := Open(modelPath, Options{files: disk, now: clock()})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// clock returns a clock that moves a second with each look.
func clock() func() time.Time {
	now := time.Date(2026, 2, 11, 10, 30, 0, 0, time.UTC)
	return func() time.Time { now = now.Add(time.Second); return now }
}

// contents returns the records of an outbox: their requests, and the reasons of the rejected ones.
func contents(t testing.TB, o *Outbox) (reqs map[uint64]*runlogv1.AppendEventsRequest, reasons map[uint64]string) {
	t.Helper()
	reqs, reasons = map[uint64]*runlogv1.AppendEventsRequest{}, map[uint64]string{}
	for _, seq := range []func(func(Record, error) bool){o.Pending(), o.Rejected()} {
		for r, err := range seq {
			if err != nil {
				t.Fatal(err)
			}
			if reqs[r.ID] = r.Request; r.Reason != "" {
				reasons[r.ID] = r.Reason
			}
		}
	}
	return reqs, reasons
}

// TestDamageAnywhere changes each byte of a file. It costs at most the frame of that byte,
// everything else is there, nothing else is, and Recovery tells.
func TestDamageAnywhere(t *testing.T) {
	t.Parallel()
	disk, reqs := sample(t)
	good := disk.content(modelPath)
	frames := regions(t, good)
	for at := range good {
		for _, change := range []byte{1, 0x80, 0xff, good[at]} {
			bad := bytes.Clone(good)
			if bad[at] ^= change; bad[at] == good[at] {
				continue
			}
			var hit frame
			for r, f := range frames {
				if r.From <= int64(at) && int64(at) < r.To {
					hit = f
				}
			}
			checkDamaged(t, fmt.Sprintf("byte %d xor %02x", at, change), bad, reqs, hit, int64(at))
		}
	}
}

// regions returns the frames of an undamaged file, by where they are.
func regions(t *testing.T, file []byte) map[Range]frame {
	t.Helper()
	out := map[Range]frame{}
	for at := headerBytes; at < len(file); {
		end := at + 1 + bytes.IndexByte(file[at+1:], 0) + 1
		f, err := decodeFrame(file[at+1 : end-1])
		if err != nil {
			t.Fatal(err)
		}
		out[Range{int64(at), int64(end)}] = f
		at = end
	}
	return out
}

func checkDamaged(t *testing.T, name string, bad []byte, reqs map[uint64]*runlogv1.AppendEventsRequest, hit frame, at int64) {
	t.Helper()
	disk := newCrashFS()
	disk.put(modelPath, bad)
	o, err := Open(modelPath, Options{files: disk})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got, reasons := contents(t, o)
	r := o.Recovery()
	for id, req := range reqs {
		optional := id == 2 || hit.kind == kindPut && hit.id == id
		if id == 2 && hit.kind != kindRemove && got[id] != nil {
			t.Errorf("%s: the removed record is back", name)
		}
		if got[id] == nil && !optional {
			t.Errorf("%s: record %d is lost; %s", name, id, r)
		}
		if got[id] != nil && !proto.Equal(got[id], req) {
			t.Errorf("%s: record %d is another one", name, id)
		}
	}
	if len(got) > len(reqs) || hit.kind == 0 && len(got) != len(reqs)-1 {
		t.Errorf("%s: %d records", name, len(got))
	}
	if got[5] != nil && reasons[5] == "" && (hit.kind != kindReject && hit.kind != kindPut) || len(reasons) > 1 {
		t.Errorf("%s: rejected %v", name, reasons)
	}
	if covers := slices.ContainsFunc(r.Damaged, func(d Range) bool { return d.From <= at && at < d.To }); !covers && at >= headerBytes ||
		r.Header != (at < headerBytes) || r.Torn != 0 || !r.IsDamaged() || r.String() == "" {
		t.Errorf("%s: recovery %+v", name, r)
	}
	if id := hit.id; hit.kind == kindPut && got[id] == nil && id < 6 && id != 2 && r.Lost != 1 {
		t.Errorf("%s: record %d is lost, recovery says %d", name, id, r.Lost)
	}
	if !bytes.Equal(disk.content(r.Copy), bad) {
		t.Errorf("%s: the copy %q differs from the damaged file", name, r.Copy)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	again := openOn(t, disk)
	defer again.Close()
	if still, why := contents(t, again); again.Recovery().IsDamaged() || !maps.Equal(why, reasons) || len(still) != len(got) {
		t.Errorf("%s: opened again: %d records of %d, %v", name, len(still), len(got), again.Recovery())
	}
}

// TestTruncatedAnywhere cuts a file at each byte: the records before are there, and no others.
func TestTruncatedAnywhere(t *testing.T) {
	t.Parallel()
	disk, reqs := sample(t)
	good := disk.content(modelPath)
	frames := regions(t, good)
	for size := range int64(len(good)) {
		for _, zeros := range []int{0, 1, 4096} {
			disk := newCrashFS()
			disk.put(modelPath, append(bytes.Clone(good[:size]), make([]byte, zeros)...))
			o, err := Open(modelPath, Options{files: disk})
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			got, _ := contents(t, o)
			boundary := size == headerBytes
			for r, f := range frames {
				boundary = boundary || r.To == size
				whole := r.To-1 <= size // The last zero byte is no part of the content.
				if f.kind == kindPut && f.id != 2 && whole != (got[f.id] != nil) || got[f.id] != nil && !proto.Equal(got[f.id], reqs[f.id]) {
					t.Errorf("%d bytes and %d zeros: record %d present: %v; %s", size, zeros, f.id, got[f.id] != nil, o.Recovery())
				}
				boundary = boundary || r.To-1 == size
			}
			if r := o.Recovery(); !boundary && r.String() == "" {
				t.Errorf("%d bytes and %d zeros: recovery says nothing", size, zeros)
			} else if size > headerBytes && zeros == 0 && r.IsDamaged() {
				t.Errorf("%d bytes: a write that did not finish is called damage: %s", size, r)
			}
			// The next record goes behind the intact ones.
			id, err := o.Put(t.Context(), reqs[1])
			if err != nil || o.Close() != nil {
				t.Fatal(err)
			}
			again := openOn(t, disk)
			if now, _ := contents(t, again); now[id] == nil || len(now) != len(got)+1 || again.Recovery().String() != "" {
				t.Errorf("%d bytes and %d zeros: opened again: %d records of %d; %s", size, zeros, len(now), len(got)+1, again.Recovery())
			}
			again.Close()
		}
	}
}

// TestDamagedSector overwrites or removes whole parts of a file.
func TestDamagedSector(t *testing.T) {
	t.Parallel()
	disk, reqs := sample(t)
	good := disk.content(modelPath)
	frames := regions(t, good)
	for from := range good {
		for _, size := range []int{16, 64, 512} {
			to := min(from+size, len(good))
			for name, fill := range map[string][]byte{"zeros": make([]byte, to-from), "noise": bytes.Repeat([]byte{0x55}, to-from), "nothing": nil} {
				disk := newCrashFS()
				disk.put(modelPath, slices.Concat(good[:from], fill, good[to:]))
				o, err := Open(modelPath, Options{files: disk})
				if err != nil && from < headerBytes {
					continue // Nothing of it may look like an outbox.
				}
				if err != nil {
					t.Fatal(err)
				}
				got, _ := contents(t, o)
				for r, f := range frames {
					intact := r.To <= int64(from) || int64(to) <= r.From
					if f.kind == kindPut && f.id != 2 && intact && !proto.Equal(got[f.id], reqs[f.id]) {
						t.Errorf("%s at %d-%d: record %d is lost", name, from, to, f.id)
					}
				}
				if lost := 5 - len(got); lost > 0 && o.Recovery().String() == "" && int64(to) < int64(len(good)) {
					t.Errorf("%s at %d-%d: %d records are lost, recovery says nothing", name, from, to, lost)
				}
				o.Close()
			}
		}
	}
}

// TestCopiesAreBounded damages a file again and again: the newest copies stay.
func TestCopiesAreBounded(t *testing.T) {
	disk, _ := sample(t)
	bad := disk.content(modelPath)
	bad[headerBytes+20] ^= 1
	for n := 1; n <= maxCopies+2; n++ {
		disk.put(modelPath, bad)
		o := openOn(t, disk)
		r := o.Recovery()
		o.Close()
		dropped := ""
		if n > maxCopies {
			dropped = fmt.Sprintf("%s.damaged-%d", modelPath, n-maxCopies)
		}
		if want := fmt.Sprintf("%s.damaged-%d", modelPath, n); r.Copy != want || r.Dropped != dropped {
			t.Errorf("copy %q, want %q; dropped %q, want %q", r.Copy, want, r.Dropped, dropped)
		}
	}
	if names, _ := disk.Names("dir"); len(names) != maxCopies+1 {
		t.Errorf("files %v", names)
	}
}

// TestOtherFiles leaves files alone that a newer version has written, or that are no outbox.
func TestOtherFiles(t *testing.T) {
	disk, _ := sample(t)
	good := disk.content(modelPath)
	newer := bytes.Clone(good)
	newer[len(magic)+1] = formatVersion + 1
	binary.BigEndian.PutUint32(newer[headerBytes-4:], crc32.Checksum(newer[:headerBytes-4], castagnoli))
	unsure := bytes.Clone(newer[:headerBytes])
	unsure[headerBytes-1] ^= 1
	for name, test := range map[string]struct {
		content []byte
		want    error
	}{
		"newer":          {newer, errVersion},
		"damaged, newer": {unsure, errVersion},
		"text":           {bytes.Repeat([]byte("a line of text\n"), 100), errForeign},
		"database":       {bytes.Repeat([]byte{0, 1, 2, 3, 0, 0}, 1000), errForeign},
	} {
		disk := newCrashFS()
		disk.put(modelPath, test.content)
		_, err := Open(modelPath, Options{files: disk})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if names, _ := disk.Names(""); !bytes.Equal(disk.content(modelPath), test.content) || len(names) != 1 {
			t.Errorf("%s: the file was changed; %v", name, names)
		}
	}
}

// TestUnreadableRecord damages a file while it is open: the other records are read and sent, the
// next Open tells, also behind a compaction.
func TestUnreadableRecord(t *testing.T) {
	disk, reqs := sample(t)
	o := openOn(t, disk)
	for r, f := range regions(t, disk.content(modelPath)) {
		if f.kind == kindPut && f.id == 3 {
			disk.mu.names[modelPath].now[r.From+30] ^= 0x40
		}
	}
	var sent []uint64
	err := o.Drain(t.Context(), 2, func(_ context.Context, r Record) error { sent = append(sent, r.ID); return nil })
	if !errors.Is(err, ErrUnreadable) || !slices.Equal(sent, []uint64{1, 4, 6}) {
		t.Errorf("sent %v, %v", sent, err)
	}
	idle(o)
	if err := o.writer.rewrite(); err != nil { // The writer is idle.
		t.Fatal(err)
	}
	o.Close()
	again := openOn(t, disk)
	defer again.Close()
	if got, _ := contents(t, again); again.Recovery().Lost != 1 || len(got) != 1 || !proto.Equal(got[5], reqs[5]) {
		t.Errorf("%d records; %s", len(got), again.Recovery())
	}
}

// FuzzScan opens any bytes. What is read back is what a frame of the file has.
func FuzzScan(f *testing.F) {
	disk, _ := sample(f)
	good := disk.content(modelPath)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(good[:headerBytes-5])
	f.Add(append(bytes.Clone(good[headerBytes:]), good...))
	f.Fuzz(func(t *testing.T, file []byte) {
		found, err := scanFile(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		var last uint64
		for _, e := range found.index.live() {
			if e.id <= last {
				t.Fatalf("id %d after %d", e.id, last)
			}
			last = e.id
			text := make([]byte, e.size)
			if _, err := bytes.NewReader(file).ReadAt(text, e.offset); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			put, err := decodeFrame(bytes.Trim(text, "\x00"))
			if err != nil || put.id != e.id || put.kind != kindPut {
				t.Fatalf("entry %d: %v", e.id, err)
			}
		}
		if found.next <= last || found.end > int64(len(file)) {
			t.Fatalf("next %d, last %d, end %d of %d", found.next, last, found.end, len(file))
		}
		for i, d := range found.recovery.Damaged {
			if d.From >= d.To || d.To > int64(len(file)) || i > 0 && d.From < found.recovery.Damaged[i-1].To {
				t.Fatalf("ranges %v", found.recovery.Damaged)
			}
		}
	})
}

// FuzzStuffing: content has no zero byte once it is stuffed, and comes back.
func FuzzStuffing(f *testing.F) {
	for _, n := range []int{0, 1, 253, 254, 255, 508, 509} {
		f.Add(bytes.Repeat([]byte{7}, n), []byte{1})
		f.Add(append(bytes.Repeat([]byte{7}, n), 0), []byte{2, 0})
	}
	f.Fuzz(func(t *testing.T, content, stuffed []byte) {
		out := stuff(nil, content)
		back, ok := unstuff(nil, out)
		if !ok || !bytes.Equal(back, content) || bytes.IndexByte(out, 0) >= 0 || len(out) > len(content)+len(content)/254+1 {
			t.Fatalf("%x becomes %x and %x", content, out, back)
		}
		_, _ = unstuff(nil, stuffed) // It does not panic.
	})
}
