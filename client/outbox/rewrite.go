package outbox

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// copyBytes is the size of the parts in which a file is copied.
	copyBytes = 1 << 20
	// maxCopies bounds the copies of damaged files that are kept.
	maxCopies = 4
)

// rewrite replaces the file by one with the live records only. If it fails before the new file has
// its name, the old file stays in use.
func (w *writer) rewrite() error {
	err := w.replace()
	if err == nil {
		w.broken, w.unsynced, w.stale = nil, false, false
		return nil
	}
	w.retry = w.opts.now().Add(retryEvery)
	w.opts.Logger.Warn("cannot replace the file of the outbox", "path", w.path, "err", err)
	return err
}

func (w *writer) replace() error {
	live, from, next, queue := w.snapshot()
	if from != nil {
		defer func() { _ = w.release(from) }()
	}
	name := w.temporary()
	f, err := w.opts.files.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	size, err := copyLive(f, from, live, next)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Close(), w.opts.files.Remove(name))
	}
	if err := w.opts.files.Rename(name, w.path); err != nil {
		// It may have happened: then a write to the old file would be lost.
		w.fail(err)
		return errors.Join(err, f.Close())
	}
	w.adopt(f, live)
	cover(queue)
	w.end = size
	if err := w.opts.files.SyncDir(filepath.Dir(w.path)); err != nil {
		// After a crash, the name may be that of the old file.
		w.fail(err)
		return err
	}
	return nil
}

// snapshot returns copies of the live records, and the file that they are in; nil: there is none
// yet. They have the removals and rejections in queue. The caller releases the file.
func (w *writer) snapshot() (live []entry, from *handle, next uint64, queue []*op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.mu.index.live() {
		live = append(live, *e)
	}
	if w.mu.file != nil {
		from = w.acquireLocked()
	}
	return live, from, w.mu.next, slices.Clone(w.mu.queue)
}

// cover notes that the removals and rejections of a batch need not be written.
func cover(batch []*op) {
	for _, p := range batch {
		p.covered = p.kind != kindPut
	}
}

// adopt makes f the file of the outbox, in which live are the records.
func (w *writer) adopt(f file, live []entry) {
	w.mu.Lock()
	for _, e := range live {
		if now := w.mu.index.byID[e.id]; now != nil {
			w.mu.index.bytes += int64(e.size - now.size)
			now.offset, now.size = e.offset, e.size
		}
	}
	old := w.mu.file
	w.mu.file = &handle{file: f, refs: 1}
	w.mu.Unlock()
	if old != nil {
		_ = w.release(old)
	}
}

// copyLive writes a file with the records of live, and sets where they are in it. It copies put
// frames as they are: one that became unreadable is found when the new file is opened.
func copyLive(to file, from *handle, live []entry, next uint64) (size int64, err error) {
	text := header{version: formatVersion, next: next, carried: uint32(len(live))}.encode()
	flush := func() error {
		_, err := to.WriteAt(text, size)
		size += int64(len(text))
		text = text[:0]
		return err
	}
	for i := range live {
		e := &live[i]
		put := make([]byte, e.size)
		if _, err := from.ReadAt(put, e.offset); err != nil {
			return 0, err
		}
		put = bytes.Trim(put, "\x00") // After some damage, two frames share a zero byte.
		e.offset, e.size = size+int64(len(text)), len(put)+2
		text = append(append(append(text, 0), put...), 0)
		if e.state == rejected {
			text = append(text, e.rejection().encode()...)
		}
		if len(text) >= copyBytes {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	err = flush()
	return size, err
}

// copyDamaged keeps a copy of the file as it is, under the next free name of the form
// FILE.damaged-N. Of the copies, the newest maxCopies stay.
func (o *Outbox) copyDamaged(f file, size int64) error {
	dir, base := filepath.Split(o.path)
	names, err := o.opts.files.Names(filepath.Clean(dir))
	if err != nil {
		return err
	}
	var numbers []int
	for _, name := range names {
		if text, ok := strings.CutPrefix(name, base+".damaged-"); ok {
			if n, err := strconv.Atoi(text); err == nil && n > 0 && strconv.Itoa(n) == text {
				numbers = append(numbers, n)
			}
		}
	}
	slices.SortFunc(numbers, cmp.Compare[int])
	name := func(n int) string { return o.path + ".damaged-" + strconv.Itoa(n) }
	number := 1
	if len(numbers) > 0 {
		number = numbers[len(numbers)-1] + 1
	}
	if err := o.copyFile(f, size, name(number)); err != nil {
		return fmt.Errorf("copy the damaged file to %s: %w", name(number), err)
	}
	o.recovery.Copy = name(number)
	for len(numbers) >= maxCopies {
		if err := o.opts.files.Remove(name(numbers[0])); err != nil {
			return err
		}
		o.recovery.Dropped = name(numbers[0])
		numbers = numbers[1:]
	}
	return nil
}

// copyFile copies the bytes of a file to stable storage.
func (o *Outbox) copyFile(from file, size int64, name string) error {
	to, err := o.opts.files.Open(o.temporary(), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	part := make([]byte, min(size, copyBytes))
	for at := int64(0); at < size && err == nil; at += int64(len(part)) {
		part = part[:min(size-at, int64(len(part)))]
		if _, err = from.ReadAt(part, at); err == nil {
			_, err = to.WriteAt(part, at)
		}
	}
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, o.opts.files.Remove(o.temporary()))
	}
	if err := o.opts.files.Rename(o.temporary(), name); err != nil {
		return err
	}
	return o.opts.files.SyncDir(filepath.Dir(name))
}
