package projector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// traffic appends to runs of two tenants, whose status changes all the time.
type traffic struct {
	b    *bed
	rng  *rand.Rand
	made map[string]int
}

func newTraffic(b *bed, seed uint64) *traffic {
	return &traffic{b: b, rng: rand.New(rand.NewPCG(seed, 0)), made: map[string]int{}}
}

func tenantOf(run int) string { return fmt.Sprint("tenant-", run%2) }

// request is about one run of many: most of the time some events.
func (tr *traffic) request(runs int) storagetest.Request {
	run := tr.rng.IntN(runs)
	runID := fmt.Sprint("run-", run)
	if tr.rng.IntN(8) == 0 {
		if tr.made[runID] > 0 {
			return setRef(runID)
		}
		tr.made[runID]++ // its first event is another one than RunStarted then
		return storagetest.Request{Append: &storage.Append{RunID: runID, Create: &storage.Creation{
			Scope:    storage.Scope{TenantID: tenantOf(run), ProjectID: "project", EnvironmentID: "prod"},
			Metadata: storage.Metadata{PlanRef: &storage.PlanRef{URI: "s3://p", PlanID: "plan", PlanVersion: "v1"}},
		}}}
	}
	a := &storage.Append{RunID: runID}
	for range 1 + tr.rng.IntN(3) {
		n := tr.made[runID]
		tr.made[runID]++
		e := storagetest.Event(runID, n)
		e.TenantID = tenantOf(run)
		if types := []string{contract.RunPaused, contract.RunResumed, contract.RunCompleted, "Noted", "Noted"}; n == 0 {
			e.Type, e.StepID = contract.RunStarted, ""
		} else if e.Type = types[tr.rng.IntN(len(types))]; e.Type != "Noted" {
			e.StepID, e.LogicalAttemptID = "", uint32(n)
		}
		a.Events = append(a.Events, keyed(e))
	}
	return storagetest.Request{Append: a}
}

func (tr *traffic) propose(proposals, runs int) {
	for range proposals {
		var requests []storagetest.Request
		for range tr.rng.IntN(4) {
			requests = append(requests, tr.request(runs))
		}
		tr.b.propose(requests...)
	}
}

// history is what the log says: for each run its newest commit that is news; and how far its run is
// after a commit.
func (b *bed) history() (map[string]watch.Change, map[watch.Cursor]uint64) {
	b.t.Helper()
	newest, seqs := map[string]watch.Change{}, map[watch.Cursor]uint64{}
	var at watch.Cursor
	for c, err := range b.local.Store.Follow(storage.Facts).Log(0) {
		if err != nil {
			b.t.Fatal(err)
		}
		at = at.Next(c.Position)
		before := newest[c.Run.RunID]
		switch n := len(c.Records); {
		case n > 0:
			before.LastEventSeq, before.Cursor = c.Records[n-1].RunSeq, at
		case before.LastEventSeq == 0:
			before.Cursor = at
		}
		before.RunID = c.Run.RunID
		newest[c.Run.RunID], seqs[at] = before, before.LastEventSeq
	}
	for id, c := range newest {
		c.Status = b.snapshot(id).Status
		newest[id] = c
	}
	return newest, seqs
}

// drain reads until it has got everything that is published, and hands each change on.
func drain(t testing.TB, b *bed, s *watch.RunsSubscription, told func(*watch.Change)) {
	t.Helper()
	b.settle()
	bubble.Until(t, "everything is published", func() bool { return b.p.watch.Published() >= b.p.Position() })
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if !s.CaughtUp() {
			ctx = context.Background()
		}
		news, err := s.Next(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range news {
			told(c)
		}
	}
}

// follower is a reader that keeps a list of runs by what it reads, and checks the order on the way.
type follower struct {
	t      testing.TB
	filter run.Filter
	last   watch.Cursor
	runs   map[string]watch.Mark
	tokens []watch.Cursor
	seqs   []uint64 // reported at these
}

func newFollower(t testing.TB, f run.Filter) *follower {
	return &follower{t: t, filter: f, runs: map[string]watch.Mark{}}
}

func (r *follower) told(c *watch.Change) {
	if c.Cursor.Compare(r.last) <= 0 {
		r.t.Errorf("%s at %v after %v (WATCH-2)", c.RunID, c.Cursor, r.last)
	}
	if before := r.runs[c.RunID]; c.LastEventSeq < before.LastEventSeq {
		r.t.Errorf("%s went back from %d to %d (WATCH-3)", c.RunID, before.LastEventSeq, c.LastEventSeq)
	}
	r.last, r.runs[c.RunID] = c.Cursor, c.Mark
	r.tokens, r.seqs = append(r.tokens, c.Cursor), append(r.seqs, c.LastEventSeq)
}

