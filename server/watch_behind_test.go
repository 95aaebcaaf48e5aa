package server

import (
	"sync"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/testbed/bubble"
)

// TestWatchRunsBehindTheProjectorWATCH1: a watch may resume while the projection is behind, as
// after a crash. It is caught up once it has received everything acknowledged before it, even if
// nothing of that matches. Until then it gets heartbeats (WATCH-4).
func TestWatchRunsBehindTheProjectorWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		log := newHaltingLog("event not allowed by the run's state")
		n := startNode(t, func(o *Options) {
			o.Logger = log.logger()
			o.Heartbeat = 10 * time.Millisecond
		})
		goOn := sync.OnceFunc(func() { close(log.resume) })
		t.Cleanup(goOn)
		n.append("run", newEvent("RunStarted"))
		filters := []*runlogv1.WatchRunsRequest{{}, {TenantId: "nobody"}, {Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_COMPLETED}}}
		for _, f := range filters {
			f.ResumeToken = n.watchRuns(f).want("caughtUp").ResumeToken
		}
		n.append("halt", newEvent("RunResumed")) // not allowed: the projector logs it, and waits
		within(t, "the projector at the event that is not allowed", func() struct{} { return <-log.reached })
		n.append("run", newEvent("RunCompleted"))
		var watchers []*runsWatcher
		for _, f := range filters {
			w := n.watchRuns(f)
			w.want("heartbeat", "heartbeat")
			watchers = append(watchers, w)
		}
		goOn()
		for i, want := range [][]string{{"halt@1 PENDING", "run@2 COMPLETED", "caughtUp"}, {"caughtUp"}, {"run@2 COMPLETED", "caughtUp"}} {
			for _, text := range want {
				got, _ := watchers[i].next()
				for got == "heartbeat" {
					got, _ = watchers[i].next()
				}
				wantEqual(t, "message", got, text)
			}
		}
	})
}
