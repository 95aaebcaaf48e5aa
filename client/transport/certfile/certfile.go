// Package certfile holds what is read from files of certificates and tokens, and reads the files
// again when they change. A new pair that cannot be used leaves the old one in place.
package certfile

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// checkEvery is the shortest interval between checks of the files.
const checkEvery = time.Second

// Options of Files. Paths and Read are required.
type Options[M any] struct {
	Paths []string
	// Read makes a value of the files' content; before is the one so far, nil at first. A value
	// never changes.
	Read func(before *M) (*M, error)
	// Clock. Default: time.Now.
	Clock func() time.Time
	// What the files hold, for the log of Kept. Default: client certificates.
	What string
}

// Files is the value of a set of files. Its methods may be called by many goroutines.
type Files[M any] struct {
	opts Options[M]

	mu struct {
		sync.Mutex
		value   *M
		infos   []os.FileInfo // as they were when value was read
		checked time.Time
		err     error  // of the last check; nil: value matches the files
		told    string // err as Kept has logged it last
		reading bool   // a caller of Current reads the files
	}
}

// Load reads the files.
func Load[M any](opts Options[M]) (*Files[M], error) {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.What == "" {
		opts.What = "client certificates"
	}
	f := &Files[M]{opts: opts}
	infos, err := f.stat()
	if err != nil {
		return nil, err
	}
	if f.mu.value, err = opts.Read(nil); err != nil {
		return nil, err
	}
	f.mu.infos, f.mu.checked = infos, opts.Clock()
	return f, nil
}

// Last returns the value that Current last returned, without a check.
func (f *Files[M]) Last() *M {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.value
}

// Current returns the current value, and checks the files if the last check was a second ago. An
// error means that the changed files are not usable; Current then returns the earlier value too,
// and tries again later.
func (f *Files[M]) Current() (*M, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.opts.Clock()
	if d := now.Sub(f.mu.checked); 0 <= d && d < checkEvery || f.mu.reading {
		return f.mu.value, f.mu.err
	}
	value, known, unchanged := f.mu.value, f.mu.infos, f.mu.err == nil
	f.mu.checked, f.mu.reading = now, true
	f.mu.Unlock() // Other callers do not wait for the disk.
	// The check precedes the read: a change in between shows at the next check.
	infos, err := f.stat()
	if unchanged = unchanged && err == nil && slices.EqualFunc(infos, known, same); err == nil && !unchanged {
		value, err = f.opts.Read(value)
	}
	f.mu.Lock()
	f.mu.reading, f.mu.err = false, err
	if err == nil {
		f.mu.value, f.mu.infos = value, infos
	}
	return f.mu.value, err
}

// Kept returns the current value, as Current does, and logs an error of the files once.
func (f *Files[M]) Kept(log *slog.Logger) *M {
	value, err := f.Current()
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault != "" && fault != f.mu.told {
		log.Warn("cannot reload "+f.opts.What+"; keeping the old ones", "err", fault, "remedy", "correct the files; they are read again by themselves")
	}
	f.mu.told = fault
	return value
}

func (f *Files[M]) stat() ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(f.opts.Paths))
	for i, path := range f.opts.Paths {
		var err error
		if infos[i], err = os.Stat(path); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
