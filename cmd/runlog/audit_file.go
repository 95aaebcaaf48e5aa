package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// target is a file that is being written under another name, in the directory in which it gets its
// own.
//
// Invariant: this process holds the lock of what has the other name, from newTarget to discard.
type target struct {
	io.Writer
	path string
	part string
	file *os.File // nil: standard output
}

// newTarget begins the file of a path, - being the standard output. A file that is there already
// stays. What is left of a process that was killed while it wrote the same file is written anew.
func (a *app) newTarget(path string) (*target, error) {
	if path == "-" {
		return &target{Writer: a.stdout}, nil
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, usageError("%s exists; name another file, or remove it", path)
	}
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, usageError("%v", err)
	}
	if err := a.takeOver(file, path, part); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &target{Writer: file, path: path, part: part, file: file}, nil
}

// takeOver locks a file, which no other process does then, and empties it.
func (a *app) takeOver(file *os.File, path, part string) error {
	// Not every file system has locks. Where it has none, nothing tells another process from one
	// that is gone.
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return usageError("another process is writing %s; wait for it, or name another file", path)
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	// It may be a link that leads elsewhere, or have got its own name meanwhile.
	if named, err := os.Lstat(part); err != nil || !os.SameFile(named, info) || !info.Mode().IsRegular() {
		return usageError("%s cannot be written by way of %s: it is no file, or was moved; try again, or name another file", path, part)
	}
	if info.Size() > 0 {
		fmt.Fprintf(a.stderr, "%s is left of a process that was ended before it had written %s, and is written anew\n", part, path)
	}
	return file.Truncate(0)
}

// keep puts what was written on stable storage and gives it its name.
func (t *target) keep() error {
	if t.file == nil {
		return nil
	}
	if err := t.file.Sync(); err != nil {
		return err
	}
	// Unlike a rename, a link fails where somebody made a file of that name meanwhile; not every
	// file system has links.
	err := os.Link(t.part, t.path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		if err = os.Rename(t.part, t.path); err == nil {
			t.part = ""
		}
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(t.path))
}

// discard takes away what is there under the other name.
func (t *target) discard() {
	if t.file == nil {
		return
	}
	if t.part != "" {
		_ = os.Remove(t.part)
	}
	_ = t.file.Close()
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// windowProgress shows how much of a window has been read.
type windowProgress struct {
	*progress
	from int64 // nanoseconds since 1970; 0: the beginning
	next time.Time
}

// auditProgress is nil where stderr is no terminal.
func (a *app) auditProgress(window *runlogv1.QueryEventsResponse) *windowProgress {
	if a.stderrWidth == 0 {
		return nil
	}
	from, to := window.GetFrom().AsTime().UnixNano(), window.GetTo().AsTime().UnixNano()
	return &windowProgress{progress: &progress{w: a.stderr, width: a.stderrWidth, total: to - from, started: time.Now()}, from: from}
}

func (p *windowProgress) reached(now time.Time, through *timestamppb.Timestamp, events uint64) {
	if p == nil || now.Before(p.next) {
		return
	}
	p.next = now.Add(progressEvery)
	if p.from == 0 && through != nil {
		// The window is from the beginning: what there is begins here.
		p.from = through.AsTime().UnixNano()
		p.total -= p.from
	}
	p.draw(now, max(0, through.AsTime().UnixNano()-p.from), events)
}

func (p *windowProgress) clear() {
	if p != nil {
		p.progress.clear()
	}
}
