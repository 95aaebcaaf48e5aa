package cosign

import (
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"runlog/storage"
	"runlog/storage/machine/signing"
	"runlog/testbed/bubble"
)

// TestCosignedTR4: every witness signs each checkpoint as the log grows, and its signature is
// stored beside it, once; a new leader goes on where the one before was.
func TestCosignedTR4(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		one, two := b.witness("one", 11), b.witness("two", 12)
		b.start()
		for i := range int64(20) {
			if i == 12 {
				b.leads.Store(false)
				time.Sleep(2 * step)
				b.leads.Store(true)
			}
			b.checkpoint(i % 5) // 0: the same tree under another position
			bubble.Until(t, "both have signed", func() bool {
				_, n := b.newest(one.key, two.key)
				return n == 2
			})
		}
		all := must(signing.Checkpoints(b.store.Store, 0, 100))
		if len(all) != 20 {
			t.Fatalf("%d checkpoints", len(all))
		}
		for i := range all {
			if len(all[i].Cosignatures) != 2 {
				t.Errorf("checkpoint of %d: %+v", all[i].Position, all[i].Cosignatures)
			}
		}
		if n := b.requests("one", resultSigned); n != 20 {
			t.Errorf("%d signatures for 20 checkpoints", n)
		}
		for _, r := range []string{resultConflict, resultRefused, resultUnreachable, resultFailed} {
			if n := b.requests("one", r); n != 0 {
				t.Errorf("%d requests were %s", n, r)
			}
		}
		if s := b.alerts.Standing(); len(s) > 0 {
			t.Errorf("alerts %v", s)
		}
	})
}

// TestFollowersAskNothingTR4: only the leader asks, and only if there is a checkpoint of this log.
func TestFollowersAskNothingTR4(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		var asked atomic.Int32
		b.witness("one", 11).set(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
		b.start()
		time.Sleep(time.Minute) // There is no checkpoint.
		b.mu.Lock()
		b.growLocked(3)
		// One of the log before a recovery.
		cmd := must(storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{Position: 5, Note: b.noteLocked(storage.Incarnation{9})})))
		if o, err := b.applyLocked(cmd); errors.Join(err, o.Err) != nil {
			t.Error(err, o.Err)
		}
		b.covered = 5
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.leads.Store(false)
		b.checkpoint(1)
		time.Sleep(2 * Patience)
		if n := asked.Load(); n != 0 || len(b.alerts.Standing()) > 0 || b.shown("runlog_witness_behind_seconds") != 0 {
			t.Errorf("asked %d times, alerts %v", n, b.alerts.Standing())
		}
		b.leads.Store(true)
		bubble.Until(t, "a leader asks", func() bool { return asked.Load() > 0 })
	})
}

// TestWitnessIsDownTR4: a witness that is down is asked once a minute, delays no other,
// and raises WITNESS_BEHIND after ten minutes, until it has signed the newest checkpoint.
func TestWitnessIsDownTR4(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		up, down := b.witness("up", 11), b.witness("down", 12)
		b.start()
		b.checkpoint(3)
		bubble.Until(t, "both have signed", func() bool { _, n := b.newest(up.key, down.key); return n == 2 })
		down.set(nil)
		b.checkpoint(3)
		begun := time.Now()
		bubble.Until(t, "the other has signed", func() bool { _, n := b.newest(up.key); return n == 1 })
		if took := time.Since(begun); took > 2*step {
			t.Errorf("a witness that is down delays the other by %s", took)
		}
		time.Sleep(Patience - 2*step - time.Since(begun))
		if s := b.alerts.Standing(); len(s) > 0 {
			t.Errorf("alerts %v before %s", s, Patience)
		}
		for range 3 {
			time.Sleep(20 * time.Minute)
			if s := b.alerts.Standing(); !slices.Equal(s, []string{AlertBehind}) {
				t.Errorf("after %s: alerts %v", time.Since(begun), s)
			}
			b.checkpoint(1)
		}
		if n := b.requests("down", resultUnreachable); n < 70 || n > 80 {
			t.Errorf("asked %d times in 70 minutes", n)
		}
		down.set(down.witness)
		bubble.Until(t, "both have signed again", func() bool { _, n := b.newest(up.key, down.key); return n == 2 })
		bubble.Until(t, "the alert is cleared", func() bool { return len(b.alerts.Standing()) == 0 })
	})
}

