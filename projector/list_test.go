package projector

import (
	"cmp"
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

// makeListed makes runs of a few tenants, projects and so on in proposals of several runs, which
// share their createdAt, and returns them in the order of the list: newest first, then by runId.
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
	sortListed(runs)
	return runs
}

// sortListed puts runs into the order of the list.
func sortListed(runs []listedRun) {
	slices.SortFunc(runs, func(a, b listedRun) int {
		return cmp.Or(cmp.Compare(b.createdAt, a.createdAt), cmp.Compare(a.id, b.id))
	})
}

// matches is the naive filter.
func (r *listedRun) matches(f *Filter) bool {
	same := func(asked, has string) bool { return asked == "" || asked == has }
	return same(f.TenantID, r.tenant) && same(f.ProjectID, r.project) && same(f.EnvironmentID, r.env) && same(f.PlanID, r.plan) &&
		(f.Status == 0 || f.Status == r.status) &&
		(f.CreatedAfter == 0 || r.createdAt > f.CreatedAfter) && (f.CreatedBefore == 0 || r.createdAt < f.CreatedBefore)
}

// filtered returns what a filter wants of runs.
func filtered(runs []listedRun, f *Filter) (want []Listed) {
	for i := range runs {
		if r := &runs[i]; r.matches(f) {
			want = append(want, Listed{RunID: r.id, Status: r.status})
		}
	}
	return want
}

// someFilter draws filters with values of runs, and a few that no run has.
func someFilter(runs []listedRun) *rapid.Generator[Filter] {
	return rapid.Custom(func(t *rapid.T) Filter {
		of := func(label string, value func(*listedRun) string) string {
			switch rapid.IntRange(0, 4).Draw(t, label+" kind") {
			case 0, 1:
				return ""
			case 2:
				return rapid.SampledFrom([]string{"t", "p\x00", "\x00", "none"}).Draw(t, label)
			default:
				return value(&runs[rapid.IntRange(0, len(runs)-1).Draw(t, label)])
			}
		}
		bound := func(label string) int64 {
			at := rapid.SampledFrom(runs).Draw(t, label).createdAt + int64(rapid.IntRange(-1, 1).Draw(t, label+" shift"))
			return rapid.SampledFrom([]int64{0, 0, at}).Draw(t, label+" set")
		}
		return Filter{
			TenantID:      of("tenant", func(r *listedRun) string { return r.tenant }),
			ProjectID:     of("project", func(r *listedRun) string { return r.project }),
			EnvironmentID: of("environment", func(r *listedRun) string { return r.env }),
			PlanID:        of("plan", func(r *listedRun) string { return r.plan }),
			Status:        rapid.SampledFrom([]RunStatus{0, 0, RunPending, RunRunning, RunCompleted, RunCancelled, RunFailed}).Draw(t, "status"),
			CreatedAfter:  bound("after"), CreatedBefore: bound("before"),
		}
	})
}

// TestListAgreesWithANaiveFilter draws filters and page sizes.
func TestListAgreesWithANaiveFilter(t *testing.T) {
	b := newBed(t)
	runs := makeListed(t, b, 60)
	b.settle()
	rapid.Check(t, func(rt *rapid.T) {
		f := someFilter(runs).Draw(rt, "filter")
		want := filtered(runs, &f)
		limit := rapid.SampledFrom([]int{1, 2, 7, 60, 1000}).Draw(rt, "limit")
		var got []Listed
		var from []byte
		for {
			page, err := b.p.List(f, from, limit)
			if err != nil {
				rt.Fatal(err)
			}
			if len(page.Runs) > limit {
				rt.Fatalf("a page of %d, limit %d", len(page.Runs), limit)
			}
			got = append(got, page.Runs...)
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
}

// TestListKeepsItsPlaceWhileRunsAreMade: a cursor goes on with older runs, whatever came meanwhile.
func TestListKeepsItsPlaceWhileRunsAreMade(t *testing.T) {
	b := newBed(t)
	for i := range 10 {
		b.propose(b.more(fmt.Sprint("old-", i), 1))
	}
	b.settle()
	page, err := b.p.List(Filter{}, nil, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.propose(b.more(fmt.Sprint("new-", i), 1), b.of(fmt.Sprint("old-", i), contract.RunCancelled, 1))
	}
	b.settle()
	rest, err := b.p.List(Filter{}, page.Next, 100)
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
	if last := rest.Runs[len(rest.Runs)-1]; last.Status != RunCancelled {
		t.Errorf("status %v of a run that changed meanwhile", last.Status)
	}
	// A cursor that nobody gave out finds something or nothing, and breaks nothing.
	for _, odd := range [][]byte{{}, {0}, {255}, slices.Repeat([]byte{255}, 100)} {
		if _, err := b.p.List(Filter{CreatedBefore: 5, CreatedAfter: 10}, odd, 10); err != nil {
			t.Errorf("cursor %x: %v", odd, err)
		}
		if _, err := b.p.List(Filter{}, odd, 10); err != nil {
			t.Errorf("cursor %x: %v", odd, err)
		}
	}
}

func TestListRowsAreParsedOrRefused(t *testing.T) {
	row := appendListRow(nil, &traits{texts: [...]string{"t", "", "é", "p"}, status: RunPaused})
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
