package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// grow applies so many proposals to a store, each of which becomes a file of its own, or nearly, of
// some 20 KiB.
func grow(t rapid.TB, l *storagetest.Local, run string, proposals int) {
	t.Helper()
	growBy(t, l, run, proposals, 1_500)
}

// growBy is grow with payloads of so many bytes of noise, twice over.
func growBy(t rapid.TB, l *storagetest.Local, run string, proposals, size int) {
	t.Helper()
	for range proposals {
		events := storagetest.Events(run, len(l.Entries)*8, 8)
		noise := rand.NewChaCha8([32]byte{byte(len(l.Entries)), byte(len(run))})
		for i := range events {
			raw := make([]byte, size)
			_, _ = noise.Read(raw)
			events[i].Payload = fmt.Appendf(nil, `{"noise":"%x"}`, raw)
		}
		o, err := l.Propose(int64(len(l.Entries)+1), []storagetest.Request{{Append: &storage.Append{RunID: run, Events: events}}})
		if err != nil || o[0].Err != nil {
			t.Fatalf("propose: %+v, %v", o, err)
		}
		if err := l.Store.Flush(); err != nil {
			t.Fatalf("flush: %v", err)
		}
	}
}

func checkpointOf(t rapid.TB, l *storagetest.Local) *storage.Checkpoint {
	t.Helper()
	c, err := l.Store.Checkpoint()
	if err != nil {
		t.Fatalf("checkpoint: %v", err)
	}
	return c
}

func seedOf(t rapid.TB, l *storagetest.Local, origin string, c *storage.Checkpoint) *storage.Seed {
	t.Helper()
	s, err := l.Store.Seed(origin, c.Manifest())
	if err != nil {
		t.Fatalf("seed: %v", err)
	}
	return s
}

var errCut = errors.New("the stream was cut")

// pull takes at most so many bytes of what a seed lacks, in pieces of at most size bytes, and tells
// how many it took. It ends with errCut where there were more.
func pull(c *storage.Checkpoint, s *storage.Seed, most, size int) (took int, err error) {
	for name, offset, ok := s.Next(); ok; name, offset, ok = s.Next() {
		sum, err := c.ReadFile(name, offset, func(b []byte) error {
			for part := range slices.Chunk(b, size) {
				part = part[:min(len(part), most-took)]
				took += len(part)
				if err := s.Write(part); err != nil {
					return err
				}
				if took == most {
					return errCut
				}
			}
			return nil
		})
		if err == nil {
			err = s.EndFile(sum)
		}
		if err != nil {
			return took, err
		}
	}
	return took, nil
}

const all = 1 << 30

// sameFiles wants the one seed below a store's directory to have the files of a checkpoint, byte
// for byte, and no other.
func sameFiles(fs vfs.FS, c *storage.Checkpoint, names []string) error {
	dirs, err := fs.List("store")
	dirs = slices.DeleteFunc(dirs, func(name string) bool { return !strings.HasPrefix(name, "seed-") })
	if err != nil || len(dirs) != 1 {
		return fmt.Errorf("seeds: %q, %w", dirs, err)
	}
	dir := fs.PathJoin("store", dirs[0])
	got, err := fs.List(dir)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, names) {
		return fmt.Errorf("files %q, want %q, %w", got, names, err)
	}
	for _, name := range names {
		var want []byte
		sum, err := c.ReadFile(name, 0, func(b []byte) error { want = append(want, b...); return nil })
		if err != nil {
			return err
		}
		if sum != crc32.Checksum(want, crc32.MakeTable(crc32.Castagnoli)) {
			return fmt.Errorf("the checksum of %s is another", name)
		}
		data, err := readFile(fs, fs.PathJoin(dir, name))
		if err != nil || !bytes.Equal(data, want) {
			return fmt.Errorf("%s: %d bytes, want %d, %w", name, len(data), len(want), err)
		}
	}
	return nil
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errors.Join(err, f.Close())
}

