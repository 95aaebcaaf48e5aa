package server

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
	"runlog/server/rpc"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// watcher reads a watch in the background and checks on the way that its watermarks never go back.
type watcher struct {
	t        testing.TB
	cancel   context.CancelFunc
	messages chan *runlogv1.WatchRunResponse // closed at the end of the stream
	err      error                           // of the end; read it after messages is closed
}

func (n *node) watch(req *runlogv1.WatchRunRequest) *watcher {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.t.Cleanup(cancel)
	stream, err := n.projection.WatchRun(ctx, req)
	if err != nil {
		n.t.Fatal(err)
	}
	w := &watcher{t: n.t, cancel: cancel, messages: make(chan *runlogv1.WatchRunResponse, 10_000)}
	go w.read(stream)
	return w
}

func (w *watcher) read(stream grpc.ServerStreamingClient[runlogv1.WatchRunResponse]) {
	defer close(w.messages)
	var last, highest uint64
	caughtUp := 0
	for {
		m, err := stream.Recv()
		if err != nil {
			w.err = err
			return
		}
		mark := watermarkOf(m)
		if mark == nil { // a snapshot, or events
			w.messages <- m
			continue
		}
		if mark.LastEventSeq < highest {
			w.t.Errorf("%T at %d after one at %d (WATCH-3)", m.Kind, mark.LastEventSeq, highest)
		}
		highest = mark.LastEventSeq
		switch m.Kind.(type) {
		case *runlogv1.WatchRunResponse_Watermark:
			if mark.LastEventSeq < last || mark.LastEventSeq == last && !mark.Stale {
				w.t.Errorf("watermark %d after %d (WATCH-3)", mark.LastEventSeq, last)
			}
			last = mark.LastEventSeq
		case *runlogv1.WatchRunResponse_CaughtUp:
			if caughtUp++; caughtUp > 1 {
				w.t.Errorf("caughtUp for the %d. time", caughtUp)
			}
		}
		if m.ResumeToken == "" {
			w.t.Errorf("%T without a resume token", m.Kind)
		}
		w.messages <- m
	}
}

func watermarkOf(m *runlogv1.WatchRunResponse) *runlogv1.Watermark {
	switch k := m.Kind.(type) {
	case *runlogv1.WatchRunResponse_Watermark:
		return k.Watermark
	case *runlogv1.WatchRunResponse_CaughtUp:
		return k.CaughtUp.Watermark
	default:
		return m.GetHeartbeat().GetWatermark()
	}
}

// until returns the first message that fits.
func (w *watcher) until(what string, fits func(*runlogv1.WatchRunResponse) bool) *runlogv1.WatchRunResponse {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case m, open := <-w.messages:
			if !open {
				w.t.Fatalf("the watch ended before %s: %v", what, w.err)
			}
			if fits(m) {
				return m
			}
		case <-deadline:
			w.t.Fatalf("still not there after %v: %s", patience, what)
		}
	}
}

// over waits for the end of the stream and returns its error.
func (w *watcher) over() error {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, open := <-w.messages:
			if !open {
				return w.err
			}
		case <-deadline:
			w.t.Fatal("the watch does not end")
		}
	}
}

func isCaughtUp(m *runlogv1.WatchRunResponse) bool  { return m.GetCaughtUp() != nil }
func isHeartbeat(m *runlogv1.WatchRunResponse) bool { return m.GetHeartbeat() != nil }
func reaches(seq uint64) func(*runlogv1.WatchRunResponse) bool {
	return func(m *runlogv1.WatchRunResponse) bool { return m.GetWatermark().GetLastEventSeq() == seq }
}

