package projector

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// TestWritesTogetherREAD6: rounds that follow each other closely share a write. Snapshots are of
// the last round; the list says which position it has, and has everything as soon as a reader waits
// for it.
func TestWritesTogetherREAD6(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var now atomic.Int64
		b := newBed(t, func(o *Options) { o.Clock = func() time.Time { return time.Unix(0, now.Load()) } })
		b.propose(b.more("run", 1))
		b.settle()
		b.halt()
		log := b.local.Store.FollowAhead(storage.Facts)
		defer log.Close()
		round := func(idle bool) {
			t.Helper()
			if _, err := b.p.round(log, 0, idle); err != nil {
				t.Fatal(err)
			}
		}
		round(true)
		written := b.p.Position()
		want := func(what string, writes bool, at storage.Position, status run.Status, steps uint32) {
			t.Helper()
			round(false)
			page, err := b.p.List(run.Filter{}, nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			if writes {
				written = at
			}
			if b.p.Position() != at || page.Position != written || b.p.written() != writes {
				t.Errorf("%s: folded up to %d of %d, the list up to %d of %d", what, b.p.Position(), at, page.Position, written)
			}
			if row := page.Runs[0]; row.Status != status || row.StepCount != steps {
				t.Errorf("%s: the row is %+v", what, row)
			}
			if got := b.snapshot("run").LastEventSeq; got != uint64(b.runs["run"]) {
				t.Errorf("%s: the snapshot has %d events", what, got)
			}
		}
		event := func(eventType string) storage.Position {
			b.runs["run"]++
			return b.propose(b.of("run", eventType, 1))
		}
		want("soon after a write", false, b.propose(b.more("run", 1)), run.Running, 0)
		want("a status too", false, event(contract.RunPaused), run.Running, 0)
		now.Add(int64(writeAfter))
		want("after a while", true, event(contract.RunResumed), run.Running, 1)
		want("soon again", false, b.propose(b.more("run", 1)), run.Running, 1)
		b.p.waiters.Add(1)
		want("while a reader waits", true, b.propose(b.more("run", 1)), run.Running, 2)
		b.p.waiters.Add(-1)
		want("soon", false, b.propose(b.more("run", 1)), run.Running, 2)
		fs := b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
		b.reopen(func() { b.opts.FS = fs })
		b.check("after a crash")
		b.checkRows("after a crash")
	})
}

// TestWritesForReaders: a goroutine that waits for what is folded ends the waiting of run, although
// no event comes. One that waits for what no event brings does not keep run busy.
func TestWritesForReaders(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.propose(b.more("run", 1))
		b.settle()
		b.halt()
		log := b.local.Store.FollowAhead(storage.Facts)
		defer log.Close()
		round := func(idle bool) {
			t.Helper()
			if _, err := b.p.round(log, 0, idle); err != nil {
				t.Fatal(err)
			}
		}
		round(true)
		b.propose(b.more("run", 1))
		round(false)
		if b.p.written() {
			t.Fatal("the round is written: the test tests nothing")
		}
		b.p.waiters.Add(1)
		if b.p.await(t.Context()) {
			t.Error("a goroutine waited until no event had come for a while")
		}
		round(false)
		if !b.p.written() {
			t.Error("the next round is not written")
		}
		if !b.p.await(t.Context()) {
			t.Error("a goroutine that waits on keeps run busy")
		}
	})
}
