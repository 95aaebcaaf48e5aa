package sim

import (
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mortal is a file system as one life of a node sees it. A process that is killed leaves what it
// has written and not synced in the memory of its machine, where the next one finds it, and where a
// loss of power after that still takes it. So the next life goes on with the same files; and what
// is left of this one goes on with a copy.
type mortal struct {
	alive *vfs.MemFS
	clean *clean
	after atomic.Pointer[vfs.MemFS] // the copy; nil until the process is killed
}

var _ vfs.FS = (*mortal)(nil)

func newMortal(mem *vfs.MemFS, c *clean) *mortal { return &mortal{alive: mem, clean: c} }

// die takes the files away.
func (m *mortal) die() {
	m.after.Store(m.alive.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))}))
}

// now returns the files that there are, or the copies.
func (m *mortal) now() *vfs.MemFS {
	if after := m.after.Load(); after != nil {
		return after
	}
	return m.alive
}

// file returns what was opened in one of them.
func (m *mortal) file(in *vfs.MemFS, path string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &mortalFile{File: f, m: m, path: path, late: in != m.alive}, nil
}

func (m *mortal) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	in := m.now()
	if in == m.alive {
		m.clean.removed(path)
	}
	f, err := in.Create(path, c)
	return m.file(in, path, f, err)
}

func (m *mortal) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	in := m.now()
	f, err := in.Open(path, opts...)
	return m.file(in, path, f, err)
}

func (m *mortal) OpenReadWrite(path string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	in := m.now()
	f, err := in.OpenReadWrite(path, c, opts...)
	return m.file(in, path, f, err)
}

func (m *mortal) OpenDir(path string) (vfs.File, error) {
	in := m.now()
	f, err := in.OpenDir(path)
	return m.file(in, path, f, err)
}

func (m *mortal) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	in := m.now()
	f, err := in.ReuseForWrite(from, to, c)
	return m.file(in, to, f, err)
}

// Lock is given: the one before, which is dead, has not given it back.
func (m *mortal) Lock(path string) (io.Closer, error) {
	return m.now().Create(path, vfs.WriteCategoryUnspecified)
}

func (m *mortal) Remove(path string) error {
	in := m.now()
	if in == m.alive {
		m.clean.removed(path)
	}
	return in.Remove(path)
}

func (m *mortal) Link(from, to string) error                   { return m.now().Link(from, to) }
func (m *mortal) RemoveAll(path string) error                  { return m.now().RemoveAll(path) }
func (m *mortal) Rename(from, to string) error                 { return m.now().Rename(from, to) }
func (m *mortal) MkdirAll(path string, p os.FileMode) error    { return m.now().MkdirAll(path, p) }
func (m *mortal) List(path string) ([]string, error)           { return m.now().List(path) }
func (m *mortal) Stat(path string) (vfs.FileInfo, error)       { return m.now().Stat(path) }
func (m *mortal) PathBase(path string) string                  { return m.now().PathBase(path) }
func (m *mortal) PathJoin(elem ...string) string               { return m.now().PathJoin(elem...) }
func (m *mortal) PathDir(path string) string                   { return m.now().PathDir(path) }
func (m *mortal) Unwrap() vfs.FS                               { return m.now() }
func (m *mortal) GetDiskUsage(p string) (vfs.DiskUsage, error) { return m.now().GetDiskUsage(p) }

// mortalFile is an open file. Once the process is dead, it is the one of the same name among the
// copies.
type mortalFile struct {
	vfs.File
	m    *mortal
	path string
	late bool // opened after death, and a copy already

	mu    sync.Mutex
	after vfs.File
}

// now returns the file to use, and whether it is another than the one that was opened: then writes
// go behind its end.
func (f *mortalFile) now() (file vfs.File, moved bool) {
	if f.late || f.m.after.Load() == nil {
		return f.File, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.after == nil {
		var err error
		if f.after, err = f.m.after.Load().OpenReadWrite(f.path, vfs.WriteCategoryUnspecified); err != nil {
			f.after = vfs.NewMemFile(nil) // it has no name any more
		}
	}
	return f.after, true
}

func (f *mortalFile) Write(p []byte) (int, error) {
	file, moved := f.now()
	if !moved {
		return file.Write(p)
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return f.lost(p, info.Size(), file)
}

func (f *mortalFile) WriteAt(p []byte, at int64) (int, error) {
	file, moved := f.now()
	if !moved {
		if !f.late {
			f.m.clean.written(f.path, at, len(p))
		}
		return file.WriteAt(p, at)
	}
	return f.lost(p, at, file)
}

// lost writes what nobody will see but the dead.
func (f *mortalFile) lost(p []byte, at int64, file vfs.File) (int, error) {
	_, _ = file.WriteAt(p, at)
	return len(p), nil
}

func (f *mortalFile) ReadAt(p []byte, at int64) (int, error) {
	file, _ := f.now()
	return file.ReadAt(p, at)
}

func (f *mortalFile) Sync() error {
	file, _ := f.now()
	return file.Sync()
}

func (f *mortalFile) SyncData() error { return f.Sync() }

func (f *mortalFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.after != nil {
		_ = f.after.Close()
	}
	return f.File.Close()
}
