package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// stamped is a record and the stamp of its proposal.
type stamped struct {
	storage.Record
	at int64
}

// everything reads the log from its begin.
func everything(t rapid.TB, s *storage.Store) (all []stamped) {
	t.Helper()
	for c, err := range s.Follow(storage.Whole).Log(0) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.Records {
			all = append(all, stamped{r, c.PersistedAt})
		}
	}
	return all
}

func passes(f *storage.WindowFilter, r *storage.Record) bool {
	for _, p := range [][2]string{
		{f.TenantID, r.TenantID}, {f.ProjectID, r.ProjectID}, {f.EnvironmentID, r.EnvironmentID},
		{f.PlanID, r.PlanID}, {f.RunID, r.RunID}, {f.StepID, r.StepID},
	} {
		if p[0] != "" && p[0] != p[1] {
			return false
		}
	}
	return len(f.Types) == 0 || slices.Contains(f.Types, r.Type)
}

// drawFilter draws one that often lets something through.
func drawFilter(t *rapid.T, all []stamped) (f storage.WindowFilter) {
	like := storage.Record{}
	if len(all) > 0 {
		like = rapid.SampledFrom(all).Draw(t, "like").Record
	}
	for _, field := range []struct {
		to    *string
		value string
	}{
		{&f.TenantID, like.TenantID}, {&f.ProjectID, like.ProjectID}, {&f.EnvironmentID, like.EnvironmentID},
		{&f.PlanID, like.PlanID}, {&f.RunID, like.RunID}, {&f.StepID, like.StepID},
	} {
		switch rapid.IntRange(0, 9).Draw(t, "filter") {
		case 0, 1, 2:
			*field.to = field.value
		case 3:
			*field.to = "nothing"
		}
	}
	if rapid.Bool().Draw(t, "types") {
		f.Types = []string{like.Type, "RunPaused"}
	}
	return f
}

// drawTime draws a time at, next to, or far from a stamp.
func drawTime(t *rapid.T, all []stamped) int64 {
	at := int64(0)
	if len(all) > 0 {
		at = rapid.SampledFrom(all).Draw(t, "near").at
	}
	return rapid.SampledFrom([]int64{at, at, at + 1, at - 1, 0, math.MaxInt64}).Draw(t, "time")
}

// readWindow reads a positions in pieces, each with another reader where the one before ended.
func readWindow(t rapid.TB, s *storage.Store, st storage.PositionRange, f storage.WindowFilter, piece func() int) (got []storage.Record) {
	t.Helper()
	var at storage.WindowCursor
	for {
		r, err := s.OpenWindow(st, f, at)
		if err != nil {
			t.Fatal(err)
		}
		more, begun := true, at
		for range piece() { // a Next continues in what the one before has read
			var records []storage.Record
			n := piece()
			if records, more, err = r.Next(n); err != nil {
				t.Fatal(err)
			}
			if len(records) > n {
				t.Fatalf("%d records, asked for %d", len(records), n)
			}
			got = append(got, records...)
			if !more {
				break
			}
		}
		at = r.Cursor()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if !more {
			return got
		}
		if at == begun {
			t.Fatalf("no progress at %+v", at)
		}
	}
}

