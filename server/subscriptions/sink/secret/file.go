package secret

import (
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// checkEvery is the shortest time between two looks at a file that can be used.
const checkEvery = 2 * time.Second

// File is a secret that is used often. It is read again when its file changes. Its methods may be
// called by many goroutines.
type File[V any] struct {
	scope Scope
	name  string
	parse func([]byte) (V, error)
	clock func() time.Time

	mu struct {
		sync.Mutex
		value   V
		info    fs.FileInfo // of the file that value is from; nil: there is no value
		checked time.Time
	}
}

// NewFile makes a File without reading it. Errors of parse must not have the content.
func NewFile[V any](scope Scope, name string, parse func([]byte) (V, error), clock func() time.Time) *File[V] {
	return &File[V]{scope: scope, name: name, parse: parse, clock: clock}
}

// Current returns what the file has, as of two seconds ago at most. It tries again at once after
// an error: a file that is being replaced costs one attempt.
func (f *File[V]) Current() (value V, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	if d := now.Sub(f.mu.checked); f.mu.info != nil && 0 <= d && d < checkEvery {
		return f.mu.value, nil
	}
	text, info, err := f.scope.read(f.name, f.mu.info)
	if err == nil && text != nil {
		if value, err = f.parse(text); err != nil {
			err = fmt.Errorf("secret %s: %w", f.scope.Path(f.name), err)
		}
		f.mu.value = value
	}
	if err != nil {
		f.mu.info = nil
		return value, err
	}
	f.mu.info, f.mu.checked = info, now
	return f.mu.value, nil
}
