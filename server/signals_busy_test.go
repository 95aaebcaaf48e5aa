package server

import (
	"context"
	"fmt"
	"sync"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/testbed/bubble"
)

// TestSignalsInFloodedRunsSIG2: streams that have thousands of appends to a run in flight keep no
// signal from being decided, and none of their appends is refused.
func TestSignalsInFloodedRunsSIG2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		// Not in parallel: it takes all processors, and the clusters of other tests would change
		// their leaders.
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		const streams, warm = 4, 500
		ctx, stop := context.WithCancel(n.context())
		defer stop()
		var flowing, producers sync.WaitGroup
		flowing.Add(streams)
		for p := range streams {
			stream, err := n.events.AppendStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			producers.Go(func() {
				for i := 0; ; i++ {
					req := &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{newEvent("Noted", step(fmt.Sprint(p, "-", i)))}}
					if stream.Send(req) != nil {
						return // Recv has the error.
					}
				}
			})
			producers.Go(func() {
				warmed := sync.OnceFunc(flowing.Done)
				defer warmed()
				for got := 1; ; got++ {
					resp, err := stream.Recv()
					if err != nil && ctx.Err() != nil {
						return
					}
					if err != nil || resp.GetStatus().GetCode() != 0 {
						t.Errorf("answer %v, error %v", resp, err)
						return
					}
					if got == warm {
						warmed()
					}
				}
			})
		}
		flowing.Wait()
		for _, signalType := range []string{"PAUSE", "RESUME", "CANCEL"} {
			resp, err := n.signals().SendSignal(n.context(), signal(signalType, signalType))
			if err != nil || outcome(resp) != "ACCEPTED" {
				t.Errorf("decision %v, error %v", resp, err)
			}
		}
		stop()
		producers.Wait()
	})
}
