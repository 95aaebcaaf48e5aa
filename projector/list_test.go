package projector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/projector/list"
	"runlog/projector/list/listtest"
	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// makeListed makes runs of a few tenants, projects and so on in proposals of several runs, which
// share their createdAt, and returns them in the order of the list: newest first, then by runId.
func makeListed(t *testing.T, b *bed, count int) []listtest.Run {
	t.Helper()
	rng := rand.New(rand.NewPCG(9, 9))
	var runs []listtest.Run
	for len(runs) < count {
		var requests []storagetest.Request
		var made []listtest.Run
		for range 1 + rng.IntN(3) {
			r := listtest.Run{
				ID:     fmt.Sprintf("%c%d", 'a'+rune(rng.IntN(3)), len(runs)+len(made)),
				Tenant: fmt.Sprint("t", rng.IntN(2)), Project: fmt.Sprint("p", rng.IntN(2)),
				Env: fmt.Sprint("e", rng.IntN(2)), Plan: fmt.Sprint("plan", rng.IntN(2)), Version: fmt.Sprint(rng.IntN(2)), Status: run.Pending,
				Labels: []map[string]string{nil, nil, {"team": "a"}, {"team": "b", "tier": "1"}}[rng.IntN(4)],
			}
			types := [][]string{
				{contract.RunQueued}, {contract.RunStarted}, {contract.RunStarted, contract.RunCompleted}, {contract.RunCancelled},
			}[rng.IntN(4)]
			if last := types[len(types)-1]; last != contract.RunQueued {
				r.Status = map[string]run.Status{contract.RunStarted: run.Running, contract.RunCompleted: run.Completed, contract.RunCancelled: run.Cancelled}[last]
			}
			events := make([]contract.Event, len(types))
			for i, eventType := range types {
				e := storagetest.Event(r.ID, 0)
				e.Type, e.StepID, e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanID = eventType, "", r.Tenant, r.Project, r.Env, r.Plan
				e.PlanVersion = r.Version
				events[i] = keyed(e)
				if eventType == contract.RunStarted {
					r.StartedAt = e.EmittedAt
				}
			}
			request := &storage.Append{RunID: r.ID, Events: events}
			if r.Labels != nil {
				request.Create = &storage.Creation{
					Scope:    storage.Scope{TenantID: r.Tenant, ProjectID: r.Project, EnvironmentID: r.Env},
					Metadata: storage.Metadata{Labels: r.Labels, PlanRef: &storage.PlanRef{PlanID: r.Plan, PlanVersion: r.Version}},
				}
			}
			requests = append(requests, storagetest.Request{Append: request})
			made = append(made, r)
		}
		b.propose(requests...)
		for i := range made {
			made[i].CreatedAt = b.local.Applied().PersistedAt
		}
		runs = append(runs, made...)
	}
	listtest.Sort(runs)
	return runs
}

// TestListAgreesWithANaiveFilter draws filters and page sizes.
func TestListAgreesWithANaiveFilter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		runs := makeListed(t, b, 60)
		b.settle()
		bubble.Run(t, "drawn", func(t testing.TB) {
			rapid.Check(t, func(rt *rapid.T) {
				f := listtest.SomeFilter(runs).Draw(rt, "filter")
				want := listtest.Filtered(runs, &f)
				limit := rapid.SampledFrom([]int{1, 2, 7, 60, 1000}).Draw(rt, "limit")
				var got []listtest.Named
				var from []byte
				for {
					page, err := b.p.List(f, from, limit)
					if err != nil {
						rt.Fatal(err)
					}
					if len(page.Runs) > limit {
						rt.Fatalf("a page of %d, limit %d", len(page.Runs), limit)
					}
					got = append(got, listtest.Names(page.Runs)...)
					if from = page.Next; from == nil {
						break
					}
					if len(page.Runs) < limit {
						rt.Fatalf("a page of %d of %d, and yet another one", len(page.Runs), limit)
					}
				}
				if !slices.Equal(got, want) {
					rt.Fatalf("%+v:\n got %v\nwant %v", f, got, want)
				}
			})
		})
	})
}

