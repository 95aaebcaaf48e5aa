package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// target is a file that is being written under another name, in the directory in which it gets its own.
type target struct {
	io.Writer
	path string
	file *os.File // nil: standard output
}

// newTarget begins the file of a path, - being the standard output. A file that is there already stays.
func (a *app) newTarget(path string) (*target, error) {
	if path == "-" {
		return &target{Writer: a.stdout}, nil
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, usageError("%s exists; name another file, or remove it", path)
	}
	part := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d.part", filepath.Base(path), os.Getpid()))
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, usageError("%v", err)
	}
	return &target{Writer: file, path: path, file: file}, nil
}

// keep puts what was written on stable storage and gives it its name.
func (t *target) keep() error {
	if t.file == nil {
		return nil
	}
	if err := errors.Join(t.file.Sync(), t.file.Close()); err != nil {
		return err
	}
	// Unlike a rename, a link fails where somebody made a file of that name meanwhile; not every file system has links.
	err := os.Link(t.file.Name(), t.path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = os.Rename(t.file.Name(), t.path)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(t.path))
}

// discard takes away what is there under the other name.
func (t *target) discard() {
	if t.file != nil {
		_ = t.file.Close() // again where it was kept
		_ = os.Remove(t.file.Name())
	}
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
