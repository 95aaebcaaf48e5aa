package watch_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/testbed/bubble"
)

func isHeartbeat(m *runlogv1.WatchRunResponse) bool { return m.GetHeartbeat() != nil }

// TestWatchWithoutASeamWATCH1 subscribes while appends go on: watermarks rise (watcher checks
// that), and the last one is reached.
func TestWatchWithoutASeamWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		const writers, each = 4, 60
		n.Append("run", servertest.NewEvent("RunStarted"))
		var appends sync.WaitGroup
		for p := range writers {
			appends.Go(func() {
				for i := range each {
					if _, err := n.TryAppend("run", servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(p, "-", i)))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var watchers []*servertest.Watcher
		for range 20 {
			watchers = append(watchers, n.Watch(&runlogv1.WatchRunRequest{RunId: "run"}))
			time.Sleep(time.Millisecond)
		}
		appends.Wait()
		const last = writers*each + 1
		for _, w := range watchers {
			caughtUp := false
			m := w.Until("the last watermark", func(m *runlogv1.WatchRunResponse) bool {
				caughtUp = caughtUp || servertest.IsCaughtUp(m)
				return servertest.Reaches(last)(m)
			})
			servertest.WantEqual(t, "status", m.GetWatermark().Status, runlogv1.RunStatus_RUNNING)
			if !caughtUp {
				w.Until("caughtUp", servertest.IsCaughtUp) // all were there before the watch began
			}
			w.Cancel()
			servertest.WantEqual(t, "end of a watch that its reader left", status.Code(w.Over()), codes.Canceled)
		}
		bubble.Until(t, "no subscription is left", func() bool { return n.Metric("runlog_projector_subscriptions") == 0 })
	})
}

func TestWatchResumes(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")))
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_WATERMARK})
		first := w.Until("the catch-up", servertest.Reaches(2))
		servertest.WantEqual(t, "runId", first.GetWatermark().RunId, "run")
		servertest.WantProto(t, "persistedAt", first.GetWatermark().PersistedAt, n.List("run")[1].PersistedAt)
		w.Until("caughtUp", servertest.IsCaughtUp)
		n.Append("run", servertest.NewEvent("StepCompleted", servertest.Step("a")))
		third := w.Until("a live watermark", servertest.Reaches(3))
		w.Cancel()

		// From a token on: nothing again, everything after.
		n.Append("run", servertest.NewEvent("RunCompleted"))
		for _, req := range []*runlogv1.WatchRunRequest{
			{RunId: "run", ResumeToken: third.ResumeToken},
			{RunId: "run", ResumeToken: third.ResumeToken, AfterSeq: 1000},
			{RunId: "run", AfterSeq: 3},
		} {
			w := n.Watch(req)
			m := w.Until("the first message", func(*runlogv1.WatchRunResponse) bool { return true })
			servertest.WantEqual(t, "first watermark", m.GetWatermark().GetLastEventSeq(), 4)
			servertest.WantEqual(t, "status", m.GetWatermark().Status, runlogv1.RunStatus_COMPLETED)
			w.Until("caughtUp", servertest.IsCaughtUp)
		}
		// Nothing new: caughtUp at once, and it tells where the run is.
		for _, after := range []uint64{4, 5, 1 << 60} {
			w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run", AfterSeq: after})
			m := w.Until("the first message", func(*runlogv1.WatchRunResponse) bool { return true })
			servertest.WantEqual(t, "caughtUp", m.GetCaughtUp().GetWatermark().GetLastEventSeq(), 4)
		}
		// A token belongs to one run of one cluster.
		id, position := n.Incarnation(), rpc.NewTokenDomain("watch of a run", n.Incarnation(), "run")
		for _, token := range []string{"x", "%%", n.Position(3), base64.RawURLEncoding.EncodeToString([]byte{byte(rpc.TokenWatch)}), base64.RawURLEncoding.EncodeToString([]byte{byte(rpc.TokenWatch), 3}), "3",
			n.WatchToken("run", 3) + "A", n.WatchToken("other", 3), n.WatchToken("", 3), servertest.WatchToken(storage.Incarnation{1}, "run", []byte{3}), servertest.WatchToken(id, "run", nil),
			servertest.WatchToken(id, "run", []byte{1, 2}), position.Seal(rpc.TokenRuns, []byte{3})} {
			w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run", ResumeToken: token})
			servertest.Refused(t, w.Over(), contract.ReasonResumeTokenInvalid)
			n.HTTP("GET", "/v1/runs/run:watch?resumeToken="+strings.ReplaceAll(token, "%", "%25"), "").Refused(t, contract.ReasonResumeTokenInvalid)
		}
		servertest.Refused(t, n.Watch(&runlogv1.WatchRunRequest{RunId: "nobody", MustExist: true}).Over(), contract.ReasonRunNotFound)
		servertest.Refused(t, n.Watch(&runlogv1.WatchRunRequest{}).Over(), contract.ReasonInvalidArgumentField)
		// A token outlives a restart.
		n.Restart()
		w = n.Watch(&runlogv1.WatchRunRequest{RunId: "run", ResumeToken: first.ResumeToken})
		w.Until("the last watermark after a restart", servertest.Reaches(4))
	})
}

