package storage_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

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
// that are whole are compared, the one that was cut continues, and what Pebble changes comes again;
// nothing of another sender is kept, and nothing at all after an install.
func TestSeedKeeps(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
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
		bubble.Until(t, "what is removed elsewhere is gone", func() bool {
			names, err := fs.List("store")
			return err == nil && len(names) == 2
		})
		onlyLive(t, fs)
		if err := errors.Join(c.Close(), source.Close(), target.Close()); err != nil {
			t.Error(err)
		}
	})
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
	// After the install, the owner can still close the seed.
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