// TestWindowsREAD3 compares windows with the log, filtered: every filter, read in pieces of any
// size, whatever was flushed or compacted meanwhile.
func TestWindowsREAD3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{MemTableBytes: 64 << 10})
		p := storagetest.NewPair(l)
		w := storagetest.Workload{Model: p.Model, LargePayloads: rapid.Bool().Draw(t, "large"), Imports: true, Compound: true}
		for range rapid.IntRange(0, 25).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			if _, err := p.Propose(clock, requests...); err != nil {
				t.Fatal(err)
			}
			var err error
			switch rapid.IntRange(0, 14).Draw(t, "meanwhile") {
			case 0:
				err = l.Store.Flush()
			case 1:
				err = l.Store.Compact(context.Background())
			case 2:
				err = l.Reopen()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		all := everything(t, l.Store)
		for range 5 {
			f := drawFilter(t, all)
			from, to := drawTime(t, all), drawTime(t, all)
			st, through, err := l.Store.PositionRange(from, to)
			if err != nil || through != l.Store.Applied().PersistedAt {
				t.Fatalf("complete through %d, want %d; %v", through, l.Store.Applied().PersistedAt, err)
			}
			var want []storage.Record
			for i := range all {
				if r := &all[i]; from <= r.at && r.at < to && passes(&f, &r.Record) {
					want = append(want, r.Record)
				}
			}
			got := readWindow(t, l.Store, st, f, func() int { return rapid.SampledFrom([]int{1, 2, 3, 7, 1000}).Draw(t, "piece") })
			if len(got) != len(want) {
				t.Fatalf("%d records in [%d, %d) with %+v, want %d", len(got), from, to, f, len(want))
			}
			for i := range got {
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Fatalf("record %d is\n%+v, want\n%+v", i, got[i], want[i])
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestClosedRangesStayREAD4: once a positions ends at or before what is complete, it is the same
// forever.
func TestClosedRangesStayREAD4(t *testing.T) {
	l := open(t, storage.Options{})
	defer l.Close()
	type window struct{ from, to int64 }
	answers := map[window]string{}
	for i := range 60 {
		events := storagetest.Events("run", i*3, 1+i%3)
		request := storagetest.Request{Append: &storage.Append{RunID: "run", Events: events}}
		// Clocks of leaders that disagree.
		if _, err := l.Propose(1_000+int64(i)*10-int64(i%7)*40, []storagetest.Request{request}); err != nil {
			t.Fatal(err)
		}
		if i%20 == 19 {
			if err := l.Store.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range []window{{0, 500}, {1_000, 1_100}, {1_050, 1_300}, {0, 1_601}} {
			st, through, err := l.Store.PositionRange(w.from, w.to)
			if err != nil {
				t.Fatal(err)
			}
			if through < w.to {
				continue
			}
			got := fmt.Sprint(st)
			for _, r := range readWindow(t, l.Store, st, storage.WindowFilter{}, func() int { return 100 }) {
				got += fmt.Sprintf(" %d@%d", r.RunSeq, r.PersistedAt)
			}
			if was, ok := answers[w]; ok && was != got {
				t.Fatalf("%v was\n%s, is\n%s", w, was, got)
			}
			answers[w] = got
		}
	}
	if len(answers) != 3 {
		t.Errorf("%d windows were closed, want 3", len(answers))
	}
}

// TestTenantPaysForItselfREAD3: of a tenant's window only the chunks are read that have something
// of it.
func TestTenantPaysForItselfREAD3(t *testing.T) {
	l := open(t, storage.Options{})
	defer l.Close()
	large := bytes.Repeat([]byte("x"), 40<<10)
	for i := range 50 {
		var requests []storagetest.Request
		for tenant := range 10 {
			if tenant == 3 && i%5 != 0 {
				continue
			}
			id := fmt.Sprintf("run-%d", tenant)
			events := ofTenant(fmt.Sprintf("tenant-%d", tenant), storagetest.Events(id, i, 1))
			events[0].Payload = []byte(fmt.Sprintf(`{"large":"%s%d"}`, large, i))
			requests = append(requests, storagetest.Request{Append: &storage.Append{RunID: id, Events: events}})
		}
		if _, err := l.Propose(1_000+int64(i), requests); err != nil {
			t.Fatal(err)
		}
	}
	st, _, err := l.Store.PositionRange(0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Store.OpenWindow(st, storage.WindowFilter{TenantID: "tenant-3"}, storage.WindowCursor{})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for more := true; more; {
		var records []storage.Record
		if records, more, err = r.Next(100); err != nil {
			t.Fatal(err)
		}
		found += len(records)
	}
	if err := errors.Join(r.Close()); err != nil {
		t.Fatal(err)
	}
	if looked := storage.ChunksRead(r); found != 10 || looked > 2*found {
		t.Errorf("%d events in %d chunks, want 10 in at most 20", found, looked)
	}
}

// TestStampUpToTR7: the stamp up to any position is that of the last proposal up to there, as the
// log has them, also of proposals without events, behind the last one, and after a restart.
func TestStampUpToTR7(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{})
		p := storagetest.NewPair(l)
		w := storagetest.Workload{Model: p.Model, Imports: true, Compound: true}
		stamps := map[storage.Position]int64{}
		for range rapid.IntRange(0, 25).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			if rapid.IntRange(0, 3).Draw(t, "empty") == 0 {
				requests = nil
			}
			if _, err := p.Propose(clock, requests...); err != nil {
				t.Fatal(err)
			}
			applied := l.Store.Applied()
			stamps[applied.Position()] = applied.PersistedAt
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				if err := l.Reopen(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, c := range everything(t, l.Store) {
			if stamp, err := l.Store.StampUpTo(c.Position); err != nil || stamp != c.at {
				t.Fatalf("up to the event at %d: %d, %v; want %d", c.Position, stamp, err, c.at)
			}
		}
		applied := l.Store.Applied()
		stamps[applied.Position()+1000] = applied.PersistedAt // No proposal is as far.
		for position, want := range stamps {
			if stamp, err := l.Store.StampUpTo(position); err != nil || stamp != want {
				t.Fatalf("up to %d: %d, %v; want %d", position, stamp, err, want)
			}
		}
		if stamp, err := l.Store.StampUpTo(0); err != nil || stamp != 0 && stamps[0] != stamp {
			t.Fatalf("before the first position: %d, %v", stamp, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
