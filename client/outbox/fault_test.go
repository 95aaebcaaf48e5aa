package outbox

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestFaultAtEachStep lets each write, fsync, rename and truncation of a workload fail, once or
// from then on, and then loses power. What Put acknowledged is there. A Put that failed told so,
// and the outbox works again once the disk does.
func TestFaultAtEachStep(t *testing.T) {
	t.Parallel()
	steps := faulted(t, 0, nil, false, false)
	if steps < 20 {
		t.Fatalf("the workload has %d steps only", steps)
	}
	for at := 1; at <= steps; at++ {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
			for _, lasting := range []bool{false, true} {
				for _, crash := range []bool{false, true} {
					faulted(t, at, cause, lasting, crash)
				}
			}
		}
	}
}

// faulted runs the workload and returns how many steps it had.
func faulted(t *testing.T, at int, cause error, lasting, crash bool) int {
	t.Helper()
	disk, now := newCrashFS(), clock()
	disk.fault = func(step int, _ string) error {
		if step == at || lasting && at > 0 && step > at {
			return cause
		}
		return nil
	}
	options := Options{files: disk, now: func() time.Time { return now().Add(retryEvery) }, compactBytes: 400}
	o, err := Open(modelPath, options)
	if err != nil {
		if !errors.Is(err, cause) {
			t.Errorf("step %d: open: %v", at, err)
		}
		disk.fault = nil
		if o, err = Open(modelPath, options); err != nil {
			t.Fatalf("step %d: opened again: %v", at, err)
		}
	}
	acked := map[uint64]*runlogv1.AppendEventsRequest{}
	var maybe []*runlogv1.AppendEventsRequest
	failures := 0
	for n := range 12 {
		req := request("run", n, 20)
		id, err := o.Put(t.Context(), req)
		switch {
		case err == nil && acked[id] != nil:
			t.Fatalf("step %d: id %d twice", at, id)
		case err == nil:
			acked[id] = req
		case !errors.Is(err, cause):
			t.Errorf("step %d: put: %v", at, err)
		default:
			failures++
			maybe = append(maybe, req)
		}
		if n%4 == 3 {
			for id := range acked {
				o.Done(id)
				delete(acked, id)
				break
			}
		}
		idle(o)
	}
	if failures > 1 && !lasting {
		t.Errorf("step %d: one fault made %d Puts fail", at, failures)
	}
	disk.fault = nil
	req := request("run", 100, 20)
	id, err := o.Put(t.Context(), req)
	if err != nil {
		t.Fatalf("step %d: the disk works again, and put says %v", at, err)
	}
	acked[id] = req
	idle(o)
	steps := disk.mu.steps
	if crash {
		left := disk.crash(func(int) int { return 0 }, false)
		_ = o.Close()
		disk = left
	} else if err := o.Close(); err != nil {
		t.Fatalf("step %d: close: %v", at, err)
	}
	again := openOn(t, disk)
	defer again.Close()
	got, _ := contents(t, again)
	for id, req := range acked {
		if !proto.Equal(got[id], req) {
			t.Errorf("step %d (%s): record %d is lost", at, disk.mu.log[max(at-1, 0):min(at, len(disk.mu.log))], id)
		}
	}
	for id, req := range got {
		again := slices.ContainsFunc(maybe, func(m *runlogv1.AppendEventsRequest) bool { return proto.Equal(m, req) })
		if acked[id] == nil && (again || !crash) {
			t.Errorf("step %d: record %d was not put, or was removed", at, id)
		}
	}
	return steps
}

