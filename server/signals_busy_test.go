package server

import (
	"fmt"
	"sync"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestSignalsInFloodedRunsSIG2: streams that have thousands of appends to a run in flight keep no
// signal from being decided, and each stream goes on.
func TestSignalsInFloodedRunsSIG2(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.append("run", newEvent("RunStarted"))
	const streams, warm = 4, 2000
	stop := make(chan struct{})
	var flowing, producers sync.WaitGroup
	flowing.Add(streams)
	for p := range streams {
		stream, err := n.events.AppendStream(n.context())
		if err != nil {
			t.Fatal(err)
		}
		producers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					if err := stream.CloseSend(); err != nil {
						t.Error(err)
					}
					return
				default:
				}
				req := &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{newEvent("Noted", step(fmt.Sprint(p, "-", i)))}}
				if err := stream.Send(req); err != nil {
					t.Error(err)
					return
				}
			}
		})
		producers.Go(func() {
			warmed := sync.OnceFunc(flowing.Done)
			defer warmed()
			for got := 1; ; got++ {
				resp, err := stream.Recv()
				if err != nil {
					return // The producer has ended it.
				}
				if resp.GetStatus().GetCode() != 0 {
					t.Error(resp)
				}
				if got == warm {
					warmed()
				}
			}
		})
	}
	flowing.Wait()
	for i := range 3 {
		resp, err := n.signals().SendSignal(n.context(), signal(fmt.Sprint("s-", i), []string{"PAUSE", "RESUME", "CANCEL"}[i]))
		if err != nil || outcome(resp) != "ACCEPTED" {
			t.Errorf("decision %v, error %v", resp, err)
		}
	}
	close(stop)
	producers.Wait()
}