// check compares the reader's list with what the log says.
func (r *follower) check(what string, b *bed) {
	r.t.Helper()
	history, seqs := b.history()
	for i, at := range r.tokens {
		if seqs[at] != r.seqs[i] {
			r.t.Errorf("%s: told of runSeq %d at %v, where its run is at %d", what, r.seqs[i], at, seqs[at])
		}
	}
	for id, want := range history {
		got, told := r.runs[id]
		if told && (got.LastEventSeq != want.LastEventSeq || got.Status != want.Status) {
			// Another status than the filter's may be old: nothing is reported of what does not
			// concern the reader.
			if r.filter.Statuses.Match(got.Status) || r.filter.Statuses.Match(want.Status) {
				r.t.Errorf("%s: %s is told at %d %v, want %d %v", what, id, got.LastEventSeq, got.Status, want.LastEventSeq, want.Status)
			}
		}
		run, err := r.runOf(id)
		if err != nil {
			r.t.Fatal(err)
		}
		matches := r.filter.TenantID == "" || r.filter.TenantID == run
		if told && !matches {
			r.t.Errorf("%s: %s is of another tenant", what, id)
		}
		if !told && matches && r.filter.Statuses.Match(want.Status) {
			r.t.Errorf("%s: %s is missing: %d %v", what, id, want.LastEventSeq, want.Status)
		}
	}
}

func (r *follower) runOf(id string) (string, error) {
	var n int
	_, err := fmt.Sscanf(id, "run-%d", &n)
	return tenantOf(n), err
}

// TestRunsSubscriptionWATCH2 draws appends, pauses of the reader, restarts of the projector and
// losses of its database: the reader's list comes to be what the log says, in commit order, and
// from each of its cursors another reader gets exactly what came behind.
func TestRunsSubscriptionWATCH2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		bubble.Run(t, "drawn", func(t testing.TB) { rapid.Check(t, func(rt *rapid.T) { playRuns(t, rt) }) })
	})
}

func playRuns(t testing.TB, rt *rapid.T) {
	b := newBed(t)
	defer b.closeProjector()
	tr := newTraffic(b, rapid.Uint64().Draw(rt, "seed"))
	filter := run.Filter{
		TenantID: rapid.SampledFrom([]string{"", "tenant-0"}).Draw(rt, "tenant"),
		Statuses: rapid.SampledFrom([]run.Statuses{0, 0, run.StatusSet(run.Running), run.StatusSet(run.Paused, run.Waiting)}).Draw(rt, "status"),
	}
	r := newFollower(t, filter)
	sub, err := b.p.SubscribeRuns(filter, &watch.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	for range rapid.IntRange(1, 8).Draw(rt, "turns") {
		tr.propose(rapid.IntRange(0, 20).Draw(rt, "proposals"), 12)
		switch rapid.IntRange(0, 5).Draw(rt, "then") {
		case 0, 1: // the reader is slow
		case 2:
			drain(t, b, sub, r.told)
		case 3, 4: // cut off anywhere
			from := sub.Cursor()
			if rapid.Bool().Draw(rt, "after what it was told") {
				from = r.last
			}
			var lost []func()
			if rapid.IntRange(0, 2).Draw(rt, "lose") == 0 {
				lost = append(lost, func() { _ = b.opts.FS.RemoveAll(b.opts.Dir) })
			}
			b.reopen(lost...)
			if sub, err = b.p.SubscribeRuns(filter, &from); err != nil {
				t.Fatal(err)
			}
		case 5: // one step only
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			news, _ := sub.Next(ctx)
			cancel()
			for _, c := range news {
				r.told(c)
			}
		}
	}
	drain(t, b, sub, r.told)
	sub.Close()
	r.check("the reader", b)
	history, _ := b.history()
	for range 3 {
		if len(r.tokens) > 0 {
			checkRest(t, b, filter, rapid.SampledFrom(r.tokens).Draw(rt, "token"), history)
		}
	}
}

// checkRest resumes behind a cursor and wants exactly the runs whose newest commit is there.
func checkRest(t testing.TB, b *bed, f run.Filter, from watch.Cursor, history map[string]watch.Change) {
	t.Helper()
	sub, err := b.p.SubscribeRuns(f, &from)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	var got, want []string
	rest := newFollower(t, f)
	drain(t, b, sub, func(c *watch.Change) {
		rest.told(c)
		if f.Statuses.Match(c.Status) {
			got = append(got, fmt.Sprint(c.RunID, " ", c.LastEventSeq, " ", c.Status))
		}
	})
	var behind []watch.Change
	for _, c := range history {
		tenant, _ := rest.runOf(c.RunID)
		if c.Cursor.Compare(from) > 0 && (f.TenantID == "" || f.TenantID == tenant) && f.Statuses.Match(c.Status) {
			behind = append(behind, c)
		}
	}
	slices.SortFunc(behind, func(a, b watch.Change) int { return a.Cursor.Compare(b.Cursor) })
	for _, c := range behind {
		want = append(want, fmt.Sprint(c.RunID, " ", c.LastEventSeq, " ", c.Status))
	}
	if !slices.Equal(got, want) {
		t.Errorf("behind %v told %q, want %q", from, got, want)
	}
}

// TestRunsSubscriptionUnderLoadWATCH2: readers that come and go while appends come in miss nothing.
func TestRunsSubscriptionUnderLoadWATCH2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		tr := newTraffic(b, 1)
		done := make(chan map[string]watch.Mark)
		stop, end := context.WithCancel(context.Background())
		go func() {
			r, from := newFollower(t, run.Filter{}), watch.Cursor{}
			for turn := 0; stop.Err() == nil; turn++ {
				sub, err := b.p.SubscribeRuns(run.Filter{}, &from)
				if err != nil {
					t.Error(err)
					break
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(turn%7)*time.Millisecond)
				for err == nil {
					var news []*watch.Change
					if news, err = sub.Next(ctx); err == nil {
						// what is not read comes again
						for _, c := range news[:len(news)-turn%2*len(news)/2] {
							r.told(c)
						}
						if turn%2 == 1 {
							break
						}
					}
				}
				cancel()
				if from = r.last; turn%2 == 0 {
					from = sub.Cursor()
				}
				sub.Close()
			}
			sub, err := b.p.SubscribeRuns(run.Filter{}, &from)
			if err != nil {
				t.Error(err)
				return
			}
			drain(t, b, sub, r.told)
			done <- r.runs
		}()
		tr.propose(2000, 40)
		b.settle()
		end()
		got := <-done
		history, _ := b.history()
		for id, want := range history {
			if got[id].LastEventSeq != want.LastEventSeq || got[id].Status != want.Status {
				t.Errorf("%s is told at %d %v, want %d %v", id, got[id].LastEventSeq, got[id].Status, want.LastEventSeq, want.Status)
			}
		}
	})
}

