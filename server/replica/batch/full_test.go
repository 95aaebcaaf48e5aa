package batch

import (
	"testing"
	"testing/synctest"
)

// TestFullProposals proves D1: what is full to the byte goes at once while another proposal is
// under way; so does all that one command makes full; and an answer lets a full one go though
// others are under way yet.
func TestFullProposals(t *testing.T) {
	const size = 1000
	one := command(0, size).Size()
	t.Run("to the byte", func(t *testing.T) {
		g := &group{release: make(chan struct{})}
		bubble(t, g, Options{ProposalBytes: 2 * one}, func(t *testing.T, b *Batcher, a *answers) {
			for n := range 3 {
				a.submit(t.Context(), t, b, n, size)
			}
			sameProposals(t, g, []int{0}, []int{1, 2})
		})
	})
	t.Run("two at once", func(t *testing.T) {
		g := &group{release: make(chan struct{})}
		bubble(t, g, Options{Outstanding: 3, ProposalBytes: 2 * one}, func(t *testing.T, b *Batcher, a *answers) {
			a.submit(t.Context(), t, b, 0, size)
			a.submit(t.Context(), t, b, 1, size)
			a.submit(t.Context(), t, b, 2, 3*size)
			sameProposals(t, g, []int{0}, []int{1}, []int{2})
		})
	})
	t.Run("after an answer", func(t *testing.T) {
		g := &group{release: make(chan struct{})}
		bubble(t, g, Options{Outstanding: 2, ProposalBytes: 2 * one}, func(t *testing.T, b *Batcher, a *answers) {
			for n := range 6 {
				a.submit(t.Context(), t, b, n, size)
			}
			sameProposals(t, g, []int{0}, []int{1, 2})
			g.release <- struct{}{}
			synctest.Wait()
			sameProposals(t, g, []int{0}, []int{1, 2}, []int{3, 4})
		})
	})
}
