package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestSeedRefuses proves D5 and D1: what is no manifest, of another cluster, older than the store,
// too large for the disk, or names what Pebble does not, is refused with a typed error, and nothing
// changes.
func TestSeedRefuses(t *testing.T) {
	fs := vfs.NewMem()
	source, target := open(t, storage.Options{}), open(t, storage.Options{FS: fs})
	grow(t, source, "run", 2)
	c := checkpointOf(t, source)
	sound := c.Manifest()
	refused := func(manifest []byte, want error, what string) {
		t.Helper()
		if s, err := target.Store.Seed("a/1", manifest); !errors.Is(err, want) || s != nil {
			t.Errorf("%s: %v", what, err)
		}
		onlyLive(t, fs)
	}
	for at := range sound {
		bad := bytes.Clone(sound)
		bad[at] ^= 1 << (at % 8)
		refused(bad, storage.ErrCheckpoint, fmt.Sprintf("byte %d flipped", at))
		refused(sound[:at], storage.ErrCheckpoint, fmt.Sprintf("cut off after %d bytes", at))
	}
	refused(append(bytes.Clone(sound), 0), storage.ErrCheckpoint, "one byte more")
	refused(storage.MakeManifest(storage.ClusterID{9}, c.Applied), storage.ErrForeign, "of another cluster")
	for _, name := range []string{"", ".", "..", "../CURRENT", "/etc/passwd", "a/000001.sst", `a\000001.sst`, "CURRENT", "LOCK", "000001.log", "000001.sst\x00"} {
		refused(storage.MakeManifest(storagetest.Cluster, c.Applied, storage.TestFile{Name: name}), storage.ErrCheckpoint, "file "+name)
	}
	twice := storage.TestFile{Name: "000001.sst"}
	refused(storage.MakeManifest(storagetest.Cluster, c.Applied, twice, twice), storage.ErrCheckpoint, "a file twice")
	large := storage.TestFile{Name: "000001.sst", Size: 1<<44 + 1}
	refused(storage.MakeManifest(storagetest.Cluster, c.Applied, large), storage.ErrCheckpoint, "a file that is too large")

	// As much room as it takes is enough.
	_, total := progressOf(t, target, c)
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: total - 1})
	if s, err := target.Store.Seed("a/1", sound); !errors.Is(err, storage.ErrNoRoom) || s != nil {
		t.Errorf("without room: %v", err)
	}
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: total})
	s := seedOf(t, target, "a/1", c)
	if _, err := s.Finish(); err == nil {
		t.Error("finished without files")
	}
	if _, err := pull(c, s, all, 1000); err != nil {
		t.Fatal(err)
	}
	if err := s.Write([]byte("x")); !errors.Is(err, storage.ErrCheckpoint) {
		t.Errorf("bytes after the last file: %v", err)
	}
	if err := s.EndFile(0); !errors.Is(err, storage.ErrCheckpoint) {
		t.Errorf("a file after the last: %v", err)
	}
	// The store gets ahead.
	target.Entries = source.Entries
	if err := target.Replay(nil); err != nil {
		t.Fatal(err)
	}
	grow(t, target, "run", 1)
	if _, err := s.Finish(); !errors.Is(err, storage.ErrOlder) {
		t.Errorf("older: %v", err)
	}
	if err := s.Discard(); err != nil {
		t.Error(err)
	}
	refused(sound, storage.ErrOlder, "older")
	if err := errors.Join(c.Close(), source.Close(), target.Close()); err != nil {
		t.Error(err)
	}
}

func progressOf(t *testing.T, l *storagetest.Local, c *storage.Checkpoint) (have, total uint64) {
	t.Helper()
	s := seedOf(t, l, "a/1", c)
	have, total = s.Progress()
	if err := s.Discard(); err != nil {
		t.Fatal(err)
	}
	return have, total
}

