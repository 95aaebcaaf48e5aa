package replica

import (
	"slices"
	"sync"
)

// Alerts is the set of alerts that are raised on this node.
type Alerts struct {
	mu    sync.Mutex
	names []string
}

// Set raises or clears an alert.
func (a *Alerts) Set(name string, on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.Index(a.names, name)
	switch {
	case on && at < 0:
		a.names = append(a.names, name)
	case !on && at >= 0:
		a.names = slices.Delete(a.names, at, at+1)
	}
}

// Standing returns the raised alerts, sorted by name.
func (a *Alerts) Standing() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.names))
}
