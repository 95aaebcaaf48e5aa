package batch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestClose proves D13: Close refuses what comes later, answers what was admitted, and returns only
// then.
func TestClose(t *testing.T) {
	g := &group{release: make(chan struct{})}
	synctest.Test(t, func(t *testing.T) {
		g.release = make(chan struct{})
		registry := prometheus.NewRegistry()
		b := New(Options{Propose: g.propose, Cluster: cluster, Outstanding: 1, Registerer: registry})
		var a answers
		for n := range 4 {
			a.submit(t.Context(), t, b, n, 10)
		}
		closed := make(chan struct{})
		go func() {
			b.Close()
			close(closed)
		}()
		synctest.Wait()
		a.submit(t.Context(), t, b, 9, 10)
		a.expect(t, 9, ErrClosed)
		g.release <- struct{}{}
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed before the admitted commands were answered")
		default:
		}
		g.release <- struct{}{}
		<-closed
		a.done.Wait()
		for n := range 4 {
			a.expect(t, n, nil)
		}
		if families, err := registry.Gather(); err != nil || len(families) > 0 {
			t.Errorf("%d metrics after Close, error %v", len(families), err)
		}
	})
	sameProposals(t, g, []int{0}, []int{1, 2, 3})
}

// TestCloseWithoutAnAnswer proves D13: if the group does not answer, Close waits for a while and
// then returns. Later answers still reach the waiting callers.
func TestCloseWithoutAnAnswer(t *testing.T) {
	g := &group{}
	synctest.Test(t, func(t *testing.T) {
		g.release = make(chan struct{})
		b := New(Options{Propose: g.propose, Cluster: cluster, Outstanding: 1})
		var a answers
		for n := range 2 {
			a.submit(t.Context(), t, b, n, 10)
		}
		began := time.Now()
		b.Close()
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("Close took %v, want %v", took, closeTimeout)
		}
		g.release <- struct{}{}
		g.release <- struct{}{}
		a.done.Wait()
		for n := range 2 {
			a.expect(t, n, nil)
		}
	})
}

// TestCloseIdle shows that a batcher without work closes, with and without work before.
func TestCloseIdle(t *testing.T) {
	g := &group{}
	bubble(t, g, Options{}, func(*testing.T, *Batcher, *answers) {})
	bubble(t, g, Options{}, func(t *testing.T, b *Batcher, a *answers) {
		a.submit(t.Context(), t, b, 0, 10)
		a.expect(t, 0, nil)
	})
}
