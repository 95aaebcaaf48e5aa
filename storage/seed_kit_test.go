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
