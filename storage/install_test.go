package storage_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// pair are a store, its checkpoint's stream, and a store on another disk that is behind it.
type pair struct {
	source, target *storagetest.Local
	stream         []byte
	fs             vfs.FS
}

func newInstallPair(t rapid.TB, fs vfs.FS) *pair {
	t.Helper()
	p := &pair{source: open(t, storage.Options{}), fs: fs, target: open(t, storage.Options{FS: fs})}
	for n := range 12 {
		propose(t, p.source, "run", n, 2)
		if n == 4 {
			p.target.Entries = p.source.Entries
			if err := p.target.Replay(nil); err != nil {
				t.Fatalf("replay: %v", err)
			}
			if err := p.target.Store.MakeDurable(p.target.Applied().Index); err != nil {
				t.Fatalf("flush: %v", err)
			}
		}
	}
	p.stream = streamOf(t, p.source)
	return p
}

// refused wants a stream to be refused without a trace.
func (p *pair) refused(t rapid.TB, stream []byte, what string) {
	t.Helper()
	before := p.target.Applied()
	err := p.target.Store.Install(bytes.NewReader(stream))
	if err == nil || p.target.Applied() != before || p.target.Failed() != nil {
		t.Fatalf("%s: error %v, applied %+v, failure %v", what, err, p.target.Applied(), p.target.Failed())
	}
	onlyLive(t, p.fs)
}

// TestInstallRefusesDamage proves D5: a stream with a flipped bit, cut off at any place, or with
// more at its end is refused, and the store stays as it is, and continues.
func TestInstallRefusesDamage(t *testing.T) {
	p := newInstallPair(t, vfs.NewMem())
	rng := rand.New(rand.NewPCG(1, 0))
	for at := 0; at < len(p.stream); at += 1 + at/100 {
		bad := bytes.Clone(p.stream)
		bad[at] ^= 1 << rng.IntN(8)
		p.refused(t, bad, fmt.Sprintf("byte %d of %d flipped", at, len(bad)))
		p.refused(t, p.stream[:at], fmt.Sprintf("cut off after %d of %d bytes", at, len(bad)))
	}
	p.refused(t, p.stream[:len(p.stream)-1], "without its last byte")
	p.refused(t, append(bytes.Clone(p.stream), 0), "with one byte more")
	if err := p.target.Store.Install(io.MultiReader(bytes.NewReader(p.stream[:99]), errReader{})); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("from a sender that goes away: %v", err)
	}
	if err := p.target.Store.Install(bytes.NewReader(p.stream)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sameRows(p.source, p.target), p.source.Close(), p.target.Close()); err != nil {
		t.Error(err)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestInstallRefusesLies proves D5 and D1: a stream whose every checksum fits is refused when it is
// of another cluster, names files that lead elsewhere or come twice, lacks files, or is not what it
// promises to be.
func TestInstallRefusesLies(t *testing.T) {
	p := newInstallPair(t, vfs.NewMem())
	sound, at := p.source.Applied(), storagetest.Cluster
	files, err := storage.ParseStream(p.stream)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(storage.MakeStream(at, sound, files...), p.stream) {
		t.Fatal("a stream taken apart and made again is another")
	}
	p.refused(t, storage.MakeStream(storage.ClusterID{9}, sound, files...), "of another cluster")
	for _, change := range []func(*storage.Applied){
		func(a *storage.Applied) { a.Index++ },
		func(a *storage.Applied) { a.Term++ },
		func(a *storage.Applied) { a.RollingHash[31]++ },
	} {
		promised := sound
		change(&promised)
		p.refused(t, storage.MakeStream(at, promised, files...), "promises something else")
	}
	for _, name := range []string{
		"", ".", "..", "/", "../CURRENT", "CURRENT", "LOCK", "/etc/passwd", "a/000001.sst", "000001.sst/", "000001.sst\x00",
		"000001.sst\n", "1.sst", "000001.log", "marker.x/../../y.000001.z", "marker.manifest.000001.", strings.Repeat("0", 90) + ".sst",
		strings.Repeat("0", 200) + ".sst", `..\000001.sst`, "000001.SST",
	} {
		p.refused(t, storage.MakeStream(at, sound, append(slices.Clone(files), storage.TestFile{Name: name, Data: []byte("x")})...), "file "+name)
		p.refused(t, storage.MakeStream(at, sound, storage.TestFile{Name: name, Data: []byte("x")}), "file alone "+name)
	}
	p.refused(t, storage.MakeStream(at, sound, append(slices.Clone(files), files[len(files)-1])...), "a file twice")
	for i := range files {
		if strings.HasPrefix(files[i].Name, "OPTIONS") {
			continue // Pebble has no need of it
		}
		p.refused(t, storage.MakeStream(at, sound, slices.Delete(slices.Clone(files), i, i+1)...), "without "+files[i].Name)
	}
	p.refused(t, storage.MakeStream(at, sound), "without files")
	if err := errors.Join(p.source.Close(), p.target.Close()); err != nil {
		t.Error(err)
	}
}

// TestInstallOnFiles is TestCheckpoint on real files, with real hard links.
func TestInstallOnFiles(t *testing.T) {
	source := open(t, storage.Options{FS: vfs.Default, Dir: t.TempDir() + "/store"})
	target := open(t, storage.Options{FS: vfs.Default, Dir: t.TempDir() + "/store"})
	for n := range 20 {
		propose(t, source, "run", n, 1)
		if n%5 == 4 {
			if err := target.Store.Install(bytes.NewReader(streamOf(t, source))); err != nil {
				t.Fatal(err)
			}
		}
	}
	target.Entries = source.Entries
	if err := errors.Join(target.Reopen(), sameRows(source, target), source.Close(), target.Close()); err != nil {
		t.Error(err)
	}
}

// TestReceiveGarbage proves D5: no bytes make Receive panic or take memory that was not sent.
func TestReceiveGarbage(t *testing.T) {
	p := newInstallPair(t, vfs.NewMem())
	rapid.Check(t, func(t *rapid.T) {
		head := rapid.IntRange(0, 200).Draw(t, "head")
		noise := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "noise")
		p.refused(t, append(bytes.Clone(p.stream[:head]), noise...), "noise")
	})
	if err := errors.Join(p.source.Close(), p.target.Close()); err != nil {
		t.Error(err)
	}
}

