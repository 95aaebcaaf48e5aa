package raft

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestCloseOfALeader: a node that closes before it has heard that it leads no more still ends
// (D10).
func TestCloseOfALeader(t *testing.T) {
	b := newBed(t).start()
	n, store := b.node, b.store
	b.node, b.store = nil, nil
	defer store.Close()
	var closed atomic.Bool
	go func() {
		for !closed.Load() {
			n.setLeading(true, 1)
			runtime.Gosched()
		}
	}()
	done := make(chan error, 1)
	go func() { done <- n.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("Close does not end")
	}
	closed.Store(true)
}
