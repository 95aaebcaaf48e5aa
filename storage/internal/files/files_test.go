package files_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/storage/internal/files"
)

// TestReplaceModes: a user that may not read the file may not read what it is made of either, also
// where something readable was left over; a mode gives no user more than new files have by
// themselves.
func TestReplaceModes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(plain)
	if err != nil {
		t.Fatal(err)
	}
	usual := info.Mode().Perm()
	for _, mode := range []os.FileMode{0o600, 0o644, 0o666} {
		path := filepath.Join(dir, "secret")
		for _, left := range []string{path, path + ".new"} {
			if err := os.WriteFile(left, []byte("left"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		reader, err := os.Open(path + ".new")
		if err != nil {
			t.Fatal(err)
		}
		disk := &watched{FS: vfs.Default, t: t, most: mode & usual}
		if err := files.Replace(disk, path, []byte("secret"), mode); err != nil {
			t.Fatal(err)
		}
		if disk.writes == 0 {
			t.Error("nothing was written")
		}
		text, err := os.ReadFile(path)
		if info, err2 := os.Stat(path); err != nil || err2 != nil || string(text) != "secret" || info.Mode().Perm() != mode&usual {
			t.Errorf("mode %v: %q with %v, %v", mode, text, info.Mode(), errors.Join(err, err2))
		}
		seen := make([]byte, 16)
		if n, _ := reader.Read(seen); string(seen[:n]) != "left" {
			t.Errorf("who had opened what was left over reads %q", seen[:n])
		}
		_ = reader.Close()
		if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
			t.Error("the file is there under its other name:", err)
		}
	}
}

// watched looks at the mode of files that are written to.
type watched struct {
	vfs.FS
	t      *testing.T
	most   os.FileMode
	writes int
}

func (w *watched) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, category)
	return &watchedFile{f, w}, err
}

type watchedFile struct {
	vfs.File
	w *watched
}

func (f *watchedFile) Write(p []byte) (int, error) {
	f.w.writes++
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != f.w.most {
		f.w.t.Errorf("written to with mode %v, %v; want %v", info.Mode(), err, f.w.most)
	}
	return f.File.Write(p)
}

// TestReplaceCrash: whatever operation fails or is the last one before a crash, the file is the
// old one or the new one, whole; and once the call has returned, the new one.
func TestReplaceCrash(t *testing.T) {
	t.Parallel()
	older, newer := bytes.Repeat([]byte("old"), 10_000), bytes.Repeat([]byte("newer"), 10_000)
	for _, percent := range []int{0, 50, 100} {
		for failing := 0; ; failing++ {
			mem, op := vfs.NewCrashableMem(), 0
			if err := mem.MkdirAll("/dir", 0o700); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(files.Replace(mem, "/dir/file", bytes.Clone(older), 0o600), files.SyncDir(mem, "/")); err != nil {
				t.Fatal(err)
			}
			disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
				if op++; op > failing {
					return errorfs.ErrInjected
				}
				return nil
			}))
			done := files.Replace(disk, "/dir/file", bytes.Clone(newer), 0o600)
			rng := rand.New(rand.NewPCG(uint64(failing), uint64(percent)))
			text, err := files.Read(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), "/dir/file", 1<<20)
			if err != nil || !bytes.Equal(text, newer) && (done == nil || !bytes.Equal(text, older)) {
				t.Errorf("crash after %d operations, which ended with %v: %d bytes, %v", failing, done, len(text), err)
			}
			if done == nil {
				break
			}
		}
	}
}

// TestReadMost tells a file that is too long from one that is not.
func TestReadMost(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	if err := files.Replace(mem, "file", []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{3: "1234", 4: "12345", 5: "12345", 9: "12345"} {
		if text, err := files.Read(mem, "file", most); err != nil || string(text) != want {
			t.Errorf("at most %d: %q, %v", most, text, err)
		}
	}
	if _, err := files.Read(mem, "none", 1); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file that is not there:", err)
	}
}
