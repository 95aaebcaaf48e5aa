package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/await"
)

// content is all that a store says when it is read.
type content struct {
	runs    map[string]*storage.Run
	records map[string][]storage.Record
	log     []storage.Commit
}

// liveDir is where a store that never installed a checkpoint has its database.
const liveDir = "store/000001"

var rotRuns = []string{"a", "b", "c", "missing"}

// readAll reads a store and returns what it says, and the errors that it met.
func readAll(l *storagetest.Local) (content, error) {
	c := content{runs: map[string]*storage.Run{}, records: map[string][]storage.Record{}}
	var errs []error
	for _, name := range rotRuns {
		run, err := l.Run(name)
		if err == nil {
			c.runs[name] = run
			c.records[name], err = l.Events(name, 0)
		}
		if missing := (*storage.RunNotFoundError)(nil); !errors.As(err, &missing) {
			errs = append(errs, err)
		}
	}
	var err error
	c.log, err = l.Log(0)
	return c, errors.Join(append(errs, err)...)
}

// agrees tells whether what was read without an error is part of what is true.
func (c content) agrees(truth content, whole bool) error {
	for name, run := range c.runs {
		if !reflect.DeepEqual(run, truth.runs[name]) {
			return fmt.Errorf("run %q is %+v, want %+v", name, run, truth.runs[name])
		}
		got, want := c.records[name], truth.records[name]
		if len(got) > len(want) || whole && len(got) < len(want) || !reflect.DeepEqual(got, want[:len(got)]) && len(got) > 0 {
			return fmt.Errorf("run %q has other records", name)
		}
	}
	if whole && len(c.runs) != len(truth.runs) {
		return fmt.Errorf("%d runs, want %d", len(c.runs), len(truth.runs))
	}
	if len(c.log) > len(truth.log) || whole && len(c.log) < len(truth.log) || len(c.log) > 0 && !reflect.DeepEqual(c.log, truth.log[:len(c.log)]) {
		return errors.New("the log is another")
	}
	return nil
}

// TestRot proves APP-11 and D10 for the disk: whatever byte of a table changes, and wherever a
// table is cut off, a read fails or tells the truth, and Options.Fail hears of what is corrupt.
func TestRot(t *testing.T) {
	disk, truth := rotDisk(t)
	// A clone also has deleted files, whose directory was not synced since: choose among those in
	// use.
	files, err := disk.List(liveDir)
	if err != nil {
		t.Fatal(err)
	}
	var ssts []string
	for _, f := range files {
		if strings.HasSuffix(f, ".sst") {
			ssts = append(ssts, disk.PathJoin(liveDir, f))
		}
	}
	intact := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	if noticed, err := rotten(intact, truth); noticed || err != nil {
		t.Fatalf("without a fault: noticed %t, %v", noticed, err)
	}
	found, seeds := uint64(0), storagetest.Draws(60)
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		fs := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		name := ssts[rng.IntN(len(ssts))]
		data, err := fs.UnsafeGetFileDataBuffer(name)
		if err != nil {
			t.Fatal(err)
		}
		at, what := rng.IntN(len(data)), "flipped"
		if seed%6 == 5 {
			what = "cut off"
			truncate(t, fs, name, data[:at])
		} else {
			data[at] ^= 1 << rng.IntN(8)
		}
		noticed, err := rotten(fs, truth)
		if err != nil {
			t.Errorf("seed %d: %s %s at byte %d of %d: %v", seed, name, what, at, len(data), err)
		}
		if noticed {
			found++
		}
	}
	if t.Logf("%d of %d faults were noticed", found, seeds); found < seeds/2 {
		t.Errorf("%d of %d faults were noticed", found, seeds)
	}
}