// TestListKeepsItsPlaceWhileRunsAreMade: a cursor continues with older runs, whatever came
// meanwhile.
func TestListKeepsItsPlaceWhileRunsAreMade(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		for i := range 10 {
			b.propose(b.more(fmt.Sprint("old-", i), 1))
		}
		b.settle()
		page, err := b.p.List(run.Filter{}, nil, 4)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			b.propose(b.more(fmt.Sprint("new-", i), 1), b.of(fmt.Sprint("old-", i), contract.RunCancelled, 1))
		}
		b.settle()
		rest, err := b.p.List(run.Filter{}, page.Next, 100)
		if err != nil || rest.Next != nil {
			t.Fatalf("second page: %v, %v", rest.Next, err)
		}
		var ids []string
		for _, l := range append(page.Runs, rest.Runs...) {
			ids = append(ids, l.RunID)
		}
		want := []string{"old-9", "old-8", "old-7", "old-6", "old-5", "old-4", "old-3", "old-2", "old-1", "old-0"}
		if !slices.Equal(ids, want) {
			t.Errorf("pages %v, want %v", ids, want)
		}
		if last := rest.Runs[len(rest.Runs)-1]; last.Status != run.Cancelled {
			t.Errorf("status %v of a run that changed meanwhile", last.Status)
		}
		// A place that no page returned finds some runs or none, and is no error.
		for _, odd := range [][]byte{{}, {0}, {255}, slices.Repeat([]byte{255}, 100)} {
			if _, err := b.p.List(run.Filter{CreatedBefore: 5, CreatedAfter: 10}, odd, 10); err != nil {
				t.Errorf("cursor %x: %v", odd, err)
			}
			if _, err := b.p.List(run.Filter{}, odd, 10); err != nil {
				t.Errorf("cursor %x: %v", odd, err)
			}
		}
	})
}

// turn proposes an event of one of some runs with hostile scopes, which may change the run's
// status.
func (b *bed) turn(rng *rand.Rand, runs int) storagetest.Request {
	i := rng.IntN(runs)
	// that keys must keep apart
	valid := []string{"\x00", "\x00\x01", "a", "a\x00", "a\x00\x01b", "ab", "b", "é"}
	e := storagetest.Event(fmt.Sprint("turn-", i), 0)
	e.TenantID, e.ProjectID, e.EnvironmentID = valid[i%3], valid[i/3%3], valid[i/9%2]
	e.PlanID = valid[i%len(valid)]
	e.StepID = ""
	e.Type = []string{contract.RunStarted, contract.RunApproved, contract.RunPaused, contract.RunResumed, contract.RunPaused,
		contract.RunResumed, contract.RunPaused, contract.RunResumed, contract.RunCompleted, contract.RunQueued}[rng.IntN(10)]
	b.runs[e.RunID]++
	e.LogicalAttemptID = uint32(b.runs[e.RunID])
	return storagetest.Request{Append: &storage.Append{RunID: e.RunID, Events: []contract.Event{keyed(e)}}}
}

// TestCrashKeepsTheIndexesPRJ13: whatever a crash leaves of the list, which may be newer than the
// position from which folding resumes, each run has one row in each index at any time, and the
// right one in the end.
func TestCrashKeepsTheIndexesPRJ13(t *testing.T) {
	ahead := 0
	for seed := range storagetest.Draws(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 11))
				b := newBed(t)
				rows := func(what string) {
					t.Helper()
					b.checkRows(what)
				}
				play := func(entries int) {
					for range entries {
						b.propose(b.turn(rng, 20), b.turn(rng, 20))
						if rng.IntN(4) == 0 {
							b.settle()
						}
					}
				}
				for range 4 {
					play(10 + rng.IntN(30))
					b.settle()
					if rng.IntN(4) > 0 {
						if err := b.p.disk.db.db.Flush(); err != nil {
							t.Fatal(err)
						}
					}
					play(rng.IntN(20))
					fs := b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
					b.reopen(func() { b.opts.FS = fs })
					if d := b.p.disk.db; d.opened.newest > d.opened.from {
						ahead++
					}
					rows("right after a crash")
					play(rng.IntN(5))
					rows("on the way")
					b.check("after a crash")
					rows("in the end")
					b.checkFilters(rng)
				}
			})
		})
	}
	if ahead == 0 {
		t.Error("the list was never newer than the position: the test tests nothing")
	}
}

