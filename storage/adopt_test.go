package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// newCluster is the cluster that adopts.
var newCluster = storage.ClusterID{9, 9}

// adoption is a store with some runs, and what is said of its checkpoint.
type adoption struct {
	source  *storagetest.Local
	files   map[string][]byte
	promise storage.Promise
}

func newAdoption(t *testing.T) *adoption {
	t.Helper()
	a := &adoption{source: open(t, storage.Options{}), files: map[string][]byte{}}
	for n := range 12 {
		propose(t, a.source, fmt.Sprint("run-", n%3), n, 2)
	}
	last := a.source.Applied().Index + 1
	if _, err := a.source.Store.ApplyFence(last, 3, 0, "run-0", 2); err != nil {
		t.Fatal(err)
	}
	if err := a.source.Store.ApplyMembership(last+1, 3, []byte("old members")); err != nil {
		t.Fatal(err)
	}
	c, err := a.source.Store.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Files() {
		in, err := c.OpenFile(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err = errors.Join(err, in.Close()); err != nil || uint64(len(data)) != f.Size {
			t.Fatalf("%s: %d bytes of %d, %v", f.Name, len(data), f.Size, err)
		}
		a.files[f.Name] = data
	}
	now := c.Applied
	a.promise = storage.Promise{Cluster: storagetest.Cluster, Index: now.Index, Term: now.Term, RollingHash: now.RollingHash,
		PersistedAt: now.PersistedAt, Runs: now.Runs(), Events: now.Events}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if a.promise.Runs != 3 || a.promise.Events != 24 {
		t.Fatalf("promise %+v", a.promise)
	}
	t.Cleanup(func() { _ = a.source.Close() })
	return a
}

// copyTo puts the files where Adopt finds them.
func (a *adoption) copyTo(disk vfs.FS) error {
	dir := storage.AdoptDir(disk, "store")
	err := disk.MkdirAll(dir, 0o755)
	for name, data := range a.files {
		if err != nil {
			return err
		}
		f, failed := disk.Create(disk.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if failed != nil {
			return failed
		}
		_, err = f.Write(bytes.Clone(data))
		err = errors.Join(err, f.Sync(), f.Close())
	}
	for _, path := range []string{dir, "store", ""} {
		d, failed := disk.OpenDir(path)
		if failed != nil {
			return errors.Join(err, failed)
		}
		err = errors.Join(err, d.Sync(), d.Close())
	}
	return err
}

func (a *adoption) adopt(disk vfs.FS) error {
	return storage.Adopt(storage.Options{Dir: "store", FS: disk, Cluster: newCluster, CacheBytes: 1 << 20, MemTableBytes: 256 << 10,
		Fail: func(error) {}}, a.promise, []byte("new member"), true)
}

// adopted opens what was adopted, and wants all of the source's rows but the two that Adopt writes,
// and that fences rise behind those of the source.
func (a *adoption) adopted(disk vfs.FS) (err error) {
	l, err := storagetest.Open(storage.Options{FS: disk, Cluster: newCluster})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	want := a.source.Applied()
	want.Incarnation = newCluster.First()
	want.FencesAbove, want.Held = 1<<40|0x09090<<20, true
	if l.Applied() != want || l.Store.Installed() != a.promise.Index {
		return fmt.Errorf("applied %+v, installed %d; want %+v", l.Applied(), l.Store.Installed(), want)
	}
	members, err := l.Store.Membership()
	if err != nil || string(members.Data) != "new member" || members.Index != a.promise.Index {
		return fmt.Errorf("members %+v, %w", members, err)
	}
	got, failed := l.Store.Dump()
	rows, err := a.source.Store.Dump()
	if err = errors.Join(err, failed); err != nil || len(got) != len(rows) {
		return fmt.Errorf("%d rows, want %d: %w", len(got)/2, len(rows)/2, err)
	}
	for i := 0; i < len(got); i += 2 {
		same := slices.Equal(got[i], rows[i]) && slices.Equal(got[i+1], rows[i+1])
		if own := string(got[i]) == "a" || string(got[i]) == "g"; same == own {
			return fmt.Errorf("row %x is %x, and %x = %x", got[i], got[i+1], rows[i], rows[i+1])
		}
	}
	return nil
}

// TestAdopt: the store of a new cluster continues where the other one was, and is none to the old
// one.
func TestAdopt(t *testing.T) {
	a, disk := newAdoption(t), vfs.NewMem()
	if err := errors.Join(a.copyTo(disk), a.adopt(disk), a.adopted(disk)); err != nil {
		t.Fatal(err)
	}
	if _, err := storagetest.Open(storage.Options{FS: disk}); !errors.Is(err, storage.ErrForeign) {
		t.Errorf("opened by the old cluster: %v", err)
	}
	if err := a.adopt(disk); err == nil {
		t.Error("adopted twice")
	}
}

// TestAdoptedFencesQUE8: what has a fence of the cluster before is refused before the run has
// another one, and no fence of that cluster is given again.
func TestAdoptedFencesQUE8(t *testing.T) {
	a, disk := newAdoption(t), vfs.NewMem()
	if err := errors.Join(a.copyTo(disk), a.adopt(disk)); err != nil {
		t.Fatal(err)
	}
	l, err := storagetest.Open(storage.Options{FS: disk, Cluster: newCluster})
	if err != nil {
		t.Fatal(err)
	}
	n := 100
	write := func(run string, fence uint64) error {
		t.Helper()
		n++
		c, err := storage.EncodeAppend(&storage.Append{RunID: run, Events: []contract.Event{storagetest.Event(run, n)}, Fence: &fence})
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(newCluster, 0)
		p.Add(c)
		o, err := l.Store.Apply(l.Applied().Index+1, 9, p.Seal(0))
		if err != nil {
			t.Fatal(err)
		}
		return o[0].Err
	}
	raise := func(fence uint64) error {
		t.Helper()
		o, err := l.Store.ApplyFence(l.Applied().Index+1, 9, 0, "run-0", fence)
		if err != nil {
			t.Fatal(err)
		}
		return o.Err
	}
	lost := func(err error, given, current uint64) {
		t.Helper()
		if want := (&storage.LeaseLostError{RunID: "run-0", Given: given, Current: current}); !reflect.DeepEqual(err, want) {
			t.Errorf("fence %d: %v, want %v", given, err, want)
		}
	}
	first := l.Applied().FencesAbove + 1
	for _, raised := range []uint64{first, first + 1, first + 1} {
		if raised > first {
			_ = raise(raised) // The last time it is there already.
		}
		lost(write("run-0", 2), 2, raised)
		lost(raise(4), 4, raised)
		if err := errors.Join(write("run-0", raised), write("run-1", 0), l.Reopen()); err != nil {
			t.Error(err)
		}
	}
	if above := l.Applied().FencesAbove; above+1 != first {
		t.Errorf("fences are above %d, and were above %d", above, first-1)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestAdoptedHoldBUS3QUE6: a store that is held stays so with each entry and each opening, since
// the first entry, also if another operation of the command of its release is refused. Once
// released, it stays released.
func TestAdoptedHoldBUS3QUE6(t *testing.T) {
	a, disk := newAdoption(t), vfs.NewMem()
	if err := errors.Join(a.copyTo(disk), a.adopt(disk)); err != nil {
		t.Fatal(err)
	}
	l, err := storagetest.Open(storage.Options{FS: disk, Cluster: newCluster})
	if err != nil {
		t.Fatal(err)
	}
	release, errRelease := storage.ReleaseHold()
	wrong, never := uint64(1<<40), storage.Append{RunID: "run-0", Events: []contract.Event{storagetest.Event("run-0", 100)}}
	never.ExpectedLastSeq = &wrong
	refused, errRefused := storage.AppendOperation(&never)
	if err := errors.Join(errRelease, errRefused); err != nil {
		t.Fatal(err)
	}
	since := int64(0)
	for i, ops := range [][]storage.Operation{{release, refused}, {refused}, {release}, {release}} {
		c, err := storage.EncodeCommand(ops...)
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(newCluster, 0)
		p.Add(c)
		if _, err := l.Store.Apply(l.Applied().Index+1, 9, p.Seal(0)); err != nil {
			t.Fatal(err)
		}
		if err := l.Reopen(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			since = l.Applied().PersistedAt
		}
		if a := l.Applied(); a.Held != (i < 2) || a.Held && a.HeldSince != since || !a.Held && a.HeldSince != 0 {
			t.Errorf("after command %d: held: %v, since %d, want %d", i, a.Held, a.HeldSince, since)
		}
	}
	if err := errors.Join(l.Store.WaitReleased(t.Context()), l.Close()); err != nil {
		t.Error(err)
	}
}

// TestAdoptRefuses: what does not hold what is said of it becomes no store.
func TestAdoptRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		change func(a *adoption)
		err    error
	}{
		"index":        {func(a *adoption) { a.promise.Index++ }, storage.ErrPromise},
		"term":         {func(a *adoption) { a.promise.Term++ }, storage.ErrPromise},
		"rolling hash": {func(a *adoption) { a.promise.RollingHash[31]++ }, storage.ErrPromise},
		"stamp":        {func(a *adoption) { a.promise.PersistedAt++ }, storage.ErrPromise},
		"runs":         {func(a *adoption) { a.promise.Runs++ }, storage.ErrPromise},
		"events":       {func(a *adoption) { a.promise.Events++ }, storage.ErrPromise},
		"cluster":      {func(a *adoption) { a.promise.Cluster[0]++ }, storage.ErrForeign},
		"another file": {func(a *adoption) { a.files["CURRENT"] = nil }, storage.ErrPromise},
		"a log":        {func(a *adoption) { a.files["000002.log"] = []byte("x") }, storage.ErrPromise},
		"fewer files":  {func(a *adoption) { clear(a.files) }, nil},
	} {
		a, disk := newAdoption(t), vfs.NewMem()
		c.change(a)
		if err := a.copyTo(disk); err != nil {
			t.Fatal(err)
		}
		if err := a.adopt(disk); err == nil || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := storagetest.Open(storage.Options{FS: disk, Cluster: newCluster}); err == nil || !strings.Contains(err.Error(), "CURRENT") {
			t.Errorf("%s: opened: %v", what, err)
		}
	}
}

// TestCrashInAdopt: power that goes before any operation of the disk leaves no store, or the whole
// one; once Adopt has answered, the whole one.
func TestCrashInAdopt(t *testing.T) {
	a, mem, tap := newAdoption(t), vfs.NewCrashableMem(), &tap{}
	if err := a.copyTo(mem); err != nil {
		t.Fatal(err)
	}
	var crashes []*vfs.MemFS
	rng := rand.New(rand.NewPCG(7, 0))
	clone := func() {
		crashes = append(crashes, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 100, 50}[len(crashes)%3], RNG: rng}))
	}
	tap.set(func(errorfs.Op) error { clone(); return nil })
	if err := a.adopt(tap.disk(mem)); err != nil {
		t.Fatal(err)
	}
	tap.set(nil)
	clone()
	whole := 0
	for i, disk := range crashes {
		if _, err := disk.Stat("store/CURRENT"); err == nil {
			if err := a.adopted(disk); err != nil {
				t.Fatalf("crash %d of %d: %v", i, len(crashes), err)
			}
			whole++
		} else if _, err := storagetest.Open(storage.Options{FS: disk, Cluster: newCluster}); err == nil {
			t.Fatalf("crash %d: a store without CURRENT", i)
		}
	}
	if err := a.adopted(crashes[len(crashes)-1]); err != nil {
		t.Errorf("once it was answered: %v", err)
	}
	t.Logf("power lost at %d operations, in %d of them after it was done", len(crashes), whole)
}

