package await

import (
	"io"
	"strings"
	"sync"
)

// Words are what a process has written. Each write also goes to a file, and wakes the tests that
// wait for a text.
type Words struct {
	File io.Writer // nil: there is none

	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed at the next write; nil: no test waits
}

func (w *Words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
	if w.File == nil {
		return len(p), nil
	}
	return w.File.Write(p)
}

func (w *Words) String() string {
	said, _ := w.look()
	return said
}

// look returns what was written, and a channel that is closed at the next write.
func (w *Words) look() (said string, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.text.String(), w.changed
}

// Await waits until a condition holds of what was written, or the process has ended, or the time of
// the test is over. It reports whether the condition holds.
func (w *Words) Await(ended, over <-chan struct{}, condition func(said string) bool) bool {
	for {
		said, changed := w.look()
		if condition(said) {
			return true
		}
		select {
		case <-changed:
		case <-ended:
			return condition(w.String()) // What it wrote last is read before it has ended.
		case <-over:
			return false
		}
	}
}