// TestSlowReaderOfManyRunsWATCH3: one that reads nothing while more runs change than there is room
// for learns of each of them once, from the log.
func TestSlowReaderOfManyRunsWATCH3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		storagetest.Large(t)
		b := newBed(t)
		sub, err := b.p.SubscribeRuns(run.Filter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		const runs = 2010 // more than twice as many as may wait
		for turn := range 3 {
			for i := 0; i < runs; i += 10 {
				var requests []storagetest.Request
				for j := range 10 {
					requests = append(requests, b.more(fmt.Sprint("run-", i+j), 1+turn))
				}
				b.propose(requests...)
			}
		}
		b.settle()
		r := newFollower(t, run.Filter{})
		count := 0
		drain(t, b, sub, func(c *watch.Change) { r.told(c); count++ })
		if count != runs {
			t.Errorf("told %d times of %d runs", count, runs)
		}
		r.check("afterwards", b)
	})
}

// TestExistingRunsWATCH2: a reader that begins with the existing runs misses nothing, whenever they
// change.
func TestExistingRunsWATCH2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		tr := newTraffic(b, 3)
		tr.propose(300, 50)
		filter := run.Filter{Statuses: run.StatusSet(run.Paused)}
		for range 20 {
			b.settle()
			sub, err := b.p.SubscribeRuns(filter, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := newFollower(t, filter)
			var cursor []byte
			for {
				tr.propose(3, 60)
				page, next, err := sub.Existing(t.Context(), cursor, 7)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page {
					r.runs[e.RunID] = e.Mark
				}
				if cursor = next; next == nil {
					break
				}
			}
			drain(t, b, sub, r.told)
			r.check("list and news", b)
			sub.Close()
		}
	})
}

// TestSubscriptionsOfBothKindsAreBoundedD12 by one number.
func TestSubscriptionsOfBothKindsAreBoundedD12(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *Options) { o.MaxSubscriptions = 2 })
		one, err := b.p.Subscribe("run", nil)
		if err != nil {
			t.Fatal(err)
		}
		many, err := b.p.SubscribeRuns(run.Filter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.p.Subscribe("run", nil); !errors.Is(err, watch.ErrTooManyWatchers) {
			t.Errorf("a third one: %v", err)
		}
		if _, err := b.p.SubscribeRuns(run.Filter{}, nil); !errors.Is(err, watch.ErrTooManyWatchers) {
			t.Errorf("a third one of many: %v", err)
		}
		many.Close()
		many.Close()
		one.Close()
		if got := b.p.watch.Count(); got != 0 {
			t.Errorf("%d subscriptions are left", got)
		}
	})
}
