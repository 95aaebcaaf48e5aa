package projector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// listedRun is what a naive filter needs to know of a run.
type listedRun struct {
	id                         string
	tenant, project, env, plan string
	status                     RunStatus
	createdAt                  int64
}

// makeListed makes runs of a few tenants, projects and so on in proposals of several runs, which share
// their createdAt, and returns them in the order of the list: newest first, then by runId.
func makeListed(t *testing.T, b *bed, count int) []listedRun {
	t.Helper()
	rng := rand.New(rand.NewPCG(9, 9))
	var runs []listedRun
	for len(runs) < count {
		var requests []storagetest.Request
		var made []listedRun
		for range 1 + rng.IntN(3) {
			r := listedRun{
				id:     fmt.Sprintf("%c%d", 'a'+rune(rng.IntN(3)), len(runs)+len(made)),
				tenant: fmt.Sprint("t", rng.IntN(2)), project: fmt.Sprint("p", rng.IntN(2)),
				env: fmt.Sprint("e", rng.IntN(2)), plan: fmt.Sprint("plan", rng.IntN(2)), status: RunPending,
			}
			types := [][]string{
				{contract.RunQueued}, {contract.RunStarted}, {contract.RunStarted, contract.RunCompleted}, {contract.RunCancelled},
			}[rng.IntN(4)]
			if last := types[len(types)-1]; last != contract.RunQueued {
				r.status = map[string]RunStatus{contract.RunStarted: RunRunning, contract.RunCompleted: RunCompleted, contract.RunCancelled: RunCancelled}[last]
			}
			events := make([]contract.Event, len(types))
			for i, eventType := range types {
				e := storagetest.Event(r.id, 0)
				e.Type, e.StepID, e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanID = eventType, "", r.tenant, r.project, r.env, r.plan
				events[i] = keyed(e)
			}
			requests = append(requests, storagetest.Request{Append: &storage.Append{RunID: r.id, Events: events}})
			made = append(made, r)
		}
		b.propose(requests...)
		for i := range made {
			made[i].createdAt = b.local.Applied().PersistedAt
		}
		runs = append(runs, made...)
	}
	slices.SortFunc(runs, func(a, c listedRun) int {
		if a.createdAt != c.createdAt {
			return int(c.createdAt - a.createdAt)
		}
		return slices.Compare([]byte(a.id), []byte(c.id))
	})
	return runs
}

// TestListAgreesWithANaiveFilter draws filters and page sizes.
func TestListAgreesWithANaiveFilter(t *testing.T) {
	b := newBed(t)
	runs := makeListed(t, b, 60)
	b.settle()
	rapid.Check(t, func(rt *rapid.T) {
		some := func(label string, values ...string) string {
			return rapid.SampledFrom(append([]string{""}, values...)).Draw(rt, label)
		}
		bound := func(label string) int64 {
			at := rapid.SampledFrom(runs).Draw(rt, label).createdAt + int64(rapid.IntRange(-1, 1).Draw(rt, label+" shift"))
			return rapid.SampledFrom([]int64{0, at}).Draw(rt, label+" set")
		}
		f := Filter{
			TenantID: some("tenant", "t0", "t1", "t"), ProjectID: some("project", "p0", "p1"),
			EnvironmentID: some("environment", "e0", "e1"), PlanID: some("plan", "plan0", "plan1"),
			Status:       rapid.SampledFrom([]RunStatus{0, 0, RunPending, RunRunning, RunCompleted, RunCancelled, RunFailed}).Draw(rt, "status"),
			CreatedAfter: bound("after"), CreatedBefore: bound("before"),
		}
		var want []Listed
		for _, r := range runs {
			same := func(asked, has string) bool { return asked == "" || asked == has }
			if same(f.TenantID, r.tenant) && same(f.ProjectID, r.project) && same(f.EnvironmentID, r.env) && same(f.PlanID, r.plan) &&
				(f.Status == 0 || f.Status == r.status) &&
				(f.CreatedAfter == 0 || r.createdAt > f.CreatedAfter) && (f.CreatedBefore == 0 || r.createdAt < f.CreatedBefore) {
				want = append(want, Listed{RunID: r.id, Status: r.status})
			}
		}
		limit := rapid.SampledFrom([]int{1, 2, 7, 60, 1000}).Draw(rt, "limit")
		var got []Listed
		var cursor []byte
		for {
			page, next, err := b.p.List(f, cursor, limit)
			if err != nil {
				rt.Fatal(err)
			}
			if len(page) > limit {
				rt.Fatalf("a page of %d, limit %d", len(page), limit)
			}
			got = append(got, page...)
			if cursor = next; next == nil {
				break
			}
			if len(page) < limit {
				rt.Fatalf("a page of %d of %d, and yet another one", len(page), limit)
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%+v:\n got %v\nwant %v", f, got, want)
		}
	})
}

// TestListKeepsItsPlaceWhileRunsAreMade: a cursor goes on with older runs, whatever came meanwhile.
func TestListKeepsItsPlaceWhileRunsAreMade(t *testing.T) {
	b := newBed(t)
	for i := range 10 {
		b.propose(b.more(fmt.Sprint("old-", i), 1))
	}
	b.settle()
	page, next, err := b.p.List(Filter{}, nil, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.propose(b.more(fmt.Sprint("new-", i), 1), b.of(fmt.Sprint("old-", i), contract.RunCancelled, 1))
	}
	b.settle()
	rest, end, err := b.p.List(Filter{}, next, 100)
	if err != nil || end != nil {
		t.Fatalf("second page: %v, %v", end, err)
	}
	var ids []string
	for _, l := range append(page, rest...) {
		ids = append(ids, l.RunID)
	}
	want := []string{"old-9", "old-8", "old-7", "old-6", "old-5", "old-4", "old-3", "old-2", "old-1", "old-0"}
	if !slices.Equal(ids, want) {
		t.Errorf("pages %v, want %v", ids, want)
	}
	if rest[len(rest)-1].Status != RunCancelled {
		t.Errorf("status %v of a run that changed meanwhile", rest[len(rest)-1].Status)
	}
	// A cursor that nobody gave out finds something or nothing, and breaks nothing.
	for _, odd := range [][]byte{{}, {0}, {255}, slices.Repeat([]byte{255}, 100)} {
		if _, _, err := b.p.List(Filter{CreatedBefore: 5, CreatedAfter: 10}, odd, 10); err != nil {
			t.Errorf("cursor %x: %v", odd, err)
		}
		if _, _, err := b.p.List(Filter{}, odd, 10); err != nil {
			t.Errorf("cursor %x: %v", odd, err)
		}
	}
}

func TestListRowsAreParsedOrRefused(t *testing.T) {
	f := &folded{run: &storage.Run{Scope: storage.Scope{TenantID: "t", ProjectID: "", EnvironmentID: "é"}, PlanID: "p"}, now: &Snapshot{Status: RunPaused}}
	row := listRow(f)
	e, ok := parseListRow(row)
	if !ok || e.status != RunPaused || string(e.texts[0]) != "t" || len(e.texts[1]) != 0 || string(e.texts[2]) != "é" || string(e.texts[3]) != "p" {
		t.Errorf("%+v, %v", e, ok)
	}
	for n := range len(row) {
		if _, ok := parseListRow(row[:n]); ok {
			t.Errorf("a row cut off after %d bytes is taken", n)
		}
	}
	if _, ok := parseListRow(append(row, 0)); ok {
		t.Error("a row with something behind it is taken")
	}
}