func writeFile(fs vfs.FS, path string, data []byte) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// namesOf returns the names of a checkpoint's files, sorted.
func namesOf(t rapid.TB, c *storage.Checkpoint) (names []string) {
	t.Helper()
	stream, err := io.ReadAll(c.Stream())
	if err != nil {
		t.Fatal(err)
	}
	files, err := storage.ParseStream(stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name)
	}
	return names
}

// finish wants a seed that has come whole to become the store, equal to one that took the
// checkpoint as a stream.
func finish(t rapid.TB, fs vfs.FS, c *storage.Checkpoint, s *storage.Seed, target *storagetest.Local) {
	t.Helper()
	if have, total := s.Progress(); have != total {
		t.Fatalf("%d of %d bytes", have, total)
	}
	if err := sameFiles(fs, c, namesOf(t, c)); err != nil {
		t.Fatal(err)
	}
	received, err := s.Finish()
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	if received.Applied != c.Applied {
		t.Fatalf("received %+v, want %+v", received.Applied, c.Applied)
	}
	if err := received.Install(); err != nil {
		t.Fatalf("install: %v", err)
	}
	reference := open(t, storage.Options{})
	if err := reference.Store.Install(c.Stream()); err != nil {
		t.Fatal(err)
	}
	if err := sameRows(reference, target); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(reference.Close(), target.Reopen()); err != nil {
		t.Fatal(err)
	}
	onlyLive(t, fs)
	if target.Applied() != c.Applied || target.Store.Installed() != c.Applied.Index {
		t.Fatalf("installed %+v, want %+v", target.Applied(), c.Applied)
	}
}

// sender is a store that checkpoints are pulled from.
type sender struct {
	*storagetest.Local
	c *storage.Checkpoint
}

// seeding is a seed under way, and all that may happen to it.
type seeding struct {
	t       *rapid.T
	fs      *vfs.MemFS
	senders [2]*sender
	from    int
	origin  string
	target  *storagetest.Local
	seed    *storage.Seed
}

func (s *seeding) sender() *sender { return s.senders[s.from] }

// again ends the seed and begins another.
func (s *seeding) again() {
	if err := s.seed.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.seed = seedOf(s.t, s.target, s.origin, s.sender().c)
	if have, total := s.seed.Progress(); have > total {
		s.t.Fatalf("%d of %d bytes", have, total)
	}
}