// TestAdoptDiskErrors: an error of any operation that writes ends it, in time, and leaves no store
// that is not whole.
func TestAdoptDiskErrors(t *testing.T) {
	a := newAdoption(t)
	for at := 0; ; at++ {
		disk, tap := vfs.NewMem(), &tap{}
		if err := a.copyTo(disk); err != nil {
			t.Fatal(err)
		}
		count, hit := 0, false
		tap.set(func(op errorfs.Op) error {
			// Pebble cannot go on after an error of its MANIFEST, and says so by Fatalf, on any
			// goroutine.
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || strings.Contains(op.Path, "MANIFEST") || strings.Contains(op.Path, "marker") || op.Kind == errorfs.OpOpenDir || !strings.Contains(op.Path, ".") && op.Kind != errorfs.OpRename {
				return nil
			}
			if count++; count != at+1 {
				return nil
			}
			hit = true
			return errorfs.ErrInjected
		})
		err := a.adopt(tap.disk(disk))
		tap.set(nil)
		if !hit {
			if err != nil || at < 5 {
				t.Fatalf("%d operations, %v", at, err)
			}
			return
		}
		if _, missing := disk.Stat("store/CURRENT"); missing == nil {
			if err := a.adopted(disk); err != nil {
				t.Fatalf("error at operation %d: %v", at, err)
			}
		} else if err == nil {
			t.Fatalf("an error at operation %d is not told", at)
		}
	}
}