// TestFailedFsync: a later fsync that succeeds proves nothing, because the operating system has
// dropped what the failed one should have written.
func TestFailedFsync(t *testing.T) {
	t.Parallel()
	disk, now := newCrashFS(), time.Unix(0, 0)
	o, err := Open(modelPath, Options{files: disk, now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	put := func(n int) error {
		_, err := o.Put(t.Context(), request("run", n, 0))
		idle(o)
		return err
	}
	if err := put(1); err != nil {
		t.Fatal(err)
	}
	disk.fault = func(_ int, op string) error {
		if op == "sync" {
			return syscall.EIO
		}
		return nil
	}
	if err := put(2); !errors.Is(err, syscall.EIO) {
		t.Errorf("put: %v", err)
	}
	disk.fault = nil
	before := disk.mu.steps
	if err := put(3); !errors.Is(err, syscall.EIO) || disk.mu.steps != before {
		t.Errorf("put: %v; it tried the disk again at once", err)
	}
	now = now.Add(retryEvery)
	if err := put(4); err != nil {
		t.Errorf("put: %v", err)
	}
	left := disk.crash(func(int) int { return 0 }, false)
	_ = o.Close()
	again := openOn(t, left)
	defer again.Close()
	got, _ := contents(t, again)
	var steps []string
	for _, id := range []uint64{1, 2} {
		steps = append(steps, got[id].GetEvents()[0].GetStepId())
	}
	if len(got) != 2 || !slices.Equal(steps, []string{"s1", "s4"}) {
		t.Errorf("records %v", got)
	}
}

// TestFailedWriteLeavesNothing: what a full disk took of a large record is not behind a later,
// small one.
func TestFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	disk := newCrashFS()
	o := openOn(t, disk)
	disk.fault = func(_ int, op string) error {
		if op == "write" {
			return syscall.ENOSPC
		}
		return nil
	}
	if _, err := o.Put(t.Context(), request("run", 1, 4000)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("put: %v", err)
	}
	disk.fault = nil
	if _, err := o.Put(t.Context(), request("run", 2, 0)); err != nil {
		t.Error(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	again := openOn(t, disk)
	defer again.Close()
	if got, _ := contents(t, again); len(got) != 1 || again.Recovery().String() != "" {
		t.Errorf("%d records; %s", len(got), again.Recovery())
	}
}

// TestFailedDirectorySync: after a crash, the name of a new file may be that of the old one, if the
// directory could not be synced. So nothing is acknowledged in the new file.
func TestFailedDirectorySync(t *testing.T) {
	t.Parallel()
	disk := newCrashFS()
	o, err := Open(modelPath, Options{files: disk, now: func() time.Time { return time.Unix(0, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	disk.fault = func(_ int, op string) error {
		if op == "sync directory" {
			return syscall.EIO
		}
		return nil
	}
	if err := o.writer.rewrite(); !errors.Is(err, syscall.EIO) { // The writer is idle.
		t.Errorf("rewrite: %v", err)
	}
	disk.fault = nil
	if _, err := o.Put(t.Context(), request("run", 1, 0)); !errors.Is(err, syscall.EIO) {
		t.Errorf("put: %v", err)
	}
	_ = o.Close()
}

// TestCloseIsDurable: what Done and Reject have said is not undone by a crash after Close.
func TestCloseIsDurable(t *testing.T) {
	t.Parallel()
	disk, _ := sample(t)
	o := openOn(t, disk)
	o.Done(3)
	o.Reject(4, "no")
	idle(o)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	again := openOn(t, disk.crash(func(int) int { return 0 }, false))
	defer again.Close()
	if got, reasons := contents(t, again); got[3] != nil || reasons[4] != "no" || len(got) != 4 {
		t.Errorf("%d records, rejected %v", len(got), reasons)
	}
}

// TestUnsettledPut: a context that ends while the disk has the request leaves its outcome open, and
// the caller can learn it.
func TestUnsettledPut(t *testing.T) {
	t.Parallel()
	for _, fault := range []error{nil, syscall.EIO} {
		disk := newCrashFS()
		o := openOn(t, disk)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		disk.fault = func(_ int, op string) error {
			if op == "sync" && ctx.Err() == nil {
				cancel()
				<-left
				return fault
			}
			return nil
		}
		_, err := o.Put(ctx, request("run", 1, 0))
		close(left)
		unsettled, ok := errors.AsType[*UnsettledError](err)
		if !ok || !errors.Is(err, context.Canceled) {
			t.Fatalf("put: %v", err)
		}
		if err := <-unsettled.Outcome; !errors.Is(err, fault) || (err == nil) != (o.Stats().Pending == 1) {
			t.Errorf("the outcome is %v, and the outbox has %+v", err, o.Stats())
		}
		_ = o.Close()
	}
}
