package projector

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// hostileTexts are values that would meet in the keys if they had no ends, or ends that a value
// could have.
var hostileTexts = []string{"", "\x00", "\x00\x01", "\x00\xff", "\x00\xff\x00\x01", "\xff", "\xff\xff", "a", "a\x00", "a\x00\x01b", "a\x00\xff", "ab", "b", "é"}

// Texts in keys sort as the texts do, and none is the begin of another with what may follow.
func TestTextsInKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.OneOf(rapid.SampledFrom(hostileTexts),
			rapid.Map(rapid.SliceOf(rapid.SampledFrom([]byte{0, 1, 2, 'a', 0xfe, 0xff})), func(b []byte) string { return string(b) }))
		a, b := some.Draw(t, "a"), some.Draw(t, "b")
		keyA, keyB := appendText(nil, a), appendText(nil, b)
		if got, want := bytes.Compare(keyA, keyB), strings.Compare(a, b); got != want {
			t.Fatalf("%x and %x compare as %d, the texts as %d", keyA, keyB, got, want)
		}
		if a != b && (bytes.HasPrefix(keyA, keyB) || bytes.HasPrefix(keyB, keyA)) {
			t.Fatalf("%x and %x: one begins with the other", keyA, keyB)
		}
	})
}

func TestFiltersChooseTheirIndexes(t *testing.T) {
	for _, c := range []struct {
		filter Filter
		want   string
	}{
		{Filter{}, ""},
		{Filter{TenantID: "t"}, "T"},
		{Filter{TenantID: "t", ProjectID: "p"}, "J"},
		{Filter{TenantID: "t", ProjectID: "p", EnvironmentID: "e"}, "E"},
		{Filter{PlanID: "p"}, "P"},
		{Filter{Status: RunFailed}, "S"},
		{Filter{TenantID: "t", Status: RunFailed}, "U"},
		{Filter{TenantID: "t", ProjectID: "p", Status: RunFailed}, "JU"},
		{Filter{TenantID: "t", PlanID: "p", Status: RunFailed}, "UP"},
		{Filter{TenantID: "t", ProjectID: "p", EnvironmentID: "e", PlanID: "p", Status: RunFailed}, "EUP"},
		{Filter{PlanID: "p", Status: RunFailed}, "PS"},
		{Filter{TenantID: "t", EnvironmentID: "e"}, "T"},
		{Filter{ProjectID: "p", EnvironmentID: "e"}, ""},
	} {
		got := ""
		for _, x := range c.filter.traits().chosen() {
			got += string(x.table)
		}
		if got != c.want {
			t.Errorf("%+v is looked up in %q, want %q", c.filter, got, c.want)
		}
	}
}

// ender is a test, or one drawing of a property.
type ender interface {
	Fatal(...any)
	Error(...any)
	Cleanup(func())
}

// listBed is a database into which a test puts runs as rounds do.
type listBed struct {
	d    *database
	runs []listedRun // newest first
	made int
}

func newListBed(t ender) *listBed {
	o := &Options{Dir: "projection", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)}
	d, err := tryDatabase(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(func() error { return nil }); err != nil {
			t.Error(err)
		}
	})
	return &listBed{d: d}
}

func (r *listedRun) run() *storage.Run {
	return &storage.Run{RunID: r.id, CreatedAt: r.createdAt, PlanID: r.plan,
		Scope: storage.Scope{TenantID: r.tenant, ProjectID: r.project, EnvironmentID: r.env}}
}

// make makes runs, newer than all before, in the order of the list.
func (l *listBed) make(t ender, made ...listedRun) {
	w := l.d.write()
	defer w.close()
	for i := range made {
		w.list(&folded{run: made[i].run(), now: &Snapshot{Status: made[i].status}, anew: true})
	}
	if err := w.apply(); err != nil {
		t.Fatal(err)
	}
	l.runs = append(slices.Clone(made), l.runs...)
	l.made += len(made)
}

func (l *listBed) move(t ender, i int, to RunStatus) {
	r := &l.runs[i]
	if r.status == to {
		return
	}
	l.fold(t, &folded{run: r.run(), listed: r.status, now: &Snapshot{Status: to}})
	r.status = to
}

func (l *listBed) fold(t ender, f *folded) {
	w := l.d.write()
	defer w.close()
	w.list(f)
	if err := w.apply(); err != nil {
		t.Fatal(err)
	}
}

