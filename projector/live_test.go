package projector

import (
	"testing"

	"runlog/testbed/bubble"
)

// TestLiveREAD2: memory answers for what it has up to the position asked for, and for nothing else.
func TestLiveREAD2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		at := b.propose(b.more("run", 3))
		b.settle()
		if s := b.p.Live("run", at); s == nil || s.LastEventSeq != 3 {
			t.Errorf("memory has %+v", s)
		}
		if b.p.Live("run", at+1) != nil {
			t.Error("memory answers for what is not folded yet")
		}
		if b.p.Live("other", at) != nil {
			t.Error("memory answers for a run that it does not have")
		}
	})
}
