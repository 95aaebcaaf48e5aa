package sim

import (
	"bytes"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// clean holds the log's pages that the machine takes for written although they are not. After a
// sync that failed, Linux marks the pages that it could not write as clean. Reads return them while
// they stay in memory, and no later sync writes them until the page is written to again (Rebello et
// al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
type clean struct {
	mu    sync.Mutex
	pages map[page][]byte // their contents on the disk
}

// page names a page of a file.
type page struct {
	path   string
	number int
}

const pageSize = 4096

// fail records the pages that a failed sync of a file has not written.
func (c *clean) fail(mem *vfs.MemFS, path string) {
	if !strings.HasSuffix(path, ".wal") {
		return
	}
	has, err := contents(mem, path)
	if err != nil {
		return
	}
	// If the directory was not synced since the file was created, none of the file counts as
	// written.
	onDisk, _ := contents(mem.CrashClone(vfs.CrashCloneCfg{}), path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pages == nil {
		c.pages = map[page][]byte{}
	}
	for at := 0; at < len(has); at += pageSize {
		p := page{path, at / pageSize}
		if _, known := c.pages[p]; !known && !bytes.Equal(pageOf(has, at), pageOf(onDisk, at)) {
			c.pages[p] = bytes.Clone(pageOf(onDisk, at))
		}
	}
}

func pageOf(data []byte, at int) []byte { return data[min(at, len(data)):min(at+pageSize, len(data))] }

func contents(mem *vfs.MemFS, path string) ([]byte, error) {
	f, err := mem.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	data := make([]byte, info.Size())
	_, err = f.ReadAt(data, 0)
	return data, err
}

// written is called after a write to a file. Its pages are no longer clean.
func (c *clean) written(path string, at int64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pages) == 0 {
		return
	}
	for number := int(at) / pageSize; number*pageSize < int(at)+n; number++ {
		delete(c.pages, page{path, number})
	}
}

// removed is called when a file is removed or created again.
func (c *clean) removed(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.pages {
		if p.path == path {
			delete(c.pages, p)
		}
	}
}

// lose replaces the pages, on the disk that a loss of power has left, by what the disk has of them.
// It returns their number.
func (c *clean) lose(left *vfs.MemFS) (lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, onDisk := range c.pages {
		info, err := left.Stat(p.path)
		at := p.number * pageSize
		if err != nil || at >= int(info.Size()) {
			continue
		}
		was := make([]byte, min(pageSize, int(info.Size())-at))
		copy(was, onDisk)
		f, err := left.OpenReadWrite(p.path, vfs.WriteCategoryUnspecified)
		if err != nil {
			continue
		}
		_, _ = f.WriteAt(was, int64(at)) // in memory, like Sync and Close
		_, _ = f.Sync(), f.Close()
		lost++
	}
	return lost
}