// draw makes a run or a few that share their createdAt.
func (l *listBed) draw(t *rapid.T) {
	value := rapid.SampledFrom(hostileTexts)
	var made []listedRun
	for n := range rapid.IntRange(1, 3).Draw(t, "runs") {
		made = append(made, listedRun{
			id:     value.Draw(t, "id") + fmt.Sprint(l.made+n),
			tenant: value.Draw(t, "tenant"), project: value.Draw(t, "project"),
			env: value.Draw(t, "environment"), plan: value.Draw(t, "plan"),
			status:    rapid.SampledFrom([]RunStatus{RunPending, RunRunning, RunCompleted}).Draw(t, "status"),
			createdAt: int64(l.made + 1),
		})
	}
	slices.SortFunc(made, func(a, b listedRun) int { return strings.Compare(a.id, b.id) })
	l.make(t, made...)
}

// Whatever is made and changed between the pages of a list, and however small the pages and the
// work for each: no run comes twice, none comes that did not match when it came, and none that
// matched all the while is left out.
func TestPagesWhileRunsAreMadeAndChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newListBed(t)
		for range rapid.IntRange(1, 15).Draw(t, "first runs") {
			l.draw(t)
		}
		f := someFilter(l.runs).Draw(t, "filter")
		always := map[string]bool{}
		for _, r := range filtered(l.runs, &f) {
			always[r.RunID] = true
		}
		seen := map[string]bool{}
		var from []byte
		for pages := 0; ; pages++ {
			if pages > 10_000 {
				t.Fatal("the list does not end")
			}
			limit, looks := rapid.IntRange(1, 5).Draw(t, "limit"), rapid.IntRange(8, 40).Draw(t, "looks")
			page, next, err := l.d.list(&f, from, limit, looks)
			if err != nil {
				t.Fatal(err)
			}
			now := filtered(l.runs, &f)
			for _, r := range page {
				if seen[r.RunID] {
					t.Fatalf("%q comes twice", r.RunID)
				}
				if !slices.Contains(now, r) {
					t.Fatalf("%+v comes and does not match %+v", r, f)
				}
				seen[r.RunID] = true
			}
			if from = next; from == nil {
				break
			}
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				if rapid.Bool().Draw(t, "make") && l.made < 60 {
					l.draw(t)
				} else {
					l.move(t, rapid.IntRange(0, len(l.runs)-1).Draw(t, "which"),
						rapid.SampledFrom([]RunStatus{RunRunning, RunPaused, RunCompleted}).Draw(t, "to"))
				}
				for i := range l.runs {
					if r := &l.runs[i]; !r.matches(&f) {
						delete(always, r.id)
					}
				}
			}
		}
		for id := range always {
			if !seen[id] {
				t.Fatalf("%q matched all the while and did not come", id)
			}
		}
	})
}

// A page that has looked at enough rows ends early, and the next one goes on there, also where no
// run is found.
func TestPagesAreBoundedWork(t *testing.T) {
	l := newListBed(t)
	for i := range 300 {
		r := listedRun{id: fmt.Sprint(i), tenant: "t", project: fmt.Sprint(i % 2), env: "e", plan: fmt.Sprint("plan", i%2), status: RunRunning, createdAt: int64(i + 1)}
		l.make(t, r)
	}
	// No run has both, by an index and by the rows, and the two alternate.
	for _, f := range []Filter{{TenantID: "t", ProjectID: "1", PlanID: "plan0"}, {ProjectID: "1", PlanID: "plan0"}} {
		var from []byte
		pages := 0
		for {
			page, next, err := l.d.list(&f, from, 10, 50)
			if err != nil || len(page) > 0 {
				t.Fatalf("%v, %v", page, err)
			}
			if pages++; next == nil {
				break
			}
			if bytes.Compare(next, from) <= 0 || pages > 100 {
				t.Fatalf("page %d ends at %x, the one before at %x", pages, next, from)
			}
			from = next
		}
		if pages < 5 {
			t.Errorf("%+v: %d pages", f, pages)
		}
	}
}