// TestWatchWithoutASeamWATCH1 subscribes while appends go on: watermarks rise (watcher checks
// that), and the last one is reached.
func TestWatchWithoutASeamWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		const writers, each = 4, 60
		n.append("run", newEvent("RunStarted"))
		var appends sync.WaitGroup
		for p := range writers {
			appends.Go(func() {
				for i := range each {
					if _, err := n.tryAppend("run", newEvent("Noted", step(fmt.Sprint(p, "-", i)))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var watchers []*watcher
		for range 20 {
			watchers = append(watchers, n.watch(&runlogv1.WatchRunRequest{RunId: "run"}))
			time.Sleep(time.Millisecond)
		}
		appends.Wait()
		const last = writers*each + 1
		for _, w := range watchers {
			caughtUp := false
			m := w.until("the last watermark", func(m *runlogv1.WatchRunResponse) bool {
				caughtUp = caughtUp || isCaughtUp(m)
				return reaches(last)(m)
			})
			wantEqual(t, "status", m.GetWatermark().Status, runlogv1.RunStatus_RUNNING)
			if !caughtUp {
				w.until("caughtUp", isCaughtUp) // all were there before the watch began
			}
			w.cancel()
			wantEqual(t, "end of a watch that its reader left", status.Code(w.over()), codes.Canceled)
		}
		bubble.Until(t, "no subscription is left", func() bool { return n.metric("runlog_projector_subscriptions") == 0 })
	})
}

func TestWatchResumes(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"), newEvent("StepStarted", step("a")))
		w := n.watch(&runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_WATERMARK})
		first := w.until("the catch-up", reaches(2))
		wantEqual(t, "runId", first.GetWatermark().RunId, "run")
		wantProto(t, "persistedAt", first.GetWatermark().PersistedAt, n.list("run")[1].PersistedAt)
		w.until("caughtUp", isCaughtUp)
		n.append("run", newEvent("StepCompleted", step("a")))
		third := w.until("a live watermark", reaches(3))
		w.cancel()

		// From a token on: nothing again, everything after.
		n.append("run", newEvent("RunCompleted"))
		for _, req := range []*runlogv1.WatchRunRequest{
			{RunId: "run", ResumeToken: third.ResumeToken},
			{RunId: "run", ResumeToken: third.ResumeToken, AfterSeq: 1000},
			{RunId: "run", AfterSeq: 3},
		} {
			w := n.watch(req)
			m := w.until("the first message", func(*runlogv1.WatchRunResponse) bool { return true })
			wantEqual(t, "first watermark", m.GetWatermark().GetLastEventSeq(), 4)
			wantEqual(t, "status", m.GetWatermark().Status, runlogv1.RunStatus_COMPLETED)
			w.until("caughtUp", isCaughtUp)
		}
		// Nothing new: caughtUp at once, and it tells where the run is.
		for _, after := range []uint64{4, 5, 1 << 60} {
			w := n.watch(&runlogv1.WatchRunRequest{RunId: "run", AfterSeq: after})
			m := w.until("the first message", func(*runlogv1.WatchRunResponse) bool { return true })
			wantEqual(t, "caughtUp", m.GetCaughtUp().GetWatermark().GetLastEventSeq(), 4)
		}
		// A token belongs to one run of one cluster.
		id, position := n.server.replica.ClusterID(), rpc.NewTokenDomain("watch of a run", n.server.replica.ClusterID(), "run")
		for _, token := range []string{"x", "%%", rpc.FormatPosition(3), base64.RawURLEncoding.EncodeToString([]byte{byte(rpc.TokenWatch)}), base64.RawURLEncoding.EncodeToString([]byte{byte(rpc.TokenWatch), 3}), "3",
			n.watchToken("run", 3) + "A", n.watchToken("other", 3), n.watchToken("", 3), watchToken(storage.ClusterID{1}, "run", []byte{3}), watchToken(id, "run", nil),
			watchToken(id, "run", []byte{1, 2}), position.Seal(rpc.TokenRuns, []byte{3})} {
			w := n.watch(&runlogv1.WatchRunRequest{RunId: "run", ResumeToken: token})
			refused(t, w.over(), contract.ReasonResumeTokenInvalid)
			n.http("GET", "/v1/runs/run:watch?resumeToken="+strings.ReplaceAll(token, "%", "%25"), "").refused(t, contract.ReasonResumeTokenInvalid)
		}
		refused(t, n.watch(&runlogv1.WatchRunRequest{RunId: "nobody", MustExist: true}).over(), contract.ReasonRunNotFound)
		refused(t, n.watch(&runlogv1.WatchRunRequest{}).over(), contract.ReasonInvalidArgumentField)
		// A token outlives a restart.
		n.restart()
		w = n.watch(&runlogv1.WatchRunRequest{RunId: "run", ResumeToken: first.ResumeToken})
		w.until("the last watermark after a restart", reaches(4))
	})
}

