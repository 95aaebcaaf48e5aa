package projector

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/watch"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// imported makes the next events of a run, with these runSeq of another authority.
func (b *bed) imported(runID string, seqs ...uint64) storagetest.Request {
	r := b.more(runID, len(seqs))
	for _, seq := range seqs {
		r.Append.Imported = append(r.Append.Imported,
			storage.Assigned{RunSeq: seq, Original: contract.Original{PersistedAt: epoch.Add(-time.Hour).UnixNano() + int64(seq)}})
	}
	return r
}

// onAlert is a log whose reader looks at the projector while it says something.
type onAlert struct {
	slog.Handler
	see func(alert string)
}

func (o onAlert) Enabled(context.Context, slog.Level) bool { return true }

func (o onAlert) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "alert" {
			o.see(a.Value.String())
		}
		return true
	})
	return nil
}

// TestImportedGapsPRJ12: a run with gaps is STALE from the moment at which the projector meets one
// until its watermark has passed it; the alert is raised meanwhile, watchers look again, and the
// snapshot is the fold of what there is.
func TestImportedGapsPRJ12(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		var b *bed
		var sub *watch.Subscription
		alerts := 0
		see := func(alert string) {
			if alert != AlertHole {
				return
			}
			alerts++
			if !b.p.Stale("run") || b.p.Stale("other") {
				t.Errorf("at the alert, STALE are: run %v, other %v", b.p.Stale("run"), b.p.Stale("other"))
			}
			ctx := soon(t)
			if s, err := sub.Next(ctx); err != nil || s.LastEventSeq != 2 {
				t.Errorf("the watcher was shown %v, %v", s, err)
			}
		}
		b = newBed(t, func(o *Options) {
			o.Registerer, o.Logger = reg, slog.New(onAlert{slog.DiscardHandler, func(alert string) { see(alert) }})
		})
		b.propose(b.imported("run", 1, 2), b.more("other", 3))
		b.settle()
		sub, err := b.p.Subscribe("run", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		// A gap before a commit, and one inside of it.
		b.propose(b.imported("run", 5, 6, 9), b.more("other", 1))
		b.settle()
		if b.p.Stale("run") {
			t.Error("the run is STALE behind the gap")
		}
		ctx := soon(t)
		s, err := sub.Next(ctx)
		if err == nil && s.LastEventSeq == 2 {
			// the run as it was when it became STALE, which a slow watcher is not shown
			s, err = sub.Next(ctx)
		}
		if err != nil || s.LastEventSeq != 9 {
			t.Errorf("the watcher was shown %v, %v", s, err)
		}
		if got := counted(t, reg, "runlog_projector_holes_total"); got != 2 || alerts != 1 {
			t.Errorf("%v holes and %d alerts, want 2 and 1: one a second", got, alerts)
		}
		// What is appended to it comes behind.
		b.propose(b.more("run", 2))
		b.check("with gaps")
		if got := b.snapshot("run").LastEventSeq; got != 11 {
			t.Errorf("the run is at %d, want 11", got)
		}
		see = func(string) {}
		b.reopen()
		b.check("after a restart")
	})
}

// TestImportedFromTheMiddlePRJ12: a run may come without its begin.
func TestImportedFromTheMiddlePRJ12(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := newBed(t, func(o *Options) { o.Registerer = reg })
		b.propose(b.imported("run", 7, 8))
		b.check("without its begin")
		if got := counted(t, reg, "runlog_projector_holes_total"); got != 1 {
			t.Errorf("%v holes, want 1", got)
		}
		// A rebuild meets the holes again, and does not raise the alerts again.
		if _, err := b.p.Rebuild(t.Context(), func(Progress) {}); err != nil {
			t.Fatal(err)
		}
		b.check("rebuilt")
		if got := counted(t, reg, "runlog_projector_holes_total"); got != 1 {
			t.Errorf("%v holes after a rebuild, want 1", got)
		}
	})
}