func TestWatchHeartbeatWATCH4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 10 * time.Millisecond })
		n.Append("run", servertest.NewEvent("RunStarted"))
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run"})
		for range 3 {
			m := w.Until("a heartbeat", isHeartbeat)
			servertest.WantEqual(t, "watermark", m.GetHeartbeat().Watermark.LastEventSeq, 1)
			servertest.WantEqual(t, "status", m.GetHeartbeat().Watermark.Status, runlogv1.RunStatus_RUNNING)
			servertest.WantEqual(t, "resume token", m.ResumeToken, n.WatchToken("run", 1))
		}
		n.Append("run", servertest.NewEvent("RunCompleted"))
		w.Until("a live watermark between heartbeats", servertest.Reaches(2))
		m := w.Until("a heartbeat", isHeartbeat)
		servertest.WantEqual(t, "watermark", m.GetHeartbeat().Watermark.LastEventSeq, 2)
	})
}

// TestWatchDrainingPRJ9 shows the substatus in watermarks.
func TestWatchDrainingPRJ9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")))
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run"})
		w.Until("caughtUp", servertest.IsCaughtUp)
		n.Append("run", servertest.NewEvent("RunPaused", servertest.Payload(`{"draining":true}`)))
		m := w.Until("the pause", servertest.Reaches(3))
		servertest.WantEqual(t, "paused", fmt.Sprint(m.GetWatermark().Status, " ", m.GetWatermark().GetSubstatus()), "PAUSED DRAINING")
		n.Append("run", servertest.NewEvent("StepCompleted", servertest.Step("a")))
		m = w.Until("the step's end", servertest.Reaches(4))
		if m.GetWatermark().Substatus != nil {
			t.Errorf("substatus %q with nothing in flight", m.GetWatermark().GetSubstatus())
		}
	})
}

// TestDrainTimeoutPRJ9: a pause that drains for too long loses the substatus DRAINING.
func TestDrainTimeoutPRJ9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		n := servertest.Start(t, func(o *server.Options) {
			o.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			o.Heartbeat = 20 * time.Millisecond
		})
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")), servertest.NewEvent("RunPaused", servertest.Payload(`{"draining":true}`)))
		s := n.Snapshot("run")
		servertest.WantEqual(t, "substatus", s.GetSubstatus(), "DRAINING")
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run"})
		m := w.Until("caughtUp", servertest.IsCaughtUp)
		servertest.WantEqual(t, "substatus in a watch", m.GetCaughtUp().Watermark.GetSubstatus(), "DRAINING")
		ahead.Store(int64(6 * time.Minute))
		late := n.Snapshot("run")
		if late.Substatus != nil || late.Message != nil || late.Status != runlogv1.RunStatus_PAUSED {
			t.Errorf("after the timeout: %v %q %q", late.Status, late.GetSubstatus(), late.GetMessage())
		}
		servertest.WantEqual(t, "digest does not depend on the time (PRJ-1)", late.Digest, s.Digest)
		w.Until("a heartbeat that says so", func(m *runlogv1.WatchRunResponse) bool {
			return isHeartbeat(m) && m.GetHeartbeat().Watermark.Substatus == nil
		})
	})
}

