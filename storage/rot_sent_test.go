package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// sendings are the ways in which a checkpoint leaves a node: to a follower, to a new member, and to
// a backup.
var sendings = map[string]func(*storage.Checkpoint) error{
	"stream": func(c *storage.Checkpoint) error {
		_, err := io.Copy(io.Discard, c.Stream())
		return err
	},
	"file by file": func(c *storage.Checkpoint) error {
		for _, f := range c.Files() {
			if _, err := c.ReadFile(f.Name, f.Size/2, func([]byte) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	},
	"backup": func(c *storage.Checkpoint) error {
		for _, f := range c.Files() {
			file, err := c.OpenFile(f.Name)
			if err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, file); err != nil {
				return err
			}
			if err := file.Close(); err != nil {
				return err
			}
		}
		return nil
	},
}

// TestRotIsNotSent proves D5 and D10 for the sender of a checkpoint: whatever bit of a table has
// flipped, no checkpoint of it leaves the node whole, in none of the three ways, and Options.Fail
// hears which file it is. Without the fault, each of them is sent.
func TestRotIsNotSent(t *testing.T) {
	disk, _ := rotDisk(t)
	tables := tablesOf(t, disk)
	found, seeds := 0, storagetest.Draws(40)
	for seed := range seeds {
		for name, send := range sendings {
			rng := rand.New(rand.NewPCG(seed, 5))
			fs := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
			if s := sendFrom(fs, send); s.failed != nil || s.err != nil {
				t.Fatalf("seed %d, %s, without a fault: %v, Fail was told %v", seed, name, s.err, s.failed)
			}
			fs = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
			table := tables[rng.IntN(len(tables))]
			data, err := fs.UnsafeGetFileDataBuffer(table)
			if err != nil {
				t.Fatal(err)
			}
			at := rng.IntN(len(data))
			data[at] ^= 1 << rng.IntN(8)
			s := sendFrom(fs, send)
			if s.files != nil && !slices.Contains(s.files, fs.PathBase(table)) {
				continue // A compaction has taken its place, and read none of the damage.
			}
			found++
			number := strings.TrimSuffix(fs.PathBase(table), ".sst")
			if s.err == nil || !storage.Damaged(s.failed) || !strings.Contains(s.failed.Error(), number) {
				t.Errorf("seed %d, %s, byte %d of the %d of %s flipped: %v, Fail was told %v", seed, name, at, len(data), table, s.err, s.failed)
			}
		}
	}
	if tried := int(seeds) * len(sendings); found < tried/2 {
		t.Errorf("%d of %d faults were in what was to be sent", found, tried)
	}
}

// tablesOf returns the paths of the tables that a store uses. A clone of its disk also has those
// that are deleted.
func tablesOf(t *testing.T, disk vfs.FS) []string {
	t.Helper()
	names, err := disk.List(liveDir)
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".sst") })
	for i, name := range names {
		names[i] = disk.PathJoin(liveDir, name)
	}
	return names
}

// sent tells how the sending of a checkpoint went.
type sent struct {
	files       []string // of the checkpoint; nil: there is none
	failed, err error    // what Options.Fail was called with, and what the sender
}

// sendFrom opens a store and sends a checkpoint of it. A store that does not open has noticed.
func sendFrom(fs vfs.FS, send func(*storage.Checkpoint) error) (s sent) {
	l, err := storagetest.Open(storage.Options{FS: fs})
	if err != nil {
		return sent{failed: err, err: err}
	}
	c, err := l.Store.Checkpoint()
	if s.err = err; err == nil {
		for _, f := range c.Files() {
			s.files = append(s.files, f.Name)
		}
		s.err = errors.Join(send(c), c.Close())
	}
	s.failed = l.Failed()
	_ = l.Store.Close()
	return s
}

// TestRotIsNotInstalled proves D5 for the receiver of a checkpoint: tables of which a bit has
// flipped before the sender worked out its sums, so that every sum fits, do not become the store,
// which stays as it is and continues; neither as a stream nor file by file.
func TestRotIsNotInstalled(t *testing.T) {
	p := newInstallPair(t, vfs.NewMem())
	files, err := storage.ParseStream(p.stream)
	if err != nil {
		t.Fatal(err)
	}
	c := checkpointOf(t, p.source)
	for seed := range storagetest.Draws(60) {
		rng := rand.New(rand.NewPCG(seed, 6))
		rotten := slices.Clone(files)
		var tables []int
		for i, f := range files {
			if strings.HasSuffix(f.Name, ".sst") {
				tables = append(tables, i)
			}
		}
		f := &rotten[tables[rng.IntN(len(tables))]]
		f.Data = bytes.Clone(f.Data)
		at := rng.IntN(len(f.Data))
		f.Data[at] ^= 1 << rng.IntN(8)
		what := fmt.Sprintf("seed %d, byte %d of the %d of %s flipped", seed, at, len(f.Data), f.Name)
		p.refused(t, storage.MakeStream(storagetest.Cluster, c.Applied, rotten...), what)

		s := seedOf(t, p.target, "a/1", c)
		var refused error
		for _, f := range rotten {
			refused = errors.Join(s.Write(bytes.Clone(f.Data)), s.EndFile(crc32.Checksum(f.Data, crc32.MakeTable(crc32.Castagnoli))))
			if refused != nil {
				break
			}
		}
		if name, offset, _ := s.Next(); !errors.Is(refused, storage.ErrChecksum) || name != f.Name || offset != 0 {
			t.Fatalf("%s, file by file: %v; next is %s from %d", what, refused, name, offset)
		}
		if err := s.Discard(); err != nil {
			t.Fatal(err)
		}
		onlyLive(t, p.fs)
	}
	if err := p.target.Store.Install(bytes.NewReader(p.stream)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), sameRows(p.source, p.target), p.source.Close(), p.target.Close()); err != nil {
		t.Error(err)
	}
}

// TestUnreadableSeedD5: a disk that does not read back what it has just written ends the seed. Its
// file is not taken for one that the sender has otherwise, which would be pulled again forever.
func TestUnreadableSeedD5(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpFileReadAt {
			return errorfs.ErrInjected
		}
		return nil
	}))
	p := newInstallPair(t, fs)
	c := checkpointOf(t, p.source)
	s := seedOf(t, p.target, "a/1", c)
	broken.Store(true)
	if _, err := pull(c, s, all, 1<<20); !errors.Is(err, errorfs.ErrInjected) || errors.Is(err, storage.ErrChecksum) {
		t.Errorf("the end of the file: %v", err)
	}
	broken.Store(false)
	if err := errors.Join(s.Close(), c.Close(), p.source.Close(), p.target.Close()); err != nil {
		t.Error(err)
	}
}
