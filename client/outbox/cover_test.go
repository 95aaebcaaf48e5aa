package outbox

import (
	"syscall"
	"testing"
)

// TestRemovalsDuringAFailedCompaction: removals and rejections that wait while a new file cannot be
// written are in the old one once Close or Discard says so.
func TestRemovalsDuringAFailedCompaction(t *testing.T) {
	t.Parallel()
	disk, now := newCrashFS(), clock()
	o, err := Open(modelPath, Options{files: disk, now: now, compactBytes: 400})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		if _, err := o.Put(t.Context(), request("run", n, 100)); err != nil {
			t.Fatal(err)
		}
	}
	o.Reject(11, "no")
	idle(o)
	discarded := make(chan error, 1)
	compacted := false
	disk.fault = func(_ int, op string) error {
		switch {
		case op == "sync" && !compacted: // of the Put below: what comes now waits for it
			for id := uint64(1); id <= 9; id++ {
				o.Done(id)
			}
			o.Reject(10, "no")
			queued := len(o.mu.queue)
			go func() {
				_, err := o.Discard(t.Context(), 11)
				discarded <- err
			}()
			for waiting := queued; waiting == queued; {
				o.mu.Lock()
				waiting = len(o.mu.queue)
				o.mu.Unlock()
			}
			return nil
		case op == "open":
			compacted = true
			return syscall.ENOSPC
		default:
			return nil
		}
	}
	if _, err := o.Put(t.Context(), request("run", 20, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-discarded; err != nil {
		t.Fatal(err)
	}
	idle(o)
	if !compacted {
		t.Fatal("nothing was compacted")
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	disk.fault = nil
	again := openOn(t, disk.crash(func(int) int { return 0 }, false))
	defer again.Close()
	if got, reasons := contents(t, again); len(got) != 3 || reasons[10] != "no" || got[11] != nil {
		t.Errorf("%d records, rejected %v; want 10, which is rejected, 12 and 13", len(got), reasons)
	}
}