// checkFilters compares pages by some filters with the runs of the store.
func (b *bed) checkFilters(rng *rand.Rand) {
	b.t.Helper()
	var runs []listtest.Run
	for runID := range b.runs {
		run, err := b.local.Run(runID)
		if err != nil {
			b.t.Fatal(err)
		}
		runs = append(runs, listtest.Run{ID: runID, Tenant: run.Scope.TenantID, Project: run.Scope.ProjectID, Env: run.Scope.EnvironmentID,
			Plan: run.PlanID, Version: run.PlanVersion, Status: b.snapshot(runID).Status, CreatedAt: run.CreatedAt})
	}
	listtest.Sort(runs)
	for range 60 {
		like := runs[rng.IntN(len(runs))]
		f := run.Filter{TenantID: like.Tenant, ProjectID: like.Project, EnvironmentID: like.Env, PlanID: like.Plan, Statuses: run.StatusSet(like.Status)}
		for _, field := range []*string{&f.TenantID, &f.ProjectID, &f.EnvironmentID, &f.PlanID} {
			if rng.IntN(2) == 0 {
				*field = ""
			}
		}
		if rng.IntN(2) == 0 {
			f.Statuses = 0
		}
		var got []listtest.Named
		var from []byte
		for more := true; more; more = from != nil {
			page, err := b.p.List(f, from, 1+rng.IntN(9))
			if err != nil {
				b.t.Fatal(err)
			}
			got, from = append(got, listtest.Names(page.Runs)...), page.Next
		}
		if want := listtest.Filtered(runs, &f); !slices.Equal(got, want) {
			b.t.Errorf("%+v:\n got %v\nwant %v", f, got, want)
		}
	}
}

// checkRows wants the tables of the list to have the rows of its runs, and no others.
func (b *bed) checkRows(what string) {
	b.t.Helper()
	db := b.p.disk.db.db.NewSnapshot()
	defer db.Close()
	var got, want []string
	it, err := db.NewIter(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		if b.p.list.has(it.Key()) {
			got = append(got, string(it.Key()))
		}
	}
	var f list.Folder
	for from := []byte(nil); ; {
		page, next, err := list.Read(db, &run.Filter{}, from, 1000)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, l := range page {
			r, err := b.local.Run(l.RunID)
			if err != nil {
				b.t.Fatal(err)
			}
			if err := f.Fold(keysTx{&want}, &run.Change{Run: r, Now: &run.Snapshot{Status: l.Status}}); err != nil {
				b.t.Fatal(err)
			}
		}
		if from = next; next == nil {
			break
		}
	}
	surplus := slices.DeleteFunc(slices.Clone(got), func(key string) bool { return slices.Contains(want, key) })
	missing := slices.DeleteFunc(slices.Clone(want), func(key string) bool { return slices.Contains(got, key) })
	if len(surplus)+len(missing) > 0 {
		b.t.Fatalf("%s: rows that no run has: %q; missing: %q", what, surplus, missing)
	}
}

// keysTx collects the keys that are set.
type keysTx struct{ keys *[]string }

func (tx keysTx) Get([]byte) ([]byte, error) { return nil, nil }
func (tx keysTx) Set(key, _ []byte)          { *tx.keys = append(*tx.keys, string(key)) }
func (tx keysTx) Delete([]byte)              {}
func (tx keysTx) SingleDelete([]byte)        {}
