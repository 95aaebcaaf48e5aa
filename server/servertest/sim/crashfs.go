package sim

import (
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// crashFS is the file system of one life of a node. A killed process leaves its unsynced writes in
// the memory of its machine: the next process finds them, and a later loss of power still takes
// them. So the next life continues with the same files, and the goroutines of the ended life with a
// copy.
type crashFS struct {
	alive *vfs.MemFS
	clean *clean
	gone  *unlinked
	after atomic.Pointer[vfs.MemFS] // the copy; nil while the process lives
}

var _ vfs.FS = (*crashFS)(nil)

func newCrashFS(mem *vfs.MemFS, c *clean, u *unlinked) *crashFS {
	return &crashFS{alive: mem, clean: c, gone: u}
}

// die switches this life to a copy of the files.
func (m *crashFS) die() {
	m.after.Store(m.alive.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))}))
}

// now returns the files, or their copy after the end of this life.
func (m *crashFS) now() *vfs.MemFS {
	if after := m.after.Load(); after != nil {
		return after
	}
	return m.alive
}

// file wraps a file that was opened in one of them.
func (m *crashFS) file(in *vfs.MemFS, path string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &crashFile{File: f, m: m, path: path, late: in != m.alive}, nil
}

func (m *crashFS) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	in := m.now()
	if in == m.alive {
		m.clean.removed(path)
		m.gone.made(path)
	}
	f, err := in.Create(path, c)
	return m.file(in, path, f, err)
}

func (m *crashFS) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	in := m.now()
	f, err := in.Open(path, opts...)
	return m.file(in, path, f, err)
}

func (m *crashFS) OpenReadWrite(path string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	in := m.now()
	f, err := in.OpenReadWrite(path, c, opts...)
	return m.file(in, path, f, err)
}

func (m *crashFS) OpenDir(path string) (vfs.File, error) {
	in := m.now()
	f, err := in.OpenDir(path)
	return m.file(in, path, f, err)
}

func (m *crashFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	in := m.now()
	m.gone.made(to)
	f, err := in.ReuseForWrite(from, to, c)
	return m.file(in, to, f, err)
}

// Lock always succeeds: the killed process before has not released the lock.
func (m *crashFS) Lock(path string) (io.Closer, error) {
	return m.now().Create(path, vfs.WriteCategoryUnspecified)
}

func (m *crashFS) Remove(path string) error {
	in := m.now()
	err := in.Remove(path)
	if in == m.alive && err == nil {
		m.clean.removed(path)
		m.gone.add(path)
	}
	return err
}

func (m *crashFS) Link(from, to string) error {
	m.gone.made(to)
	return m.now().Link(from, to)
}

func (m *crashFS) Rename(from, to string) error {
	m.gone.made(to)
	return m.now().Rename(from, to)
}

func (m *crashFS) RemoveAll(path string) error                  { return m.now().RemoveAll(path) }
func (m *crashFS) MkdirAll(path string, p os.FileMode) error    { return m.now().MkdirAll(path, p) }
func (m *crashFS) List(path string) ([]string, error)           { return m.now().List(path) }
func (m *crashFS) Stat(path string) (vfs.FileInfo, error)       { return m.now().Stat(path) }
func (m *crashFS) PathBase(path string) string                  { return m.now().PathBase(path) }
func (m *crashFS) PathJoin(elem ...string) string               { return m.now().PathJoin(elem...) }
func (m *crashFS) PathDir(path string) string                   { return m.now().PathDir(path) }
func (m *crashFS) Unwrap() vfs.FS                               { return m.now() }
func (m *crashFS) GetDiskUsage(p string) (vfs.DiskUsage, error) { return m.now().GetDiskUsage(p) }

// crashFile is an open file. After the end of the process it is the file of the same name in the
// copy.
type crashFile struct {
	vfs.File
	m    *crashFS
	path string
	late bool // opened in the copy

	mu    sync.Mutex
	after vfs.File
}

// now returns the file to use, and whether it is the one in the copy: then writes append to it.
func (f *crashFile) now() (file vfs.File, moved bool) {
	if f.late || f.m.after.Load() == nil {
		return f.File, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.after == nil {
		var err error
		if f.after, err = f.m.after.Load().OpenReadWrite(f.path, vfs.WriteCategoryUnspecified); err != nil {
			f.after = vfs.NewMemFile(nil) // the file was removed
		}
	}
	return f.after, true
}

func (f *crashFile) Write(p []byte) (int, error) {
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

func (f *crashFile) WriteAt(p []byte, at int64) (int, error) {
	file, moved := f.now()
	if !moved {
		if !f.late {
			f.m.clean.written(f.path, at, len(p))
		}
		return file.WriteAt(p, at)
	}
	return f.lost(p, at, file)
}

// lost writes to the copy, which no later life reads.
func (f *crashFile) lost(p []byte, at int64, file vfs.File) (int, error) {
	_, _ = file.WriteAt(p, at)
	return len(p), nil
}

func (f *crashFile) ReadAt(p []byte, at int64) (int, error) {
	file, _ := f.now()
	return file.ReadAt(p, at)
}

func (f *crashFile) Sync() error {
	file, moved := f.now()
	err := file.Sync()
	if err == nil && !moved && !f.late {
		f.m.gone.synced(f.m, f.path)
	}
	return err
}

func (f *crashFile) SyncData() error { return f.Sync() }

func (f *crashFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.after != nil {
		_ = f.after.Close()
	}
	return f.File.Close()
}