func TestWatchHeartbeatWATCH4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.Heartbeat = 10 * time.Millisecond })
		n.append("run", newEvent("RunStarted"))
		w := n.watch(&runlogv1.WatchRunRequest{RunId: "run"})
		for range 3 {
			m := w.until("a heartbeat", isHeartbeat)
			wantEqual(t, "watermark", m.GetHeartbeat().Watermark.LastEventSeq, 1)
			wantEqual(t, "status", m.GetHeartbeat().Watermark.Status, runlogv1.RunStatus_RUNNING)
			wantEqual(t, "resume token", m.ResumeToken, n.watchToken("run", 1))
		}
		n.append("run", newEvent("RunCompleted"))
		w.until("a live watermark between heartbeats", reaches(2))
		m := w.until("a heartbeat", isHeartbeat)
		wantEqual(t, "watermark", m.GetHeartbeat().Watermark.LastEventSeq, 2)
	})
}

// TestWatchDrainingPRJ9 shows the substatus in watermarks.
func TestWatchDrainingPRJ9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"), newEvent("StepStarted", step("a")))
		w := n.watch(&runlogv1.WatchRunRequest{RunId: "run"})
		w.until("caughtUp", isCaughtUp)
		n.append("run", newEvent("RunPaused", payload(`{"draining":true}`)))
		m := w.until("the pause", reaches(3))
		wantEqual(t, "paused", fmt.Sprint(m.GetWatermark().Status, " ", m.GetWatermark().GetSubstatus()), "PAUSED DRAINING")
		n.append("run", newEvent("StepCompleted", step("a")))
		m = w.until("the step's end", reaches(4))
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
		n := startNode(t, func(o *Options) {
			o.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			o.Heartbeat = 20 * time.Millisecond
		})
		n.append("run", newEvent("RunStarted"), newEvent("StepStarted", step("a")), newEvent("RunPaused", payload(`{"draining":true}`)))
		s := n.snapshot("run")
		wantEqual(t, "substatus", s.GetSubstatus(), "DRAINING")
		w := n.watch(&runlogv1.WatchRunRequest{RunId: "run"})
		m := w.until("caughtUp", isCaughtUp)
		wantEqual(t, "substatus in a watch", m.GetCaughtUp().Watermark.GetSubstatus(), "DRAINING")
		ahead.Store(int64(6 * time.Minute))
		late := n.snapshot("run")
		if late.Substatus != nil || late.Message != nil || late.Status != runlogv1.RunStatus_PAUSED {
			t.Errorf("after the timeout: %v %q %q", late.Status, late.GetSubstatus(), late.GetMessage())
		}
		wantEqual(t, "digest does not depend on the time (PRJ-1)", late.Digest, s.Digest)
		w.until("a heartbeat that says so", func(m *runlogv1.WatchRunResponse) bool {
			return isHeartbeat(m) && m.GetHeartbeat().Watermark.Substatus == nil
		})
	})
}

