package storage_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

func appendTo(runID string, first, n int) storagetest.Request {
	return storagetest.Request{Append: &storage.Append{RunID: runID, Events: storagetest.Events(runID, first, n)}}
}

// TestOptions shows that Validate reports every fault, and that what is opened leaves its registry
// clean.
func TestOptions(t *testing.T) {
	_, err := storage.Open(storage.Options{FS: vfs.NewMem()})
	for _, field := range []string{"Dir", "Cluster", "Fail"} {
		if err == nil || !strings.Contains(err.Error(), "Options."+field) {
			t.Errorf("%s is not missed in %v", field, err)
		}
	}
	registry := prometheus.NewRegistry()
	l := open(t, storage.Options{Registerer: registry})
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	if families, err := registry.Gather(); err != nil || len(families) == 0 {
		t.Errorf("%d metrics, error %v", len(families), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if families, err := registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("%d metrics of a closed store, error %v", len(families), err)
	}
}

// TestForeignStore proves D1: a store of one cluster does not open for another, so that no entry of
// the one is ever applied to the other.
func TestForeignStore(t *testing.T) {
	fs := vfs.NewMem()
	l := open(t, storage.Options{FS: fs})
	if _, err := l.Propose(1, []storagetest.Request{appendTo("run", 0, 1)}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if other, err := storagetest.Open(storage.Options{FS: fs, Cluster: storage.ClusterID{9}}); err == nil {
		t.Error("opened for another cluster")
		_ = other.Close()
	}
	again := open(t, storage.Options{FS: fs})
	if again.Applied().Events != 1 {
		t.Errorf("applied %+v", again.Applied())
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestApplyErrorIsFinal proves D10: after an entry that could not be applied, an append to a run
// that it had begun to make in memory is not acknowledged, since nothing of the run is on disk.
func TestApplyErrorIsFinal(t *testing.T) {
	l := open(t, storage.Options{})
	defer func() { _ = l.Store.Close() }()
	good, err := storagetest.Seal(storagetest.Cluster, 1, []storagetest.Request{appendTo("run", 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	c, err := appendTo("run", 0, 1).Encode()
	if err != nil {
		t.Fatal(err)
	}
	p.Add(c)
	p.Add(storage.Command{}) // Of no kind.
	if _, err := l.Store.Apply(1, 1, p.Seal(1)); err == nil {
		t.Fatal("a command of no kind was applied")
	}
	if o, err := l.Store.Apply(2, 1, good); err == nil {
		_, missing := l.Run("run")
		t.Errorf("acknowledged %+v; reading the run gives %v", o, missing)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	if o, err := l.Store.Apply(2, 1, good); err != nil || o[0].Err != nil || o[0].LastSeq != 1 {
		t.Errorf("after a restart: outcomes %+v, error %v", o, err)
	}
}

// TestStampsEnd proves APP-5 at the end of time: a stamp never goes back, not even past the last
// one.
func TestStampsEnd(t *testing.T) {
	l := open(t, storage.Options{})
	defer func() { _ = l.Store.Close() }()
	if _, err := l.Propose(math.MaxInt64, []storagetest.Request{appendTo("run", 0, 1)}); err != nil {
		t.Fatal(err)
	}
	if o, err := l.Propose(5, []storagetest.Request{appendTo("run", 1, 1)}); err == nil {
		t.Errorf("stamp %d after %d", o[0].PersistedAt, int64(math.MaxInt64))
	}
}

// TestPositionEnd shows that a position after the last possible one, as a made-up token may hold,
// reads as the end of the log and not as its begin (READ-3).
func TestPositionEnd(t *testing.T) {
	l := open(t, storage.Options{})
	if _, err := l.Propose(1, []storagetest.Request{appendTo("run", 0, 1)}); err != nil {
		t.Fatal(err)
	}
	for _, after := range []storage.Position{math.MaxUint64, math.MaxUint64 - 1, 1 << 63} {
		if commits, err := l.Log(after); err != nil || len(commits) > 0 {
			t.Errorf("%d commits after %d, error %v", len(commits), after, err)
		}
	}
	for _, after := range []uint64{math.MaxUint64, math.MaxUint64 - 1, 1 << 63} {
		if records, err := l.Events("run", after); err != nil || len(records) > 0 {
			t.Errorf("%d records after %d, error %v", len(records), after, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestView proves READ-1: a view is one state of a run, whatever is appended meanwhile, and what it
// yields is the caller's to keep.
func TestView(t *testing.T) {
	l := open(t, storage.Options{})
	if _, err := l.Propose(1, []storagetest.Request{appendTo("run", 0, 5)}); err != nil {
		t.Fatal(err)
	}
	v, err := l.Store.View("run")
	if err != nil {
		t.Fatal(err)
	}
	var kept []*storage.Record
	for r, err := range v.Events(0) {
		if err != nil {
			t.Fatal(err)
		}
		if kept = append(kept, r); len(kept) == 2 {
			if _, err := l.Propose(2, []storagetest.Request{appendTo("run", 5, 5)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(kept) != 5 || v.Run.LastSeq != 5 {
		t.Errorf("%d records of a view at %d", len(kept), v.Run.LastSeq)
	}
	for i, r := range kept {
		if want := storagetest.Event("run", i); r.RunSeq != uint64(i)+1 || string(r.Payload) != string(want.Payload) {
			t.Errorf("record %d is %+v", i, r)
		}
	}
	for range v.Events(0) {
		break // A reader may stop early.
	}
	if err := errors.Join(v.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}

// TestScopeOfRequest proves APP-6 within a request: events that name two scopes cannot be of one
// run, and the error names the second event. What an event leaves out names nothing.
func TestScopeOfRequest(t *testing.T) {
	events := storagetest.Events("run", 0, 3)
	events[1].TenantID, events[1].Absent = "", contract.AbsentTenant
	events[2].ProjectID = "other"
	_, err := storage.EncodeAppend(&storage.Append{RunID: "run", Events: events})
	var scope *storage.ScopeError
	if !errors.As(err, &scope) || scope.Index != 2 || scope.Field != "projectId" || scope.Given != "other" || scope.Want != "project" {
		t.Errorf("error %v", err)
	}
	got, err := storage.ScopeOf(&storage.Append{RunID: "run", Events: events[:2]})
	if err != nil || got != (storage.Scope{TenantID: "tenant", ProjectID: "project", EnvironmentID: "prod"}) {
		t.Errorf("scope %+v, error %v", got, err)
	}
}

// TestWait proves D9's seam: a reader that waits on a position wakes when the store has passed it,
// not before, and when its context ends.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, storage.Options{})
		woke := make(chan storage.Position, 1)
		go func() {
			if err := l.Store.Wait(t.Context(), 1); err == nil {
				applied := l.Applied()
				woke <- applied.Position()
			}
		}()
		if _, err := l.Propose(1, []storagetest.Request{appendTo("run", 0, 1)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case p := <-woke:
			t.Errorf("woke at %d, waiting for one after 1", p)
		default:
		}
		if _, err := l.Propose(2, nil); err != nil {
			t.Fatal(err)
		}
		if p := <-woke; p < 2 {
			t.Errorf("woke at %d", p)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		applied := l.Applied()
		if err := l.Store.Wait(ctx, applied.Position()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestReadersBesideApply shows under the race detector that reading is free to happen during Apply,
// and that a reader never sees a proposal in part (APP-3).
func TestReadersBesideApply(t *testing.T) {
	l := open(t, storage.Options{MemTableBytes: 32 << 10, ActiveBytes: 1})
	const batch = 3
	stop, done := make(chan struct{}), make(chan error, 2)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			records, err := l.Events("run", 0)
			if missing := (*storage.RunNotFoundError)(nil); err != nil && !errors.As(err, &missing) || len(records)%batch != 0 {
				done <- errors.Join(err, errors.New("a part of a request was seen"))
				return
			}
		}
	}()
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			commits, err := l.Log(0)
			seen := map[storage.Position]int{}
			for _, c := range commits {
				seen[c.Position] += len(c.Records)
			}
			for p, n := range seen {
				if n != 2*batch {
					err = errors.Join(err, errors.New("a part of a proposal was seen"))
					t.Logf("%d records at %d", n, p)
				}
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	for n := range 60 {
		if _, err := l.Propose(int64(n), []storagetest.Request{appendTo("run", n*batch, batch), appendTo("other", n*batch, batch)}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := errors.Join(<-done, <-done, l.Close()); err != nil {
		t.Error(err)
	}
}
