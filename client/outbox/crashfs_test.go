package outbox

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// crashFS is a file system in memory that loses what was not synced: crash returns the file system
// as a machine may find it after a loss of power. As on Linux, a failed Sync drops what it should
// have written: it stays readable, and no later Sync writes it.
type crashFS struct {
	mu struct {
		sync.Mutex
		names  map[string]*inode
		synced map[string]*inode // what a crash leaves of names
		dirOps []func(map[string]*inode)
		locked map[string]bool
		dead   bool
		steps  int // calls that a fault can hit
		log    []string
	}
	// fault returns the error of the step with a number, counted from 1; nil: it succeeds.
	fault func(step int, op string) error
}

// inode is a file: what is on the disk, and the changes since.
type inode struct {
	disk    []byte
	now     []byte
	changes []change
}

// change is a write, or a truncation if data is nil.
type change struct {
	at   int64
	data []byte
}

func (c change) apply(b []byte) []byte {
	if c.data == nil {
		return append(b[:min(int64(len(b)), c.at)], make([]byte, max(0, c.at-int64(len(b))))...)
	}
	if end := c.at + int64(len(c.data)); int64(len(b)) < end {
		b = append(b, make([]byte, end-int64(len(b)))...)
	}
	copy(b[c.at:], c.data)
	return b
}

func newCrashFS() *crashFS {
	c := &crashFS{}
	c.mu.names, c.mu.synced, c.mu.locked = map[string]*inode{}, map[string]*inode{}, map[string]bool{}
	return c
}

// crash ends the use of the file system and returns what is left of it. draw returns a number from
// 0 to n: how many of the unsynced changes survive, and how many bytes of the one after. torn: what
// survives of a write may be any of its parts, not only its beginning.
func (c *crashFS) crash(draw func(n int) int, torn bool) *crashFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.dead = true
	left := newCrashFS()
	names := maps.Clone(c.mu.synced)
	for _, op := range c.mu.dirOps[:draw(len(c.mu.dirOps))] {
		op(names)
	}
	done := map[*inode]*inode{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old := names[name]
		if done[old] == nil {
			b := old.survives(draw, torn)
			done[old] = &inode{disk: b, now: bytes.Clone(b)}
		}
		left.mu.names[name], left.mu.synced[name] = done[old], done[old]
	}
	return left
}

// survives returns what a crash leaves of a file.
func (n *inode) survives(draw func(int) int, torn bool) []byte {
	b := bytes.Clone(n.disk)
	whole := draw(len(n.changes))
	for _, c := range n.changes[:whole] {
		b = c.apply(b)
	}
	if whole == len(n.changes) || len(n.changes[whole].data) == 0 {
		return b
	}
	c := n.changes[whole]
	part := change{c.at, bytes.Clone(c.data[:draw(len(c.data))])}
	if torn && len(part.data) > 0 {
		// A page in the middle was not written.
		from := draw(len(part.data) - 1)
		clear(part.data[from:min(len(part.data), from+16)])
	}
	return part.apply(b)
}

// step counts a call and returns its fault.
func (c *crashFS) step(op string) error {
	if c.mu.dead {
		return syscall.EIO
	}
	c.mu.steps++
	c.mu.log = append(c.mu.log, op)
	if c.fault != nil {
		return c.fault(c.mu.steps, op)
	}
	return nil
}

func (c *crashFS) Resolve(path string) (string, error) { return path, nil }

func (c *crashFS) Open(path string, flag int) (file, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("open"); err != nil {
		return nil, err
	}
	n := c.mu.names[path]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, fs.ErrNotExist
	case n == nil:
		n = &inode{}
		c.mu.names[path] = n
		c.mu.dirOps = append(c.mu.dirOps, func(m map[string]*inode) { m[path] = n })
	case flag&os.O_TRUNC != 0:
		n.now = nil
		n.changes = append(n.changes, change{})
	}
	return &crashFile{c, n}, nil
}

func (c *crashFS) Rename(from, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("rename"); err != nil {
		return err
	}
	rename := func(m map[string]*inode) {
		if m[from] != nil {
			m[to] = m[from]
			delete(m, from)
		}
	}
	rename(c.mu.names)
	c.mu.dirOps = append(c.mu.dirOps, rename)
	return nil
}

func (c *crashFS) Remove(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.names[path] == nil {
		return fs.ErrNotExist
	}
	remove := func(m map[string]*inode) { delete(m, path) }
	remove(c.mu.names)
	c.mu.dirOps = append(c.mu.dirOps, remove)
	return nil
}

func (c *crashFS) Names(string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.mu.names {
		names = append(names, filepath.Base(name))
	}
	return names, nil
}

func (c *crashFS) SyncDir(string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("sync directory"); err != nil {
		return err
	}
	c.mu.synced, c.mu.dirOps = maps.Clone(c.mu.names), nil
	return nil
}

func (c *crashFS) Lock(path string) (io.Closer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.locked[path] {
		return nil, &LockedError{Path: path}
	}
	c.mu.locked[path] = true
	return unlock(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.mu.locked, path)
	}), nil
}

type unlock func()

func (u unlock) Close() error {
	u()
	return nil
}

// put makes a file with a content on the disk.
func (c *crashFS) put(path string, content []byte) {
	n := &inode{disk: bytes.Clone(content), now: bytes.Clone(content)}
	c.mu.names[path], c.mu.synced[path] = n, n
}

// content returns what a file has now; nil: there is none.
func (c *crashFS) content(path string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.mu.names[path]; n != nil {
		return bytes.Clone(n.now)
	}
	return nil
}

type crashFile struct {
	fs *crashFS
	n  *inode
}

func (f *crashFile) ReadAt(p []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if at >= int64(len(f.n.now)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.now[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes the first half if there is a fault, as a full disk does.
func (f *crashFile) WriteAt(p []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.fs.step("write")
	if f.fs.mu.dead {
		return 0, err
	}
	if err != nil {
		p = p[:len(p)/2]
	}
	c := change{at, append([]byte{}, p...)}
	f.n.now = c.apply(f.n.now)
	f.n.changes = append(f.n.changes, c)
	return len(p), err
}

func (f *crashFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.step("truncate"); err != nil {
		return err
	}
	c := change{at: size}
	f.n.now = c.apply(f.n.now)
	f.n.changes = append(f.n.changes, c)
	return nil
}

func (f *crashFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.fs.step("sync")
	if f.fs.mu.dead {
		return err
	}
	if err == nil {
		for _, c := range f.n.changes {
			f.n.disk = c.apply(f.n.disk)
		}
	}
	f.n.changes = nil
	return err
}

func (f *crashFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.n.now)), nil
}

func (f *crashFile) Close() error { return nil }
