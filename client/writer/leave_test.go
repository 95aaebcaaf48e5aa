package writer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"runlog/client/outbox"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestLeaveDuringPut: a caller whose context ends while the outbox writes leaves a record that may
// be there. The run waits for it, and later events stay behind it.
func TestLeaveDuringPut(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testLeaveDuringPut)
}

func testLeaveDuringPut(t *testing.T) {
	log, dir := newLog(false), t.TempDir()
	beside, err := os.Create(filepath.Join(dir, "beside"))
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	box, err := outbox.Open(filepath.Join(dir, "outbox"), outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	w, err := New(log, Options{Outbox: box, Budget: 4 * parkTime})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	var parked []string
	left := 0
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		if i > 0 && i < 299 {
			syncs := rng.IntN(6)
			go func() { // A Put takes no fake time. Other fsyncs last about as long as its own.
				for range syncs {
					_, _ = beside.WriteAt([]byte("x"), 0)
					_ = beside.Sync()
				}
				cancel()
			}()
		}
		e := event("r", contract.StepStarted, fmt.Sprint("k", i))
		e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, 32<<10)}
		if res, err := w.Write(ctx, e); err == nil && res.Parked {
			parked = append(parked, e.GetIdempotencyKey())
		} else {
			left++
		}
		cancel()
	}
	synctest.Wait() // All Puts have an outcome.
	pending := box.Stats().Pending
	t.Logf("%d parked, %d left, %d in the outbox", len(parked), left, pending)
	if b := w.backlogOf("r"); b == nil || records(w, "r") != pending {
		t.Errorf("the run waits for %d records, and the outbox has %d", records(w, "r"), pending)
	}
	w.opts.Budget = time.Minute
	log.set(true)
	if _, err := w.Write(t.Context(), event("r", contract.StepCompleted, "end")); err != nil {
		t.Fatal(err)
	}
	bubble.Until(t, "the outbox is sent", func() bool { return box.Stats().Pending == 0 })
	got := log.of("r")
	if len(got) != pending+1 || got[len(got)-1] != "end" {
		t.Errorf("the end is number %d of %d", slices.Index(got, "end")+1, len(got))
	}
	got = slices.DeleteFunc(got, func(k string) bool { return !slices.Contains(parked, k) })
	if !slices.Equal(got, parked) {
		t.Errorf("stored %v, want %v", got, parked)
	}
}

func records(w *Writer, run string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.parked[run]; b != nil {
		return b.records
	}
	return 0
}
