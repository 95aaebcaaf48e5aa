package batch

import (
	"testing"
	"testing/synctest"
)

// TestCommandBehindTheLine: a command that comes while another goroutine holds the line, and
// nothing is under way, is proposed without any other command or answer.
func TestCommandBehindTheLine(t *testing.T) {
	g := &group{}
	bubble(t, g, Options{}, func(t *testing.T, b *Batcher, a *answers) {
		b.line.Lock()
		ticket, err := b.Enqueue("", command(3, 10))
		b.line.Unlock()
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
