package storage_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestWindowReadErrorsREAD4: one read of the disk that fails, whichever it is, makes an answer fail
// and never another one.
func TestWindowReadErrorsREAD4(t *testing.T) {
	storagetest.Large(t)
	var disk tap
	l := open(t, storage.Options{FS: disk.disk(vfs.NewMem()), MemTableBytes: 64 << 10, CacheBytes: 1})
	var stamps []int64
	for p := range 40 {
		var reqs []storagetest.Request
		for r := range 3 {
			events := storagetest.Events(fmt.Sprint("run-", r), 40*p, 40)
			for i := range events {
				x := uint64(p*1000+i)*2862933555777941757 + uint64(r)
				b := []byte{}
				for len(b) < 1500 {
					x = x*6364136223846793005 + 1442695040888963407
					b = append(b, "0123456789abcdefghijklmnopqrstuv"[x>>59])
				}
				events[i].Payload = []byte(`{"x":"` + string(b) + `"}`)
			}
			reqs = append(reqs, storagetest.Request{Append: &storage.Append{RunID: fmt.Sprint("run-", r), Events: events}})
		}
		out, err := l.Propose(int64(p+1)*1e9, reqs)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range out {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
		}
		stamps = append(stamps, out[0].PersistedAt)
	}
	if err := l.Store.Flush(); err != nil {
		t.Fatal(err)
	}
	all := everything(t, l.Store)
	tenant := all[0].TenantID
	from, to := stamps[10], stamps[30]
	read := func(f storage.WindowFilter) (n int, through int64, first storage.Position, err error) {
		st, through, err := l.Store.PositionRange(from, to)
		if err != nil {
			return 0, 0, 0, err
		}
		r, err := l.Store.OpenWindow(st, f, storage.WindowCursor{})
		if err != nil {
			return 0, 0, 0, err
		}
		defer r.Close()
		for more := true; more; {
			var recs []storage.Record
			if recs, more, err = r.Next(64); err != nil {
				return 0, 0, 0, err
			}
			n += len(recs)
		}
		return n, through, st.First, nil
	}
	for name, f := range map[string]storage.WindowFilter{
		"all": {}, "tenant": {TenantID: tenant}, "run": {RunID: "run-1"},
	} {
		want, wantThrough, wantFirst, err := read(f)
		if err != nil {
			t.Fatal(err)
		}
		silent, failed := 0, 0
		for nth := range 100000 {
			at := 0
			hit := false
			disk.set(func(op errorfs.Op) error {
				if op.Kind != errorfs.OpFileReadAt || !strings.HasSuffix(op.Path, ".sst") {
					return nil
				}
				if at++; at == nth+1 {
					hit = true
					return errorfs.ErrInjected
				}
				return nil
			})
			if nth%10 != 0 && nth > 60 {
				disk.set(nil)
				continue
			}
			got, through, first, err := func() (n int, th int64, fi storage.Position, err error) {
				defer func() {
					if p := recover(); p != nil {
						err = fmt.Errorf("PANIC %v", p)
						t.Errorf("%s: read %d fails: %v", name, nth, p)
					}
				}()
				return read(f)
			}()
			disk.set(nil)
			if !hit {
				break
			}
			if err != nil {
				failed++
				continue
			}
			if got != want || through != wantThrough || first != wantFirst {
				if silent++; silent <= 3 {
					t.Errorf("%s: read %d fails, no error, and there are %d events of %d, through %d of %d, first %d of %d", name, nth, got, want, through, wantThrough, first, wantFirst)
				}
			}
		}
		t.Logf("%s: %d events; %d failures were told, %d answers were wrong", name, want, failed, silent)
	}
}

// TestWindowBrokenPlace: an index row that cannot be read is an error.
func TestWindowBrokenPlace(t *testing.T) {
	l := open(t, storage.Options{})
	propose(t, l, "run", 0, 1)
	if err := l.Store.BreakPlace("run", 1); err != nil {
		t.Fatal(err)
	}
	st, _, err := l.Store.PositionRange(0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v", p)
		}
	}()
	if _, err := l.Store.OpenWindow(st, storage.WindowFilter{RunID: "run"}, storage.WindowCursor{}); err == nil {
		t.Error("no error")
	}
}

// TestPositionRangeReadErrorsREAD4: the same for the ends of a window.
func TestPositionRangeReadErrorsREAD4(t *testing.T) {
	var disk tap
	l := open(t, storage.Options{FS: disk.disk(vfs.NewMem()), MemTableBytes: 4 << 20, CacheBytes: 1})
	for p := range 3000 {
		if _, err := l.Propose(int64(p+1)*1e9, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Store.Flush(); err != nil {
		t.Fatal(err)
	}
	want, through, err := l.Store.PositionRange(1000e9, 2000e9)
	if err != nil {
		t.Fatal(err)
	}
	for nth := range 100 {
		at, hit := 0, false
		disk.set(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
				if at++; at == nth+1 {
					hit = true
					return errorfs.ErrInjected
				}
			}
			return nil
		})
		got, th, err := l.Store.PositionRange(1000e9, 2000e9)
		disk.set(nil)
		if !hit {
			break
		}
		if err == nil && (got != want || th != through) {
			t.Errorf("read %d fails, no error: %+v through %d, want %+v through %d", nth, got, th, want, through)
		}
	}
}