// TestWatchBehindTheProjectorWATCH3 stops the projector while a watch begins. The watch is ahead of
// the next published snapshot and must not go back to it.
func TestWatchBehindTheProjectorWATCH3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		log := servertest.NewHaltingLog("event not allowed by the run's state")
		n := servertest.Start(t, func(o *server.Options) {
			o.Logger = log.Logger()
			o.Heartbeat = 20 * time.Millisecond
		})
		n.Append("run", servertest.NewEvent("RunStarted"))
		// Not allowed: the projector logs it, and waits.
		n.Append("halt", servertest.NewEvent("RunResumed"))
		servertest.Within(t, "the projector at the first event that is not allowed", func() struct{} { return <-log.Reached })
		n.Append("run", servertest.NewEvent("StepStarted", servertest.Step("a")))
		n.Append("halt", servertest.NewEvent("RunResumed", servertest.Attempt(2)))
		n.Append("run", servertest.NewEvent("RunCompleted"))

		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run"})
		m := w.Until("caughtUp", servertest.IsCaughtUp)
		servertest.WantEqual(t, "caughtUp does not wait for the projector", m.GetCaughtUp().Watermark.LastEventSeq, 3)
		log.Resume <- struct{}{}
		servertest.Within(t, "the projector at the second", func() struct{} { return <-log.Reached })
		for range 3 {
			m := w.Until("a heartbeat", isHeartbeat)
			servertest.WantEqual(t, "watermark", m.GetHeartbeat().Watermark.LastEventSeq, 3)
			servertest.WantEqual(t, "status", m.GetHeartbeat().Watermark.Status, runlogv1.RunStatus_COMPLETED)
		}
		close(log.Resume)
		n.Append("run", servertest.NewEvent("Noted"))
		w.Until("the next watermark", servertest.Reaches(4))
	})
}

// TestWatchConflatesWATCH3: a reader that stops reading slows no other reader down, and then gets
// the newest state.
func TestWatchConflatesWATCH3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		// Windows as small as they get, so that the stream is full after about a thousand messages.
		conn := n.DialWith(grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		stream, err := runlogv1.NewProjectionServiceClient(conn).WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: "run"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		const last = 2001
		for i := 0; i < last-1; i += 5 {
			n.Append("run", servertest.Steps(fmt.Sprint(i, "-"), 5)...)
		}
		got, received := uint64(0), 0
		for got < last {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if mark := m.GetWatermark(); mark != nil {
				if mark.LastEventSeq <= got {
					t.Fatalf("watermark %d after %d", mark.LastEventSeq, got)
				}
				got = mark.LastEventSeq
				received++
			}
		}
		t.Logf("%d watermarks of %d appends", received, (last-1)/5)
	})
}

// TestTooManyWatchesD12 fills the bound on subscriptions.
func TestTooManyWatchesD12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for range 100_000 {
			s, err := n.Server.Internals().Projector.Subscribe("another", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
		}
		r := servertest.Refused(t, n.Watch(&runlogv1.WatchRunRequest{RunId: "run"}).Over(), contract.ReasonOverloaded)
		if r.RetryAfter <= 0 {
			t.Error("no retry delay")
		}
		answer := n.HTTP("GET", "/v1/runs/run:watch", "")
		answer.Refused(t, contract.ReasonOverloaded)
		if answer.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After over HTTP (APP-9)")
		}
	})
}

// TestWatchAtTheEndOfTheNode: streams end promptly, with a reason and a token to resume from.
func TestWatchAtTheEndOfTheNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		var watchers []*servertest.Watcher
		for range 30 {
			w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run"})
			w.Until("caughtUp", servertest.IsCaughtUp)
			watchers = append(watchers, w)
		}
		sse := n.OpenEvents("/v1/runs/run:watch")
		sse.Until("caughtUp")
		began := time.Now()
		if err := n.Server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took >= rpc.DrainTimeout {
			t.Errorf("Close took %v: it waited for the streams", took)
		}
		for _, w := range watchers {
			servertest.Refused(t, w.Over(), contract.ReasonShuttingDown)
		}
		e := sse.Until("error")
		if !strings.Contains(e.Data, "SHUTTING_DOWN") || servertest.ParseObject(t, []byte(e.Data))["code"] == nil {
			t.Errorf("last event of the stream: %s; want a google.rpc.Status", e.Data)
		}
	})
}
