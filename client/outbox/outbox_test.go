package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// openTemp opens an outbox in a directory of the test.
func openTemp(t testing.TB, opts Options) *Outbox {
	t.Helper()
	o, err := Open(filepath.Join(t.TempDir(), "box"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// TestConcurrentPuts: Puts of many goroutines keep the order of each, share fsyncs, and are drained
// while others come.
func TestConcurrentPuts(t *testing.T) {
	t.Parallel()
	const callers, each = 16, 50
	o := openTemp(t, Options{compactBytes: 4 << 10})
	var wait sync.WaitGroup
	for c := range callers {
		wait.Go(func() {
			for n := range each {
				if _, err := o.Put(t.Context(), request(fmt.Sprint("run-", c), n, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	got := map[string][]int{}
	send := func(_ context.Context, r Record) error {
		var n int
		fmt.Sscanf(r.Request.GetEvents()[0].GetStepId(), "s%d", &n)
		mu.Lock()
		defer mu.Unlock()
		got[r.Request.GetRunId()] = append(got[r.Request.GetRunId()], n)
		return nil
	}
	for done := 0; done < callers*each; {
		<-o.Ready()
		if err := o.Drain(t.Context(), 4, send); err != nil {
			t.Fatal(err)
		}
		done = 0
		for ns := range maps.Values(got) {
			done += len(ns)
		}
	}
	wait.Wait()
	for run, ns := range got {
		if len(ns) != each || !slices.IsSorted(ns) {
			t.Errorf("%s: sent %v", run, ns)
		}
	}
	if s := o.Stats(); s.Pending != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

// TestGroupCommit: Puts that wait for a slow fsync share the next one.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testGroupCommit)
}

func testGroupCommit(t *testing.T) {
	disk := newCrashFS()
	o := openOn(t, disk)
	defer o.Close()
	entered, release := make(chan struct{}, 100), make(chan struct{})
	disk.fault = func(_ int, op string) error {
		if op == "sync" {
			entered <- struct{}{}
			disk.mu.Unlock()
			<-release
			disk.mu.Lock()
		}
		return nil
	}
	var wait sync.WaitGroup
	put := func(n int) {
		wait.Go(func() {
			if _, err := o.Put(t.Context(), request("run", n, 0)); err != nil {
				t.Error(err)
			}
		})
	}
	put(0)
	<-entered
	for n := range 20 {
		put(n + 1)
	}
	synctest.Wait()
	o.mu.Lock()
	queued := len(o.mu.queue)
	o.mu.Unlock()
	if queued != 20 {
		t.Errorf("%d Puts wait, want 20", queued)
	}
	close(release)
	wait.Wait()
	if len(entered) != 1 {
		t.Errorf("20 Puts took %d fsyncs", len(entered))
	}
}

// TestPutEnds: a Put whose context ends returns at once, also while the disk hangs. If the writer
// had not begun with it, the record is not there.
func TestPutEnds(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testPutEnds)
}

func testPutEnds(t *testing.T) {
	disk := newCrashFS()
	o := openOn(t, disk)
	entered, release := make(chan struct{}), make(chan struct{})
	disk.fault = func(_ int, op string) error {
		if op == "sync" {
			disk.mu.Unlock()
			entered <- struct{}{}
			<-release
			disk.mu.Lock()
		}
		return nil
	}
	first := make(chan error)
	go func() {
		_, err := o.Put(t.Context(), request("run", 0, 0))
		first <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := o.Put(ctx, request("run", 1, 0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put: %v", err)
	}
	if _, err := o.Put(ctx, request("run", 2, 0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put with an ended context: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if got, _ := contents(t, o); len(got) != 1 {
		t.Errorf("%d records", len(got))
	}
	disk.fault = nil
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if _, err := o.Put(t.Context(), request("run", 3, 0)); !errors.Is(err, ErrClosed) {
		t.Errorf("put after Close: %v", err)
	}
	if err := o.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if _, open := <-o.Ready(); open { // The signal of the first Put.
		if _, open = <-o.Ready(); open {
			t.Error("Ready is open after Close")
		}
	}
}

// TestFull: an outbox refuses what exceeds its bound, until records are removed. Rejected records
// count.
func TestFull(t *testing.T) {
	o := openTemp(t, Options{MaxBytes: 600})
	var ids []uint64
	for {
		id, err := o.Put(t.Context(), request("run", len(ids), 100))
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if s := o.Stats(); len(ids) != 3 || s.Pending != 3 || s.Bytes > 600 {
		t.Errorf("%d records, %+v", len(ids), s)
	}
	o.Reject(ids[0], "no")
	if _, err := o.Put(t.Context(), request("run", 9, 100)); !errors.Is(err, ErrFull) {
		t.Errorf("put beside a rejected record: %v", err)
	}
	o.Done(ids[0], ids[1], 12345)
	if _, err := o.Put(t.Context(), request("run", 9, 100)); err != nil {
		t.Errorf("put after Done: %v", err)
	}
	if n, err := o.Discard(t.Context(), ids...); n != 1 || err != nil {
		t.Errorf("discard: %d, %v", n, err)
	}
	if _, err := o.Put(t.Context(), &runlogv1.AppendEventsRequest{RunId: string(make([]byte, maxRequestBytes))}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("put of a large request: %v", err)
	}
	if _, err := Open("x", Options{MaxBytes: -1}); err == nil {
		t.Error("opened with a negative bound")
	}
}

// TestFileStaysSmall: a file does not grow with records that come and go.
func TestFileStaysSmall(t *testing.T) {
	disk := newCrashFS()
	o, err := Open(modelPath, Options{files: disk, compactBytes: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	largest := 0
	for n := range 1000 {
		id, err := o.Put(t.Context(), request("run", n, 100))
		if err != nil || id != uint64(n+1) {
			t.Fatalf("id %d, %v", id, err)
		}
		o.Done(id)
		largest = max(largest, len(disk.content(modelPath)))
	}
	if largest > 11_000 {
		t.Errorf("the file had %d bytes", largest)
	}
}

// TestDrainKeepsOrder: of records that wait, those of one run are sent in order and one at a time.
func TestDrainKeepsOrder(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testDrainKeepsOrder)
}

func testDrainKeepsOrder(t *testing.T) {
	const runs, each = 3, 8
	o := openTemp(t, Options{})
	for n := range runs * each {
		if _, err := o.Put(t.Context(), request(fmt.Sprint("run-", n%runs), n, 0)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	last, under := map[string]uint64{}, map[string]bool{}
	if err := o.Drain(t.Context(), 4, func(_ context.Context, r Record) error {
		run := r.Request.GetRunId()
		mu.Lock()
		if under[run] || r.ID < last[run] {
			t.Errorf("%s: record %d is sent after or beside %d", run, r.ID, last[run])
		}
		under[run], last[run] = true, r.ID
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		under[run] = false
		return nil
	}); err != nil || len(last) != runs {
		t.Errorf("%v; sent %v", err, last)
	}
}

// TestDrainStops: Drain ends at the first error that is no refusal, and sends nothing of a run
// behind the record that failed.
func TestDrainStops(t *testing.T) {
	o := openTemp(t, Options{})
	for n := range 6 {
		if _, err := o.Put(t.Context(), request("run", n, 0)); err != nil {
			t.Fatal(err)
		}
	}
	down := errors.New("no server")
	var sent []uint64
	err := o.Drain(t.Context(), 3, func(_ context.Context, r Record) error {
		sent = append(sent, r.ID) // One run: one goroutine.
		switch r.ID {
		case 2:
			return &RefusedError{"never"}
		case 4:
			return down
		}
		return nil
	})
	_, reasons := contents(t, o)
	if s := o.Stats(); !errors.Is(err, down) || !slices.Equal(sent, []uint64{1, 2, 3, 4}) || s.Pending != 3 || reasons[2] != "never" {
		t.Errorf("%v; sent %v, %+v, rejected %v", err, sent, s, reasons)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Drain(ctx, 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("drain with an ended context: %v", err)
	}
}

// TestUnknownFields: a request keeps fields of a later version of the API.
func TestUnknownFields(t *testing.T) {
	o := openTemp(t, Options{})
	req := request("run", 1, 0)
	req.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 7))
	id, err := o.Put(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := contents(t, o); !proto.Equal(got[id], req) {
		t.Errorf("%v", got[id])
	}
}

// TestRead reads an outbox that is open, and one that is damaged, without a change.
func TestRead(t *testing.T) {
	o := openTemp(t, Options{})
	for n := range 3 {
		if _, err := o.Put(t.Context(), request("run", n, 0)); err != nil {
			t.Fatal(err)
		}
	}
	o.Reject(2, "no")
	idle(o)
	read := func() (ids []uint64, r Recovery) {
		v, err := Read(o.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		for r, err := range v.Records() {
			if err != nil {
				t.Error(err)
			}
			if (r.Reason == "no") != (r.ID == 2) || r.Parked.IsZero() {
				t.Errorf("%+v", r)
			}
			ids = append(ids, r.ID)
		}
		return ids, v.Recovery()
	}
	if ids, r := read(); !slices.Equal(ids, []uint64{1, 2, 3}) || r.String() != "" {
		t.Errorf("%v; %v", ids, r)
	}
	text, err := os.ReadFile(o.Path())
	if err != nil {
		t.Fatal(err)
	}
	text[headerBytes+10] ^= 1
	if err := os.WriteFile(o.Path(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if ids, r := read(); !slices.Equal(ids, []uint64{2, 3}) || r.Lost != 1 {
		t.Errorf("%v; %v", ids, r)
	}
	if after, err := os.ReadFile(o.Path()); err != nil || string(after) != string(text) {
		t.Errorf("Read has changed the file; %v", err)
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("read a directory")
	}
}

func BenchmarkPut(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			o := openTemp(b, Options{MaxBytes: 1 << 30})
			req := request("run", 1, 300)
			b.ReportAllocs()
			var wait sync.WaitGroup
			for c := range callers {
				wait.Go(func() {
					for n := c; n < b.N; n += callers {
						id, err := o.Put(context.Background(), req)
						if err != nil {
							b.Error(err)
						}
						o.Done(id)
					}
				})
			}
			wait.Wait()
		})
	}
}