// TestLeftovers proves D5: what interrupted installs and checkpoints left behind goes when the
// store is opened, and nothing else does.
func TestLeftovers(t *testing.T) {
	fs := vfs.NewMem()
	l := open(t, storage.Options{FS: fs})
	propose(t, l, "run", 0, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"store/000007", "store/checkpoint-000009", "store/lost+found"} {
		if err := fs.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(dir+"/000001.sst", "half of it")
	}
	write("store/CURRENT.new", "runlog sto")
	l = open(t, storage.Options{FS: fs})
	names, err := fs.List("store")
	slices.Sort(names)
	if want := []string{"000001", "CURRENT", "lost+found"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("left are %q, want %q, %v", names, want, err)
	}
	// A number is not used again while a directory could have it.
	source := open(t, storage.Options{})
	propose(t, source, "run", 0, 1)
	propose(t, source, "run", 1, 2)
	if err := l.Store.Install(bytes.NewReader(streamOf(t, source))); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat("store/000010"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(source.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}

// TestCurrent proves D2 for the file that names the database: one that is gone, damaged, or names a
// database that is not what was installed is refused, and no database is removed.
func TestCurrent(t *testing.T) {
	source := open(t, storage.Options{})
	propose(t, source, "run", 0, 1)
	stream := streamOf(t, source)
	for what, damage := range map[string]func(fs *vfs.MemFS) error{
		"gone":       func(fs *vfs.MemFS) error { return fs.Remove("store/CURRENT") },
		"empty":      func(fs *vfs.MemFS) error { return overwrite(fs, "") },
		"of another": func(fs *vfs.MemFS) error { return overwrite(fs, currentLine(1, 1)) },
		"flipped": func(fs *vfs.MemFS) error {
			return overwrite(fs, strings.Replace(currentLine(2, 1), "000002", "000001", 1))
		},
		"longer":        func(fs *vfs.MemFS) error { return overwrite(fs, currentLine(2, 1)+"x") },
		"database gone": func(fs *vfs.MemFS) error { return fs.RemoveAll("store/000002") },
	} {
		fs := vfs.NewMem()
		target := open(t, storage.Options{FS: fs})
		if err := errors.Join(target.Store.Install(bytes.NewReader(stream)), target.Close(), damage(fs)); err != nil {
			t.Fatal(err)
		}
		if l, err := storagetest.Open(storage.Options{FS: fs}); err == nil {
			t.Errorf("%s: opened at %+v", what, l.Applied())
			_ = l.Store.Close()
		}
		if _, err := fs.Stat("store/000002"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := source.Close(); err != nil {
		t.Error(err)
	}
}

// currentLine is CURRENT as docs/formats.md describes it.
func currentLine(number, installed uint64) string {
	line := fmt.Sprintf("runlog store 1 database %06d installed %d", number, installed)
	return fmt.Sprintf("%s crc32c %08x\n", line, crc32.Checksum([]byte(line), crc32.MakeTable(crc32.Castagnoli)))
}

func overwrite(fs *vfs.MemFS, text string) error {
	f, err := fs.Create("store/CURRENT", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Sync(), f.Close())
}

// TestCheckpointFormats is TestFormats for what an install leaves and for what a stream is made of.
func TestCheckpointFormats(t *testing.T) {
	fs := vfs.NewMem()
	source, target := open(t, storage.Options{}), open(t, storage.Options{FS: fs})
	err := errors.Join(
		source.Store.ApplyMembership(1234, 2, []byte("members")),
		target.Store.Install(bytes.NewReader(streamOf(t, source))), source.Close(), target.Close())
	if err != nil {
		t.Fatal(err)
	}
	current, err := readFile(fs, "store/CURRENT")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "current", current)
	if want := currentLine(2, 1234); string(current) != want {
		t.Errorf("CURRENT says %q, want %q", current, want)
	}
	l := open(t, storage.Options{})
	if err := l.Store.ApplyMembership(5, 2, []byte("members")); err != nil {
		t.Fatal(err)
	}
	rows, err := l.Store.Dump()
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	golden(t, "membership", fmt.Appendf(nil, "key\n%svalue\n%s", hex.Dump(rows[2]), hex.Dump(rows[3])))
	applied := storage.Applied{Index: 5, Term: 2, RollingHash: [32]byte{1, 2, 3}}
	golden(t, "checkpoint", []byte(hex.Dump(storage.MakeStream(storagetest.Cluster, applied,
		storage.TestFile{Name: "000004.sst", Data: []byte("a table")}, storage.TestFile{Name: "marker.manifest.000001.MANIFEST-000001"}))))
}
