package events_test

import (
	"math"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestTakenKeyIsSkippedIDM10: an attempt that the authority assigns is not one whose key another
// event of the run has, or of the request. So a pause is no duplicate of a stranger. A repetition
// gives the first answer.
func TestTakenKeyIsSkippedIDM10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		taking := func(attempt uint32) *runlogv1.EventWrite {
			return servertest.Taking("run", servertest.NewEvent("RunPaused", servertest.Attempt(attempt)))
		}
		n.Append("run", servertest.NewEvent("RunStarted"), taking(1))
		got := n.Append("run", taking(2), pauseBy("s-1")).Results[1]
		if got.Idempotent || got.RunSeq != 4 || got.GetLogicalAttemptId() != 3 {
			t.Errorf("the pause: %v", got)
		}
		again := n.Append("run", pauseBy("s-1")).Results[0]
		if !again.Idempotent || again.RunSeq != 4 || again.GetLogicalAttemptId() != 3 {
			t.Errorf("the pause again: %v", again)
		}
	})
}

// TestHighestAttemptIDM10: a producer that names the highest attempt of all leaves room for those
// that the authority assigns.
func TestHighestAttemptIDM10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("RunPaused", servertest.Attempt(7)),
			servertest.NewEvent("RunPaused", servertest.Attempt(math.MaxUint32)), servertest.NewEvent("RunPaused", servertest.Attempt(1<<31)))
		for i, signal := range []string{"s-1", "s-2"} {
			if got := n.Append("run", pauseBy(signal)).Results[0]; got.Idempotent || got.GetLogicalAttemptId() != uint32(8+i) {
				t.Errorf("%s: %v", signal, got)
			}
		}
	})
}