// TestSlowWitnessTR4: a witness that never answers delays no other, and its requests time out.
func TestSlowWitnessTR4(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		slow, fast := b.witness("slow", 11), b.witness("fast", 12)
		slow.set(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		b.start()
		for range 20 {
			b.checkpoint(2)
			begun := time.Now()
			bubble.Until(t, "the fast one has signed", func() bool { _, n := b.newest(fast.key); return n == 1 })
			if took := time.Since(begun); took > 2*step {
				t.Errorf("it took %s", took)
			}
			time.Sleep(time.Minute)
		}
		if n := b.requests("slow", resultUnreachable); n < 10 {
			t.Errorf("the requests to the slow one timed out %d times in 20 minutes", n)
		}
		if s := b.alerts.Standing(); !slices.Equal(s, []string{AlertBehind}) {
			t.Errorf("alerts %v", s)
		}
	})
}

// TestConflictTR4: a witness that has another history raises WITNESS_CONFLICT at once. The alert
// stands while the witness is down, and until it signs.
func TestConflictTR4(t *testing.T) {
	for what, handler := range map[string]http.HandlerFunc{
		"another tree of this size": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnprocessableEntity) },
		"a larger tree": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x.tlog.size")
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte("1000000\n"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newBed(t)
				w := b.witness("one", 11)
				b.start()
				b.checkpoint(3)
				bubble.Until(t, "it has signed", func() bool { _, n := b.newest(w.key); return n == 1 })
				w.set(handler)
				b.checkpoint(3)
				bubble.Until(t, "the alert", func() bool { return slices.Equal(b.alerts.Standing(), []string{AlertConflict}) })
				if b.shown("runlog_witness_conflict") != 1 {
					t.Error("the metric does not have it")
				}
				if _, n := b.newest(w.key); n != 0 {
					t.Error("signed")
				}
				w.set(nil)
				time.Sleep(2 * Patience)
				if s := b.alerts.Standing(); !slices.Equal(s, []string{AlertBehind, AlertConflict}) {
					t.Errorf("while it is down: %v", s)
				}
				w.set(w.witness)
				bubble.Until(t, "cleared", func() bool { return len(b.alerts.Standing()) == 0 && b.shown("runlog_witness_conflict") == 0 })
				if _, n := b.newest(w.key); n != 1 {
					t.Error("not signed")
				}
			})
		})
	}
}

// TestDeposedLeaderTR4: a leader that was deposed without knowing it, and asks with an older
// checkpoint than its successor, raises no alert, whether it learns of its successor's checkpoint
// or of the end of its leadership.
func TestDeposedLeaderTR4(t *testing.T) {
	for _, learns := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			b := newBed(t)
			w := b.witness("one", 11)
			b.checkpoint(3)
			b.mu.Lock()
			b.ahead = func() {
				if learns {
					b.mu.Lock()
					b.ahead = nil
					b.mu.Unlock()
					b.checkpoint(3)
					w.set(w.witness)
				} else {
					b.leads.Store(false)
				}
			}
			b.mu.Unlock()
			var conflicts atomic.Int32
			w.set(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conflicts.Add(1)
				w.Header().Set("Content-Type", "text/x.tlog.size")
				w.WriteHeader(http.StatusConflict)
				_, _ = w.Write([]byte("6\n"))
			}))
			b.start()
			bubble.Until(t, "it has asked", func() bool { return conflicts.Load() > 0 })
			for range 10 {
				time.Sleep(step)
				if s := b.alerts.Standing(); len(s) > 0 {
					t.Errorf("alerts %v", s)
				}
			}
			if _, n := b.newest(w.key); learns && n != 1 {
				t.Error("not signed")
			}
		})
	}
}

// TestRefusedTR4: a witness that does not follow the log is no conflict; the node goes on asking.
func TestRefusedTR4(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		w := b.witness("one", 11)
		w.set(http.NotFoundHandler())
		b.start()
		b.checkpoint(3)
		bubble.Until(t, "it has refused", func() bool { return b.requests("one", resultRefused) > 2 })
		if s := b.alerts.Standing(); len(s) > 0 {
			t.Errorf("alerts %v", s)
		}
		w.set(w.witness)
		bubble.Until(t, "it has signed", func() bool { _, n := b.newest(w.key); return n == 1 })
	})
}

// TestProposalIsLostTR4: a signature that was not stored is asked for again.
func TestProposalIsLostTR4(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		w := b.witness("one", 11)
		b.lost = errors.New("not the leader")
		b.start()
		b.checkpoint(3)
		bubble.Until(t, "proposals fail", func() bool { return b.requests("one", resultFailed) > 1 })
		b.mu.Lock()
		b.lost = nil
		b.mu.Unlock()
		bubble.Until(t, "it is stored", func() bool { _, n := b.newest(w.key); return n == 1 })
	})
}
