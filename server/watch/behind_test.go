package watch_test

import (
	"sync"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestWatchRunsBehindTheProjectorWATCH1: a watch may resume while the projection is behind, as
// after a crash. It is caught up once it has received everything acknowledged before it, even if
// nothing of that matches. Until then it gets heartbeats (WATCH-4).
func TestWatchRunsBehindTheProjectorWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		log := servertest.NewHaltingLog("event not allowed by the run's state")
		n := servertest.Start(t, func(o *server.Options) {
			o.Logger = log.Logger()
			o.Heartbeat = 10 * time.Millisecond
		})
		goOn := sync.OnceFunc(func() { close(log.Resume) })
		t.Cleanup(goOn)
		n.Append("run", servertest.NewEvent("RunStarted"))
		filters := []*runlogv1.WatchRunsRequest{{}, {TenantId: "nobody"}, {Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_COMPLETED}}}
		for _, f := range filters {
			f.ResumeToken = n.WatchRuns(f).Want("caughtUp").ResumeToken
		}
		// Not allowed: the projector logs it, and waits.
		n.Append("halt", servertest.NewEvent("RunResumed"))
		servertest.Within(t, "the projector at the event that is not allowed", func() struct{} { return <-log.Reached })
		n.Append("run", servertest.NewEvent("RunCompleted"))
		var watchers []*servertest.RunsWatcher
		for _, f := range filters {
			w := n.WatchRuns(f)
			w.Want("heartbeat", "heartbeat")
			watchers = append(watchers, w)
		}
		goOn()
		for i, want := range [][]string{{"halt@1 PENDING", "run@2 COMPLETED", "caughtUp"}, {"caughtUp"}, {"run@2 COMPLETED", "caughtUp"}} {
			for _, text := range want {
				got, _ := watchers[i].Next()
				for got == "heartbeat" {
					got, _ = watchers[i].Next()
				}
				servertest.WantEqual(t, "message", got, text)
			}
		}
	})
}