// TestSeedRefusesLies proves D5: files that are whole, with sums that fit, and hold something else
// than the manifest promises do not become the store; nor do bytes beyond a file's size, or fewer.
func TestSeedRefusesLies(t *testing.T) {
	fs := vfs.NewMem()
	source, target := open(t, storage.Options{}), open(t, storage.Options{FS: fs})
	grow(t, source, "run", 2)
	c := checkpointOf(t, source)
	files, err := storage.ParseStream(streamOf(t, source))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*storage.Applied, *[]storage.TestFile){
		func(a *storage.Applied, _ *[]storage.TestFile) { a.Index++ },
		func(a *storage.Applied, _ *[]storage.TestFile) { a.Term++ },
		func(a *storage.Applied, _ *[]storage.TestFile) { a.RollingHash[0]++ },
		func(_ *storage.Applied, f *[]storage.TestFile) { *f = (*f)[1:] },
		func(_ *storage.Applied, f *[]storage.TestFile) { *f = nil },
	} {
		promised, sent := c.Applied, slices.Clone(files)
		change(&promised, &sent)
		s, err := target.Store.Seed("a/1", storage.MakeManifest(storagetest.Cluster, promised, sent...))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range sent {
			if err := s.Write(append(bytes.Clone(f.Data), 0)); !errors.Is(err, storage.ErrCheckpoint) {
				t.Errorf("%s, with one byte more: %v", f.Name, err)
			}
			if len(f.Data) > 0 {
				if err := s.EndFile(0); !errors.Is(err, storage.ErrCheckpoint) {
					t.Errorf("%s, without its bytes: %v", f.Name, err)
				}
			}
			if err := errors.Join(s.Write(bytes.Clone(f.Data)), s.EndFile(crc32.Checksum(f.Data, crc32.MakeTable(crc32.Castagnoli)))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Finish(); err == nil {
			t.Errorf("%d files that are not what was promised are taken", len(sent))
		}
		onlyLive(t, fs)
	}
	if target.Failed() != nil {
		t.Error(target.Failed())
	}
	if err := errors.Join(c.Close(), source.Close(), target.Close()); err != nil {
		t.Error(err)
	}
}

// TestReadFile proves D5 for the sender: it gives what the manifest names, from any offset, in
// bounded pieces, with the sum of the whole, and nothing else; also while the store applies and
// compacts, and to many at once.
func TestReadFile(t *testing.T) {
	source := open(t, storage.Options{MemTableBytes: 4 << 20})
	grow(t, source, "run", 3)
	growBy(t, source, "run", 1, 40<<10)
	c := checkpointOf(t, source)
	stream, err := io.ReadAll(c.Stream())
	if err != nil {
		t.Fatal(err)
	}
	files, err := storage.ParseStream(stream)
	if err != nil {
		t.Fatal(err)
	}
	grow(t, source, "run", 3)
	if err := source.Store.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(files, func(f storage.TestFile) bool { return len(f.Data) > 512<<10 }) {
		t.Error("no file of more than two pieces")
	}
	for _, f := range files {
		for _, offset := range []int{0, 1, len(f.Data) / 2, len(f.Data) - 1, len(f.Data)} {
			if offset < 0 || offset > len(f.Data) {
				continue
			}
			var got []byte
			sum, err := c.ReadFile(f.Name, uint64(offset), func(b []byte) error {
				if len(b) == 0 || len(b) > 256<<10 {
					t.Errorf("a piece of %d bytes", len(b))
				}
				got = append(got, b...)
				clear(b)
				return nil
			})
			if err != nil || !bytes.Equal(got, f.Data[offset:]) || sum != crc32.Checksum(f.Data, crc32.MakeTable(crc32.Castagnoli)) {
				t.Errorf("%s from %d: %d bytes, sum %x, %v", f.Name, offset, len(got), sum, err)
			}
		}
		if _, err := c.ReadFile(f.Name, uint64(len(f.Data)+1), nil); !errors.Is(err, storage.ErrNotInCheckpoint) {
			t.Errorf("%s from beyond its end: %v", f.Name, err)
		}
	}
	for _, name := range []string{"", ".", "LOCK", "../CURRENT", "CURRENT", "999999.sst", "../000001/" + files[0].Name} {
		if _, err := c.ReadFile(name, 0, nil); !errors.Is(err, storage.ErrNotInCheckpoint) {
			t.Errorf("file %q: %v", name, err)
		}
	}
	if _, err := c.ReadFile(files[0].Name, 0, func([]byte) error { return errCut }); !errors.Is(err, errCut) {
		t.Errorf("an error of the receiver: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadFile(files[0].Name, 0, nil); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("of a checkpoint that is closed: %v", err)
	}
	if err := source.Close(); err != nil {
		t.Error(err)
	}
}