// pullSome pulls until it is cut, with a bit flipped on the way or not.
func (s *seeding) pullSome(flip bool) {
	most := rapid.SampledFrom([]int{1, 700, 5_000, 40_000, all}).Draw(s.t, "bytes")
	if flip {
		name, offset, ok := s.seed.Next()
		if !ok {
			return
		}
		_, _ = s.sender().c.ReadFile(name, offset, func(b []byte) error {
			b[rapid.IntRange(0, len(b)-1).Draw(s.t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(s.t, "bit")
			if err := s.seed.Write(b); err != nil {
				s.t.Fatal(err)
			}
			return errCut
		})
	}
	_, err := pull(s.sender().c, s.seed, most, rapid.SampledFrom([]int{1 << 10, 100, 1 << 20}).Draw(s.t, "pieces"))
	if err != nil && !errors.Is(err, errCut) && !errors.Is(err, storage.ErrChecksum) {
		s.t.Fatalf("pull: %v", err)
	}
}

// rot changes a file of the seed on disk, behind its back.
func (s *seeding) rot() {
	dirs, err := s.fs.List("store")
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(dirs)
	dir := s.fs.PathJoin("store", dirs[slices.IndexFunc(dirs, func(name string) bool { return strings.HasPrefix(name, "seed-") })])
	names, err := s.fs.List(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	path := s.fs.PathJoin(dir, rapid.SampledFrom(names).Draw(s.t, "file"))
	data, err := readFile(s.fs, path)
	if err != nil {
		s.t.Fatal(err)
	}
	at := rapid.IntRange(0, max(0, len(data)-1)).Draw(s.t, "at")
	switch rapid.IntRange(0, 2).Draw(s.t, "damage") {
	case 0:
		data = data[:at]
	case 1:
		data = append(data, make([]byte, 100)...)
	default:
		clear(data[at:min(len(data), at+4096)]) // as after a crash that lost a block
	}
	if err := writeFile(s.fs, path, data); err != nil {
		s.t.Fatal(err)
	}
}

// TestSeed proves D5: whatever cuts the transfer of a checkpoint, in whatever order, and whatever
// the files that an earlier attempt left have become, what is installed is the checkpoint, byte for
// byte: streams that end anywhere, bits that flip on the way, restarts, other checkpoints of the
// sender, files that changed on disk, and another sender, also one that gives itself out for the
// first while its files have the same names.
func TestSeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &seeding{t: t, fs: vfs.NewMem(), origin: "a/1"}
		for i, run := range []string{"run", "other"} {
			l := open(t, storage.Options{})
			grow(t, l, run, rapid.IntRange(1, 4).Draw(t, "proposals"))
			s.senders[i] = &sender{l, checkpointOf(t, l)}
		}
		s.target = open(t, storage.Options{FS: s.fs})
		s.seed = seedOf(t, s.target, s.origin, s.sender().c)
		t.Repeat(map[string]func(*rapid.T){
			"pull":  func(*rapid.T) { s.pullSome(false) },
			"flip":  func(*rapid.T) { s.pullSome(true) },
			"again": func(*rapid.T) { s.again() },
			"restart": func(t *rapid.T) {
				if err := errors.Join(s.seed.Close(), s.target.Reopen()); err != nil {
					t.Fatal(err)
				}
				if rapid.Bool().Draw(t, "rot") {
					s.rot()
				}
				s.again()
			},
			"renew": func(t *rapid.T) {
				from := s.sender()
				grow(t, from.Local, "more", rapid.IntRange(0, 2).Draw(t, "proposals"))
				var err error
				if rapid.Bool().Draw(t, "compact") {
					err = from.Store.Compact(context.Background())
				}
				if err := errors.Join(err, from.c.Close()); err != nil {
					t.Fatal(err)
				}
				from.c = checkpointOf(t, from.Local)
				s.again()
			},
			"sender": func(t *rapid.T) {
				s.from = 1 - s.from
				if rapid.Bool().Draw(t, "honest") {
					s.origin = []string{"a/1", "b/1"}[s.from]
				}
				s.again()
			},
			"discard": func(t *rapid.T) {
				if err := s.seed.Discard(); err != nil {
					t.Fatal(err)
				}
				s.again()
			},
		})
		_, err := pull(s.sender().c, s.seed, all, 10_000)
		for tries := 0; errors.Is(err, storage.ErrChecksum) && tries < 50; tries++ {
			_, err = pull(s.sender().c, s.seed, all, 10_000)
		}
		if err != nil {
			t.Fatal(err)
		}
		finish(t, s.fs, s.sender().c, s.seed, s.target)
		for _, from := range s.senders {
			if err := errors.Join(from.c.Close(), from.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.target.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSeedKeeps proves D5: after a restart of either side only what is missing comes again: tables
// that are whole are compared, the one that was cut goes on, and what Pebble changes comes again;
// nothing of another sender is kept, and nothing at all after an install.
func TestSeedKeeps(t *testing.T) {
	fs := vfs.NewMem()
	source, target := open(t, storage.Options{}), open(t, storage.Options{FS: fs})
	grow(t, source, "run", 3)
	// so that Pebble leaves the tables alone
	if err := source.Store.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := checkpointOf(t, source)
	tables := slices.DeleteFunc(namesOf(t, c), func(name string) bool { return !strings.HasSuffix(name, ".sst") })
	s := seedOf(t, target, "a/1", c)
	whole, err := pull(c, s, all, 1000)
	if _, total := s.Progress(); err != nil || uint64(whole) != total || len(tables) != 1 {
		t.Fatalf("pulled %d of %d bytes, %d tables, %v", whole, total, len(tables), err)
	}
	if err := errors.Join(s.Close(), target.Reopen()); err != nil {
		t.Fatal(err)
	}

	// The sender has begun again, with a little more.
	grow(t, source, "run", 1)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = checkpointOf(t, source)
	s = seedOf(t, target, "a/1", c)
	kept, _ := s.Progress()
	for name, offset, ok := s.Next(); ok; name, offset, ok = s.Next() {
		took := 0
		sum, err := c.ReadFile(name, offset, func(b []byte) error { took += len(b); return s.Write(b) })
		if err == nil {
			err = s.EndFile(sum)
		}
		if old := slices.Contains(tables, name); err != nil || old && (offset == 0 || took > 0) || !old && offset > 0 {
			t.Errorf("%s: from %d, %d bytes, %v", name, offset, took, err)
		}
	}
	if kept == 0 {
		t.Error("nothing was kept")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// Cut in the middle of a table.
	s = seedOf(t, target, "b/1", c)
	if have, _ := s.Progress(); have != 0 {
		t.Errorf("%d bytes of another sender were kept", have)
	}
	if _, err := pull(c, s, 1001, 1000); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	name, at, _ := s.Next()
	if err := errors.Join(s.Close(), target.Reopen()); err != nil {
		t.Fatal(err)
	}
	s = seedOf(t, target, "b/1", c)
	if again, offset, _ := s.Next(); again != name || offset != at || offset != 1001 || !strings.HasSuffix(name, ".sst") {
		t.Errorf("goes on with %s from %d, was cut in %s at %d", again, offset, name, at)
	}
	// A file that is longer than it may be is nothing to go on with.
	dirs, err := fs.List("store")
	slices.Sort(dirs)
	long := fs.PathJoin("store", dirs[len(dirs)-1], name)
	if err := errors.Join(err, s.Close(), writeFile(fs, long, make([]byte, 1<<20))); err != nil {
		t.Fatal(err)
	}
	s = seedOf(t, target, "b/1", c)
	if have, _ := s.Progress(); have != 0 {
		t.Errorf("%d bytes of a file that is too long were kept", have)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// A checkpoint that came otherwise.
	if err := target.Store.Install(c.Stream()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		// what is removed elsewhere is gone
		if names, err := fs.List("store"); err == nil && len(names) == 2 {
			break
		}
	}
	onlyLive(t, fs)
	if err := errors.Join(c.Close(), source.Close(), target.Close()); err != nil {
		t.Error(err)
	}
}

// TestSeedLeftover proves D5: a seed is there when the store is opened again, unless the database
// that it was begun for was replaced; and a store has one at a time.
func TestSeedLeftover(t *testing.T) {
	fs := vfs.NewMem()
	source, target := open(t, storage.Options{}), open(t, storage.Options{FS: fs})
	grow(t, source, "run", 2)
	c := checkpointOf(t, source)
	s := seedOf(t, target, "a/1", c)
	if _, err := target.Store.Seed("a/1", c.Manifest()); !errors.Is(err, storage.ErrSeeding) {
		t.Errorf("a second seed: %v", err)
	}
	if _, err := pull(c, s, 100, 100); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	// The install leaves the seed to its owner, who can still close it.
	if err := errors.Join(target.Store.Install(c.Stream()), s.Close(), s.Close(), s.Discard()); err != nil {
		t.Fatal(err)
	}
	if err := s.Write([]byte("x")); err == nil {
		t.Error("a seed that is over takes bytes")
	}
	if _, err := s.Finish(); err == nil {
		t.Error("a seed that is over is finished")
	}
	if err := target.Reopen(); err != nil {
		t.Fatal(err)
	}
	onlyLive(t, fs)
	s = seedOf(t, target, "a/1", c) // as far as the store: it is taken
	if _, err := pull(c, s, all, 1000); err != nil {
		t.Fatal(err)
	}
	finish(t, fs, c, s, target)
	// What was pulled for another database is no seed of this one.
	for _, dir := range []string{"store/seed-000001-0123456789abcdef", "store/seed-0001-0123456789abcdef", "store/seed"} {
		if err := fs.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := target.Reopen(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("store")
	slices.Sort(names)
	if err != nil || len(names) != 4 || !slices.Equal(names[2:], []string{"seed", "seed-0001-0123456789abcdef"}) {
		t.Errorf("left are %q, %v", names, err)
	}
	if err := errors.Join(c.Close(), source.Close(), target.Close()); err != nil {
		t.Error(err)
	}
}
