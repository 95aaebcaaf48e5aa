package batch

import (
	"testing"
	"testing/synctest"
)

// TestCommandBehindTheLine: a command that comes while another goroutine is proposing, and nothing
// is outstanding, is proposed without any other command or answer.
func TestCommandBehindTheLine(t *testing.T) {
	g := &group{}
	bubble(t, g, Options{}, func(t *testing.T, b *Batcher, a *answers) {
		b.proposing.Lock()
		ticket, err := b.Enqueue("", command(3, 10))
		b.proposing.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		sameProposals(t, g, []int{3})
		if o, err := ticket.Wait(t.Context()); err != nil || o.LastSeq != 3 {
			t.Errorf("told %+v, error %v", o, err)
		}
	})
}
