package signals_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// slowLog is a disk that takes a time to sync the log.
func slowLog(disk vfs.FS, takes time.Duration) vfs.FS {
	return errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && strings.HasSuffix(op.Path, ".wal") {
			time.Sleep(takes)
		}
		return nil
	}))
}

// TestSignalsInFloodedRunsSIG2: streams that have thousands of appends to a run in flight keep no
// signal from being decided, and none of their appends is refused.
func TestSignalsInFloodedRunsSIG2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.FS = slowLog(o.FS, 5*time.Millisecond) })
		n.Append("run", servertest.NewEvent("RunStarted"))
		// Without a pause, a producer would keep fake time from passing. With it, the four send
		// 400,000 events a second, of which 2,000 are in flight while the log is synced.
		const streams, warm = 4, 500
		pause := 10 * time.Microsecond
		if testing.Short() {
			pause *= 10
		}
		ctx, stop := context.WithCancel(n.Context())
		defer stop()
		var flowing, producers sync.WaitGroup
		flowing.Add(streams)
		for p := range streams {
			stream, err := n.Events.AppendStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			producers.Go(func() {
				for i := 0; ; i++ {
					req := &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(p, "-", i)))}}
					if stream.Send(req) != nil {
						return // Recv has the error.
					}
					time.Sleep(pause)
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
			resp, err := signals(n).SendSignal(n.Context(), signal(signalType, signalType))
			if err != nil || outcome(resp) != "ACCEPTED" {
				t.Errorf("decision %v, error %v", resp, err)
			}
		}
		stop()
		producers.Wait()
	})
}
