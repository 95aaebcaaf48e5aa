package list

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/projector/list/listtest"
	"runlog/projector/run"
	"runlog/storage"
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
		filter run.Filter
		want   string
	}{
		{run.Filter{}, ""},
		{run.Filter{TenantID: "t"}, "T"},
		{run.Filter{TenantID: "t", ProjectID: "p"}, "J"},
		{run.Filter{TenantID: "t", ProjectID: "p", EnvironmentID: "e"}, "E"},
		{run.Filter{PlanID: "p"}, "P"},
		{run.Filter{Statuses: run.StatusSet(run.Failed)}, "S"},
		{run.Filter{TenantID: "t", Statuses: run.StatusSet(run.Failed)}, "U"},
		{run.Filter{TenantID: "t", ProjectID: "p", Statuses: run.StatusSet(run.Failed)}, "JU"},
		{run.Filter{TenantID: "t", PlanID: "p", Statuses: run.StatusSet(run.Failed)}, "UP"},
		{run.Filter{TenantID: "t", ProjectID: "p", EnvironmentID: "e", PlanID: "p", Statuses: run.StatusSet(run.Failed)}, "EUP"},
		{run.Filter{PlanID: "p", Statuses: run.StatusSet(run.Failed)}, "PS"},
		{run.Filter{PlanID: "p", PlanVersion: "1"}, "V"},
		{run.Filter{PlanVersion: "1"}, ""},
		{run.Filter{TenantID: "t", EnvironmentID: "e"}, "T"},
		{run.Filter{ProjectID: "p", EnvironmentID: "e"}, ""},
	} {
		got := ""
		indexed, _ := chosen(&c.filter)
		for _, x := range indexed {
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
	db   *pebble.DB
	f    Folder
	runs []listtest.Run // newest first
	made int
}

func newListBed(t ender) *listBed {
	db, err := pebble.Open("list", &pebble.Options{FS: vfs.NewMem(), DisableWAL: true, FormatMajorVersion: pebble.FormatValueSeparation})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &listBed{db: db}
}

// batchTx is a transaction that goes into a batch.
type batchTx struct {
	db    *pebble.DB
	batch *pebble.Batch
}

func (tx batchTx) Get(key []byte) ([]byte, error) {
	row, closer, err := tx.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return bytes.Clone(row), closer.Close()
}

func (tx batchTx) Set(key, value []byte)   { _ = tx.batch.Set(key, value, nil) }
func (tx batchTx) Delete(key []byte)       { _ = tx.batch.Delete(key, nil) }
func (tx batchTx) SingleDelete(key []byte) { _ = tx.batch.SingleDelete(key, nil) }

func runOf(r *listtest.Run) *storage.Run {
	return &storage.Run{RunID: r.ID, CreatedAt: r.CreatedAt, CreatedPosition: 1, PlanID: r.Plan, PlanVersion: r.Version,
		Scope: storage.Scope{TenantID: r.Tenant, ProjectID: r.Project, EnvironmentID: r.Env}}
}

// make makes runs, newer than all before, in the order of the list.
func (l *listBed) make(t ender, made ...listtest.Run) {
	var changes []*run.Change
	for i := range made {
		changes = append(changes, &run.Change{Run: runOf(&made[i]), Now: snapshotOf(&made[i])})
		if len(made[i].Labels) > 0 {
			l.label(t, &made[i], 1)
		}
	}
	l.fold(t, changes...)
	l.runs = append(slices.Clone(made), l.runs...)
	l.made += len(made)
}

func snapshotOf(r *listtest.Run) *run.Snapshot {
	s := &run.Snapshot{Status: r.Status}
	if r.StartedAt > 0 {
		s.StartedAt = time.Unix(0, r.StartedAt).UTC()
	}
	return s
}

// label folds a commit that sets the labels of a run. At position 1 it makes the run.
func (l *listBed) label(t ender, r *listtest.Run, at storage.Position) {
	tx := batchTx{l.db, l.db.NewBatch()}
	defer tx.batch.Close()
	c := &storage.Commit{Position: at, Run: runOf(r), Metadata: &storage.Metadata{Labels: r.Labels}}
	if err := l.f.FoldLabels(tx, c); err != nil {
		t.Fatal(err)
	}
	if err := l.db.Apply(tx.batch, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

func (l *listBed) move(t ender, i int, to run.Status) {
	r := &l.runs[i]
	before := r.Status
	r.Status = to
	l.fold(t, &run.Change{Run: runOf(r), Before: before, Now: snapshotOf(r)})
}

func (l *listBed) fold(t ender, changes ...*run.Change) {
	tx := batchTx{l.db, l.db.NewBatch()}
	defer tx.batch.Close()
	for _, c := range changes {
		if err := l.f.Fold(tx, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.db.Apply(tx.batch, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

var someLabels = rapid.MapOfN(rapid.SampledFrom(hostileTexts), rapid.SampledFrom(hostileTexts), 0, 3)

// draw makes a run or a few that share their createdAt.
func (l *listBed) draw(t *rapid.T) {
	value := rapid.SampledFrom(hostileTexts)
	var made []listtest.Run
	for n := range rapid.IntRange(1, 3).Draw(t, "runs") {
		made = append(made, listtest.Run{
			ID:     value.Draw(t, "id") + fmt.Sprint(l.made+n),
			Tenant: value.Draw(t, "tenant"), Project: value.Draw(t, "project"),
			Env: value.Draw(t, "environment"), Plan: value.Draw(t, "plan"),
			Version:   rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version"),
			Status:    rapid.SampledFrom([]run.Status{run.Pending, run.Running, run.Completed}).Draw(t, "status"),
			Labels:    someLabels.Draw(t, "labels"),
			CreatedAt: int64(l.made + 1),
			StartedAt: int64(rapid.IntRange(0, 5).Draw(t, "started")),
		})
	}
	slices.SortFunc(made, func(a, b listtest.Run) int { return strings.Compare(a.ID, b.ID) })
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
		f := listtest.SomeFilter(l.runs).Draw(t, "filter")
		always := map[string]bool{}
		for _, r := range listtest.Filtered(l.runs, &f) {
			always[r.RunID] = true
		}
		seen := map[string]bool{}
		var from []byte
		for pages := 0; ; pages++ {
			if pages > 10_000 {
				t.Fatal("the list does not end")
			}
			limit, looks := rapid.IntRange(1, 5).Draw(t, "limit"), rapid.IntRange(8, 40).Draw(t, "looks")
			page, next, err := read(l.db, &f, from, limit, looks)
			if err != nil {
				t.Fatal(err)
			}
			now := listtest.Filtered(l.runs, &f)
			for _, r := range listtest.Names(page) {
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
				switch i := rapid.IntRange(0, len(l.runs)-1).Draw(t, "which"); {
				case rapid.Bool().Draw(t, "make") && l.made < 60:
					l.draw(t)
				case rapid.Bool().Draw(t, "label"):
					l.runs[i].Labels = someLabels.Draw(t, "labels")
					l.label(t, &l.runs[i], 2)
				default:
					l.move(t, i,
						rapid.SampledFrom([]run.Status{run.Running, run.Paused, run.Completed}).Draw(t, "to"))
				}
				for i := range l.runs {
					if r := &l.runs[i]; !r.Matches(&f) {
						delete(always, r.ID)
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

// A page that has looked at enough rows ends early, and the next one continues there, also where no
// run is found.
func TestPagesAreBoundedWork(t *testing.T) {
	l := newListBed(t)
	for i := range 300 {
		r := listtest.Run{ID: fmt.Sprint(i), Tenant: "t", Project: fmt.Sprint(i % 2), Env: "e", Plan: fmt.Sprint("plan", i%2), Status: run.Running, CreatedAt: int64(i + 1)}
		l.make(t, r)
	}
	// No run has both, by an index and by the rows, and the two alternate.
	for _, f := range []run.Filter{{TenantID: "t", ProjectID: "1", PlanID: "plan0"}, {ProjectID: "1", PlanID: "plan0"}} {
		var from []byte
		pages := 0
		for {
			page, next, err := read(l.db, &f, from, 10, 50)
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

// checkRows wants the tables of the list to have the rows that those of the list itself ask for,
// and no others.
func checkRows(t ender, db *pebble.DB, what string) {
	it, err := db.NewIter(&pebble.IterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	var got, want []string
	for it.First(); it.Valid(); it.Next() {
		key := it.Key()
		switch key[0] {
		case tableLabels:
			labels, _ := parseLabels(it.Value())
			for i := range labels {
				want = append(want, string(append(appendLabelPrefix(nil, &labels[i]), key[1:]...)))
			}
			want = append(want, string(key))
		case tableList:
			row, _ := parseListRow(it.Value())
			t := traits{status: row.status}
			for i, text := range row.texts {
				t.texts[i] = string(text)
			}
			for _, x := range indexes {
				want = append(want, string(append(x.appendPrefix(nil, &t), key[1:]...)))
			}
			want = append(want, string(key), string(tableByID)+string(key[1+placeHeader:]))
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
	statuses := rapid.SampledFrom([]run.Status{run.Pending, run.Running, run.Paused})
	rapid.Check(t, func(t *rapid.T) {
		l := newListBed(t)
		l.draw(t)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, len(l.runs)-1).Draw(t, "which")
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0:
				l.draw(t)
			case 1: // it was made in the hole
				r := &listtest.Run{ID: fmt.Sprint("hole", l.made), Tenant: "t", Status: statuses.Draw(t, "status"), CreatedAt: int64(l.made + 1)}
				l.fold(t, &run.Change{Run: runOf(r), Before: run.Pending, Unsure: true, Now: snapshotOf(r)})
				l.runs = append([]listtest.Run{*r}, l.runs...)
				l.made++
			case 2: // it moved in the hole, or did not
				r := &l.runs[i]
				before := r.Status
				r.Status = statuses.Draw(t, "status")
				l.fold(t, &run.Change{Run: runOf(r), Before: before, Unsure: true, Now: snapshotOf(r)})
			case 6: // the list is behind: it finds the run's row, or does not
				r := &l.runs[i]
				r.Status = statuses.Draw(t, "status")
				l.fold(t, &run.Change{Run: runOf(r), Behind: true, Now: snapshotOf(r)})
			case 7:
				r := &listtest.Run{ID: fmt.Sprint("behind", l.made), Tenant: "t", Status: statuses.Draw(t, "status"), CreatedAt: int64(l.made + 1)}
				l.fold(t, &run.Change{Run: runOf(r), Behind: true, Now: snapshotOf(r)})
				l.runs = append([]listtest.Run{*r}, l.runs...)
				l.made++
			case 3:
				l.move(t, i, statuses.Draw(t, "status"))
			case 4:
				if err := l.db.Flush(); err != nil {
					t.Fatal(err)
				}
			case 5:
				if err := l.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false); err != nil {
					t.Fatal(err)
				}
			}
		}
		checkRows(t, l.db, "in the end")
		page, next, err := read(l.db, &run.Filter{}, nil, len(l.runs), maxLooks)
		if want := listtest.Filtered(l.runs, &run.Filter{}); err != nil || next != nil || !slices.Equal(listtest.Names(page), want) {
			t.Fatalf("got %v, %x, %v\nwant %v", page, next, err, want)
		}
	})
}

func TestListRowsAreParsedOrRefused(t *testing.T) {
	at := func(seconds, nanos int64) time.Time { return time.Unix(seconds, nanos).UTC() }
	for _, want := range []run.Summary{
		{Status: run.Paused},
		{Status: run.Failed, StartedAt: at(1, 999_999_999), CompletedAt: at(-62135596800, 1), LastEventAt: at(253402300799, 0),
			HasDuration: true, TotalDurationMs: -1 << 63, FailedSteps: 1<<32 - 1, StepCount: 7, Drain: run.Drain{PausedAt: at(3, 4), Running: 1<<32 - 1}, CurrentStep: "s\x00", EngineType: "é",
			TriggeredBy: "j\x00", TriggerSource: "api", PlanRef: &run.PlanRef{URI: "s3://é", SizeBytes: new(int64(1 << 60))}},
		{Status: run.Running, HasDuration: true, TotalDurationMs: 1<<63 - 1},
		{Status: run.Running, HasDuration: true},
	} {
		row := appendListRow(nil, &traits{texts: [...]string{"t", "", "é", "p", "v"}, status: want.Status}, &want)
		parse := func(row []byte) (listRow, run.Summary, bool) {
			e, ok := parseListRow(row)
			s, whole := e.summary()
			return e, s, ok && whole
		}
		e, got, ok := parse(row)
		if !ok || !reflect.DeepEqual(got, want) || string(e.texts[0]) != "t" || len(e.texts[1]) != 0 || string(e.texts[2]) != "é" ||
			string(e.texts[3]) != "p" || string(e.texts[4]) != "v" {
			t.Errorf("%+v became %+v, %+v, %v", want, e, got, ok)
		}
		for n := range len(row) {
			if _, _, ok := parse(row[:n]); ok {
				t.Errorf("a row cut off after %d bytes is taken", n)
			}
		}
		if _, _, ok := parse(append(row, 0)); ok {
			t.Error("a row with something behind it is taken")
		}
	}
}

// TestCountsAgreeWithANaiveFilter: a count is exact, or says that there may be more.
func TestCountsAgreeWithANaiveFilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newListBed(t)
		for range rapid.IntRange(1, 12).Draw(t, "runs") {
			l.draw(t)
		}
		f := listtest.SomeFilter(l.runs).Draw(t, "filter")
		limit, looks := rapid.IntRange(1, 30).Draw(t, "limit"), rapid.SampledFrom([]int{5, 40, maxLooks}).Draw(t, "looks")
		want := len(listtest.Filtered(l.runs, &f))
		n, more, err := count(l.db, &f, limit, looks)
		if err != nil {
			t.Fatal(err)
		}
		if n > want || n > limit || !more && n != want || looks == maxLooks && (n != min(want, limit) || more != (want > limit)) {
			t.Fatalf("%+v: counted %d, more %v, of %d", f, n, more, want)
		}
	})
}
