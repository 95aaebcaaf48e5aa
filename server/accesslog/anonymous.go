package accesslog

import (
	"cmp"
	"net"
	"slices"
	"sync"
	"time"
)

// anonymous counts refused calls without an identity, of which any program that reaches a listener
// can cause any number: one event for each address and minute has them (SEC-11). So they neither
// grow the log nor use up what there is for the refusals of tenants.
type anonymous struct {
	mu struct {
		sync.Mutex
		of map[string]*entry // of this minute, by address
	}
}

const (
	anonymousEvery = time.Minute
	// maxAddresses bounds the events of a minute. Further addresses share one.
	maxAddresses   = 10
	otherAddresses = "other addresses"
)

// add counts a refused call. The event has the method and the message of the first one.
func (a *anonymous) add(e *entry) {
	address := e.Decision.Address
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.of[address] == nil && len(a.mu.of) >= maxAddresses {
		address = otherAddresses
	}
	first := a.mu.of[address]
	if first == nil {
		if a.mu.of == nil {
			a.mu.of = map[string]*entry{}
		}
		first, e.Decision.Address = e, address
		a.mu.of[address] = e
	}
	first.Decision.Count++
}

// take returns the events since the last call, the earliest first.
func (a *anonymous) take() (list []*entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.mu.of {
		list = append(list, e)
	}
	a.mu.of = nil
	slices.SortFunc(list, func(x, y *entry) int {
		return cmp.Or(x.CalledAt.Compare(y.CalledAt), cmp.Compare(x.Decision.Address, y.Decision.Address))
	})
	return list
}