// turn proposes an event of one of some runs with hostile scopes, which may change the run's
// status.
func (b *bed) turn(rng *rand.Rand, runs int) storagetest.Request {
	i := rng.IntN(runs)
	valid := slices.DeleteFunc(slices.Clone(hostileTexts), func(s string) bool { return s == "" || strings.Contains(s, "\xff") })
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

// checkRows wants the tables of the list to have the rows that those of the list itself ask for,
// and no others.
func (d *database) checkRows(t ender, what string) {
	it, err := d.db.NewIter(&pebble.IterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	var got, want []string
	for it.First(); it.Valid(); it.Next() {
		key := it.Key()
		switch key[0] {
		case tableListed, tableSnapshot, tableWatermark:
			continue
		case tableList:
			row, _ := parseListRow(it.Value())
			t := traits{status: row.status}
			for i, text := range row.texts {
				t.texts[i] = string(text)
			}
			for _, x := range indexes {
				want = append(want, string(append(x.appendPrefix(nil, &t), key[1:]...)))
			}
			want = append(want, string(key))
		}
		got = append(got, string(key))
	}
	surplus := slices.DeleteFunc(slices.Clone(got), func(key string) bool { return slices.Contains(want, key) })
	missing := slices.DeleteFunc(slices.Clone(want), func(key string) bool { return slices.Contains(got, key) })
	if len(surplus)+len(missing) > 0 {
		t.Fatal(fmt.Sprintf("%s: rows that no run has: %q; missing: %q", what, surplus, missing))
	}
}

// TestRowsOfARunWithAHolePRJ12: a run that lacked events may be in the list or not, and with any
// status; its rows are whole afterwards, and go on from there, whatever was flushed and compacted
// in between.
func TestRowsOfARunWithAHolePRJ12(t *testing.T) {
	statuses := rapid.SampledFrom([]RunStatus{RunPending, RunRunning, RunPaused})
	rapid.Check(t, func(t *rapid.T) {
		l := newListBed(t)
		l.draw(t)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, len(l.runs)-1).Draw(t, "which")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				l.draw(t)
			case 1: // it was made in the hole
				r := listedRun{id: fmt.Sprint("hole", l.made), tenant: "t", status: statuses.Draw(t, "status"), createdAt: int64(l.made + 1)}
				l.fold(t, &folded{run: r.run(), listed: RunPending, anew: true, now: &Snapshot{Status: r.status}})
				l.runs = append([]listedRun{r}, l.runs...)
				l.made++
			case 2: // it moved in the hole, or did not
				r := &l.runs[i]
				before := r.status
				r.status = statuses.Draw(t, "status")
				l.fold(t, &folded{run: r.run(), listed: before, anew: true, now: &Snapshot{Status: r.status}})
			case 3:
				l.move(t, i, statuses.Draw(t, "status"))
			case 4:
				if err := l.d.db.Flush(); err != nil {
					t.Fatal(err)
				}
			case 5:
				if err := l.d.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false); err != nil {
					t.Fatal(err)
				}
			}
		}
		l.d.checkRows(t, "in the end")
		page, next, err := l.d.list(&Filter{}, nil, len(l.runs), maxListScan)
		if want := filtered(l.runs, &Filter{}); err != nil || next != nil || !slices.Equal(page, want) {
			t.Fatalf("got %v, %x, %v\nwant %v", page, next, err, want)
		}
	})
}

// TestCrashKeepsTheIndexesPRJ13: whatever a crash leaves of the list, which may be newer than the
// position from which folding goes on, each run has one row in each index at any time, and the
// right one in the end.
func TestCrashKeepsTheIndexesPRJ13(t *testing.T) {
	ahead := 0
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 11))
			b := newBed(t)
			rows := func(what string) {
				t.Helper()
				b.p.disk.db.checkRows(t, what)
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
				if d := b.p.disk.db; d.listed > d.position {
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
	}
	if ahead == 0 {
		t.Error("the list was never newer than the position: the test tests nothing")
	}
}

// checkFilters compares pages by some filters with the runs of the store.
func (b *bed) checkFilters(rng *rand.Rand) {
	b.t.Helper()
	var runs []listedRun
	for runID := range b.runs {
		run, err := b.local.Run(runID)
		if err != nil {
			b.t.Fatal(err)
		}
		runs = append(runs, listedRun{id: runID, tenant: run.Scope.TenantID, project: run.Scope.ProjectID, env: run.Scope.EnvironmentID,
			plan: run.PlanID, status: b.snapshot(runID).Status, createdAt: run.CreatedAt})
	}
	sortListed(runs)
	for range 60 {
		like := runs[rng.IntN(len(runs))]
		f := Filter{TenantID: like.tenant, ProjectID: like.project, EnvironmentID: like.env, PlanID: like.plan, Status: like.status}
		for _, field := range []*string{&f.TenantID, &f.ProjectID, &f.EnvironmentID, &f.PlanID} {
			if rng.IntN(2) == 0 {
				*field = ""
			}
		}
		if rng.IntN(2) == 0 {
			f.Status = 0
		}
		var got []Listed
		var from []byte
		for more := true; more; more = from != nil {
			page, err := b.p.List(f, from, 1+rng.IntN(9))
			if err != nil {
				b.t.Fatal(err)
			}
			got, from = append(got, page.Runs...), page.Next
		}
		if want := filtered(runs, &f); !slices.Equal(got, want) {
			b.t.Errorf("%+v:\n got %v\nwant %v", f, got, want)
		}
	}
}