// rotten opens a disk with a fault and compares what it says with the truth. A store that does not
// open has noticed.
func rotten(fs vfs.FS, truth content) (noticed bool, err error) {
	l, failure := storagetest.Open(storage.Options{FS: fs})
	var got content
	if failure == nil {
		got, failure = readAll(l)
		failure = errors.Join(failure, l.Failed())
		_ = l.Store.Close()
	}
	return failure != nil, got.agrees(truth, failure == nil)
}

func truncate(t *testing.T, fs *vfs.MemFS, name string, data []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func rotDisk(t *testing.T) (*vfs.MemFS, content) {
	t.Helper()
	disk := vfs.NewCrashableMem()
	l := open(t, storage.Options{FS: disk})
	for n := range 30 {
		var requests []storagetest.Request
		for _, name := range rotRuns[:3] {
			requests = append(requests, storagetest.Request{Append: &storage.Append{RunID: name, Events: storagetest.Events(name, 2*n, 3)}})
		}
		if _, err := l.Propose(int64(n), requests); err != nil {
			t.Fatal(err)
		}
		if n%8 == 7 {
			if err := l.Store.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	truth, err := readAll(l)
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return disk, truth
}

// TestFlushError proves D10: an error of the disk in the background reaches Options.Fail, and
// MakeDurable does not answer as if all were well.
func TestFlushError(t *testing.T) {
	var broken atomic.Bool
	failed := make(chan error, 100)
	l := open(t, storage.Options{
		FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				return errorfs.ErrInjected
			}
			return nil
		})),
		Fail: func(err error) {
			select {
			case failed <- err:
			default:
			}
		},
	})
	request := storagetest.Request{Append: &storage.Append{RunID: "run", Events: storagetest.Events("run", 0, 3)}}
	if _, err := l.Propose(1, []storagetest.Request{request}); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	durable := make(chan error, 1)
	go func() { durable <- l.Store.MakeDurable(l.Applied().Index) }()
	if err := await.Receive(t, "a call of Fail", failed); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("Fail was told %v", err)
	}
	select {
	case err := <-durable:
		if err == nil {
			t.Error("MakeDurable says that all is well")
		}
		durable <- err
	default:
	}
	broken.Store(false)
	<-durable
	_ = l.Store.Close()
}

// TestRotManifest proves D2 for the files that list the tables: a store whose manifest was damaged
// does not open, says that it is corrupt, or holds exactly an earlier prefix, which the start of a
// node compares with the log.
func TestRotManifest(t *testing.T) {
	disk := vfs.NewCrashableMem()
	l := open(t, storage.Options{FS: disk})
	p := storagetest.NewPair(l)
	for n := range 12 {
		request := storagetest.Request{Append: &storage.Append{RunID: "run", Events: storagetest.Events("run", n, 2)}}
		if _, err := p.Propose(int64(n), request); err != nil {
			t.Fatal(err)
		}
		if err := l.Store.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := disk.List(liveDir)
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, ".sst") || f == "LOCK" })
	var refused, earlier int
	seeds := storagetest.Draws(60)
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 4))
		fs := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		name := fs.PathJoin(liveDir, files[rng.IntN(len(files))])
		data, err := fs.UnsafeGetFileDataBuffer(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			continue
		}
		at := rng.IntN(len(data))
		if seed%4 == 3 {
			truncate(t, fs, name, data[:at])
		} else {
			data[at] ^= 1 << rng.IntN(8)
		}
		damaged, err := storagetest.Open(storage.Options{FS: fs})
		if err != nil {
			refused++
			continue
		}
		damaged.Entries = l.Entries
		n, err := damaged.Prefix()
		if err == nil && n < len(l.Entries) {
			earlier++
		}
		if p.System = damaged; err == nil {
			err = p.CheckPrefix(n)
		}
		if err != nil && damaged.Failed() == nil {
			t.Errorf("seed %d: %s at byte %d of %d: %v", seed, name, at, len(data), err)
		}
		_ = damaged.Store.Close()
	}
	t.Logf("%d of %d did not open, %d opened at an earlier prefix", refused, seeds, earlier)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