// TestWatchBehindTheProjectorWATCH3 stops the projector while a watch begins. The watch is ahead of
// the next published snapshot and must not go back to it.
func TestWatchBehindTheProjectorWATCH3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		log := newHaltingLog("event not allowed by the run's state")
		n := startNode(t, func(o *Options) {
			o.Logger = log.logger()
			o.Heartbeat = 20 * time.Millisecond
		})
		n.append("run", newEvent("RunStarted"))
		n.append("halt", newEvent("RunResumed")) // not allowed: the projector logs it, and waits
		within(t, "the projector at the first event that is not allowed", func() struct{} { return <-log.reached })
		n.append("run", newEvent("StepStarted", step("a")))
		n.append("halt", newEvent("RunResumed", attempt(2)))
		n.append("run", newEvent("RunCompleted"))

		w := n.watch(&runlogv1.WatchRunRequest{RunId: "run"})
		m := w.until("caughtUp", isCaughtUp)
		wantEqual(t, "caughtUp does not wait for the projector", m.GetCaughtUp().Watermark.LastEventSeq, 3)
		log.resume <- struct{}{}
		within(t, "the projector at the second", func() struct{} { return <-log.reached })
		for range 3 {
			m := w.until("a heartbeat", isHeartbeat)
			wantEqual(t, "watermark", m.GetHeartbeat().Watermark.LastEventSeq, 3)
			wantEqual(t, "status", m.GetHeartbeat().Watermark.Status, runlogv1.RunStatus_COMPLETED)
		}
		close(log.resume)
		n.append("run", newEvent("Noted"))
		w.until("the next watermark", reaches(4))
	})
}

// TestWatchConflatesWATCH3: a reader that stops reading slows no other reader down, and then gets
// the newest state.
func TestWatchConflatesWATCH3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		// Windows as small as they get, so that the stream is full after about a thousand messages.
		conn := n.dialWith(grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		stream, err := runlogv1.NewProjectionServiceClient(conn).WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: "run"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		const last = 2001
		for i := 0; i < last-1; i += 5 {
			n.append("run", steps(fmt.Sprint(i, "-"), 5)...)
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
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		for range 100_000 {
			s, err := n.server.projector.Subscribe("another", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
		}
		r := refused(t, n.watch(&runlogv1.WatchRunRequest{RunId: "run"}).over(), contract.ReasonOverloaded)
		if r.retryAfter <= 0 {
			t.Error("no retry delay")
		}
		answer := n.http("GET", "/v1/runs/run:watch", "")
		answer.refused(t, contract.ReasonOverloaded)
		if answer.header.Get("Retry-After") == "" {
			t.Error("no Retry-After over HTTP (APP-9)")
		}
	})
}

// TestWatchAtTheEndOfTheNode: streams end promptly, with a reason and a token to resume from.
func TestWatchAtTheEndOfTheNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		var watchers []*watcher
		for range 30 {
			w := n.watch(&runlogv1.WatchRunRequest{RunId: "run"})
			w.until("caughtUp", isCaughtUp)
			watchers = append(watchers, w)
		}
		sse := n.openEvents("/v1/runs/run:watch")
		sse.until("caughtUp")
		began := time.Now()
		if err := n.server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took >= rpc.DrainTimeout {
			t.Errorf("Close took %v: it waited for the streams", took)
		}
		for _, w := range watchers {
			refused(t, w.over(), contract.ReasonShuttingDown)
		}
		e := sse.until("error")
		if !strings.Contains(e.data, "SHUTTING_DOWN") || parseObject(t, []byte(e.data))["code"] == nil {
			t.Errorf("last event of the stream: %s; want a google.rpc.Status", e.data)
		}
	})
}

// TestWatchOfANodeThatStops: a stream that begins while the node drains ends with the same reason
// as earlier streams. Its client then resumes at another node; after a cancellation it would stop.
func TestWatchOfANodeThatStops(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		n.server.stop()
		for view := range runlogv1.WatchView_Kind_name {
			refused(t, n.watch(&runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_Kind(view)}).over(), contract.ReasonShuttingDown)
		}
		stream, err := n.projection.WatchRuns(t.Context(), &runlogv1.WatchRunsRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
		refused(t, err, contract.ReasonShuttingDown)
	})
}
