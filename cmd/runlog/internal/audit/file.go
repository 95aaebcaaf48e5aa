package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"runlog/client/command/output"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// target is a file that is written under a temporary name, in the directory of its final name.
//
// Invariant: this process holds the lock of the temporary file from newTarget to discard.
type target struct {
	io.Writer
	path string
	part string
	file *os.File // nil for standard output
}

// newTarget creates the file of a path; "-" is the standard output. An existing file is not
// replaced. A temporary file that a killed process left is overwritten.
func (a *app) newTarget(path string) (*target, error) {
	if path == "-" {
		return &target{Writer: a.Stdout}, nil
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, output.UsageError("%s already exists; name another file, or remove it", path)
	}
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o666)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, output.UsageError("%s cannot be written: there is no directory %s; make it, or name another file", path, filepath.Dir(path))
	}
	if err != nil {
		return nil, output.UsageError("%v", err)
	}
	if err := a.takeOver(file, path, part); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &target{Writer: file, path: path, part: part, file: file}, nil
}

// takeOver locks a temporary file and truncates it. No other process holds the lock.
func (a *app) takeOver(file *os.File, path, part string) error {
	// A file system without locks cannot tell a running process from one that is gone.
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return output.UsageError("another process is writing %s; wait for it to end, or name another file", path)
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	// The name may be a link to another place, or the file may have got its final name since.
	if named, err := os.Lstat(part); err != nil || !os.SameFile(named, info) || !info.Mode().IsRegular() {
		return output.UsageError("cannot write %s by way of %s: it is no regular file, or was moved; try again, or name another file", path, part)
	}
	if info.Size() > 0 {
		fmt.Fprintf(a.Stderr, "overwriting %s: a process that was killed left it while it wrote %s\n", part, path)
	}
	return file.Truncate(0)
}

// keep syncs the file and gives it its final name.
func (t *target) keep() error {
	if t.file == nil {
		return nil
	}
	if err := t.file.Sync(); err != nil {
		return err
	}
	// Unlike a rename, a link fails if a file of that name was made since. Not every file system
	// has links.
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

// discard removes the temporary file.
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
	*output.Progress
	from int64 // nanoseconds since 1970; 0: the beginning
	next time.Time
}

// windowProgress returns the progress of reading a window; nil if stderr is no terminal.
func (a *app) windowProgress(window *runlogv1.QueryEventsResponse) *windowProgress {
	from, to := window.GetFrom().AsTime().UnixNano(), window.GetTo().AsTime().UnixNano()
	bar := a.NewProgress(to-from, time.Now())
	if bar == nil {
		return nil
	}
	return &windowProgress{Progress: bar, from: from}
}

func (p *windowProgress) reached(now time.Time, through *timestamppb.Timestamp, events uint64) {
	if p == nil || now.Before(p.next) {
		return
	}
	p.next = now.Add(output.ProgressEvery)
	if p.from == 0 && through != nil {
		// The window is from the beginning: the log begins at the first event that was read.
		p.from = through.AsTime().UnixNano()
		p.Shorten(p.from)
	}
	p.Draw(now, max(0, through.AsTime().UnixNano()-p.from), events)
}

func (p *windowProgress) clear() {
	if p != nil {
		p.Clear()
	}
}
