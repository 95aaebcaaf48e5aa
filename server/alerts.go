package server

import (
	"slices"
	"sync"
)

// alerts are those that stand.
type alerts struct {
	mu    sync.Mutex
	names []string
}

// set says whether an alert stands.
func (a *alerts) set(name string, on bool) {
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

// standing returns the alerts that stand, in order of their names.
func (a *alerts) standing() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.names))
}
