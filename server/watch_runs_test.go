package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// runsWatcher reads a watch of many runs in the background.
type runsWatcher struct {
	t        testing.TB
	cancel   context.CancelFunc
	messages chan *runlogv1.WatchRunsResponse // closed at the end of the stream
	err      error                            // of the end; read it after messages is closed
}

func (n *node) watchRuns(req *runlogv1.WatchRunsRequest) *runsWatcher {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.t.Cleanup(cancel)
	stream, err := n.projection.WatchRuns(ctx, req)
	if err != nil {
		n.t.Fatal(err)
	}
	w := &runsWatcher{t: n.t, cancel: cancel, messages: make(chan *runlogv1.WatchRunsResponse, 10_000)}
	go w.read(stream)
	return w
}

func (w *runsWatcher) read(stream grpc.ServerStreamingClient[runlogv1.WatchRunsResponse]) {
	defer close(w.messages)
	for {
		m, err := stream.Recv()
		if err != nil {
			w.err = err
			return
		}
		w.messages <- m
	}
}

// next returns the next message, as text: run@lastEventSeq status for a watermark.
func (w *runsWatcher) next() (string, *runlogv1.WatchRunsResponse) {
	w.t.Helper()
	select {
	case m, open := <-w.messages:
		if !open {
			w.t.Fatalf("the watch ended: %v", w.err)
		}
		if m.ResumeToken == "" {
			w.t.Errorf("%v without a resume token", m)
		}
		switch {
		case m.GetCaughtUp() != nil:
			return "caughtUp", m
		case m.GetHeartbeat() != nil:
			return "heartbeat", m
		}
		return fmt.Sprintf("%s@%d %v", m.GetWatermark().RunId, m.GetWatermark().LastEventSeq, m.GetWatermark().Status), m
	case <-time.After(patience):
		w.t.Fatal("no message")
		panic("unreachable")
	}
}

// want reads messages and compares them; it returns the last one.
func (w *runsWatcher) want(texts ...string) *runlogv1.WatchRunsResponse {
	w.t.Helper()
	var last *runlogv1.WatchRunsResponse
	for _, text := range texts {
		got, m := w.next()
		wantEqual(w.t, "message", got, text)
		last = m
	}
	return last
}

func (w *runsWatcher) over() error {
	w.t.Helper()
	for {
		select {
		case _, open := <-w.messages:
			if !open {
				return w.err
			}
		case <-time.After(patience):
			w.t.Fatal("the watch does not end")
		}
	}
}

func plan(id string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.PlanId = id }
}

// TestWatchRunsWATCH2 covers catch-up from a token, live changes, filters, and existing runs.
func TestWatchRunsWATCH2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("a", newEvent("RunStarted"))
		n.append("b", newEvent("RunStarted", plan("other")))
		n.append("a", newEvent("RunCompleted"))

		w := n.watchRuns(&runlogv1.WatchRunsRequest{})
		begin := w.want("caughtUp")
		n.append("c", newEvent("RunStarted"))
		mark := w.want("c@1 RUNNING")
		wantProto(t, "persistedAt", mark.GetWatermark().PersistedAt, n.list("c")[0].PersistedAt)
		n.append("b", newEvent("RunPaused", plan("other")))
		w.want("b@2 PAUSED")

		// Existing runs come first, newest first, then changes. A run that leaves the filter is
		// sent once more.
		there := n.watchRuns(&runlogv1.WatchRunsRequest{IncludeExisting: true})
		cut := there.want("c@1 RUNNING")
		there.want("b@2 PAUSED", "a@2 COMPLETED", "caughtUp")
		running := n.watchRuns(&runlogv1.WatchRunsRequest{Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}, IncludeExisting: true})
		token := running.want("c@1 RUNNING", "caughtUp").ResumeToken
		filtered := n.watchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod", PlanId: "other"})
		filtered.want("caughtUp")
		n.append("d", newEvent("RunQueued"))
		n.append("c", newEvent("RunCompleted"))
		n.append("b", newEvent("RunResumed", plan("other")))
		running.want("c@2 COMPLETED", "b@3 RUNNING")
		filtered.want("b@3 RUNNING")
		if _, err := n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
			RunId: "e", TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{Uri: "s3://p", PlanId: "plan", PlanVersion: "1"},
		}}); err != nil {
			t.Fatal(err)
		}
		w.want("d@1 PENDING", "c@2 COMPLETED", "b@3 RUNNING", "e@0 PENDING")
		n.append("c", newEvent("Noted"))
		w.want("c@3 COMPLETED")

		// Tokens outlive a restart. The rest is each run's newest, in commit order.
		n.restart()
		w = n.watchRuns(&runlogv1.WatchRunsRequest{ResumeToken: begin.ResumeToken})
		w.want("d@1 PENDING", "b@3 RUNNING", "e@0 PENDING", "c@3 COMPLETED", "caughtUp")
		w = n.watchRuns(&runlogv1.WatchRunsRequest{ResumeToken: cut.ResumeToken, IncludeExisting: true})
		// The rest of the list in its current state, and then later changes.
		w.want("b@3 RUNNING", "a@2 COMPLETED", "d@1 PENDING", "b@3 RUNNING", "e@0 PENDING", "c@3 COMPLETED", "caughtUp")
		w = n.watchRuns(&runlogv1.WatchRunsRequest{ResumeToken: token, Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}})
		w.want("b@3 RUNNING", "c@3 COMPLETED", "caughtUp")
		n.append("a", newEvent("Late"))
		n.append("d", newEvent("RunStarted"))
		w.want("d@2 RUNNING")
	})
}

// TestWatchRunsTokensWATCH2: a token of another filter, cluster or kind, a changed token, and a
// token that is too old are refused before the stream begins.
func TestWatchRunsTokensWATCH2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.MaxCatchUp = 50 })
		other := startNode(t)
		n.append("run", newEvent("RunStarted"))
		other.append("run", newEvent("RunStarted"))
		token := n.watchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant"}).want("caughtUp").ResumeToken
		foreign := other.watchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant"}).want("caughtUp").ResumeToken
		domain := rpc.NewTokenDomain("watch of runs", n.server.replica.ClusterID(), "tenant", "", "", "", "0")
		future := domain.Seal(rpc.TokenRuns, binary.AppendUvarint(binary.AppendUvarint(nil, 1<<40), 0))
		bad := []string{"x", "%%", foreign, future, n.watchToken("run", 1), rpc.FormatPosition(1), token + "A", token[:len(token)-4]}
		for i := range token {
			changed := []byte(token)
			changed[i] = "AB"[(i+1)%2]
			if string(changed) != token {
				bad = append(bad, string(changed))
			}
		}
		for _, b := range bad {
			refused(t, n.watchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant", ResumeToken: b}).over(), contract.ReasonResumeTokenInvalid)
		}
		for _, req := range []*runlogv1.WatchRunsRequest{
			{}, {TenantId: "tenant2"}, {ProjectId: "tenant"}, {TenantId: "tenant", Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}},
		} {
			req.ResumeToken = token
			refused(t, n.watchRuns(req).over(), contract.ReasonResumeTokenInvalid)
		}
		n.http("GET", "/v1/runs:watch?resumeToken="+url.QueryEscape(foreign), "").refused(t, contract.ReasonResumeTokenInvalid)
		refused(t, n.watchRuns(&runlogv1.WatchRunsRequest{Status: []runlogv1.RunStatus_Value{77}}).over(), contract.ReasonInvalidArgumentField)
		for i := range 60 {
			n.append("run", newEvent("Noted", step(fmt.Sprint(i))))
		}
		r := refused(t, n.watchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant", ResumeToken: token}).over(), contract.ReasonResumeTokenInvalid)
		if r.metadata["limit"] != "50" || !strings.Contains(r.message, "includeExisting") {
			t.Errorf("too old: %v %q", r.metadata, r.message)
		}
	})
}

// TestWatchRunsHeartbeatWATCH4: the token of an idle watch advances past entries that do not match.
func TestWatchRunsHeartbeatWATCH4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.Heartbeat = 10 * time.Millisecond })
		n.append("run", newEvent("RunStarted"))
		w := n.watchRuns(&runlogv1.WatchRunsRequest{TenantId: "nobody"})
		first := w.want("caughtUp", "heartbeat")
		n.append("run", newEvent("RunCompleted"))
		for {
			if _, m := w.next(); m.ResumeToken != first.ResumeToken {
				break
			}
		}
	})
}

// TestTooManyWatchesOfBothKindsD12: a watch beyond the limit is refused with a retry delay, before
// the stream begins.
func TestTooManyWatchesOfBothKindsD12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		for range 100_000 {
			s, err := n.server.projector.SubscribeRuns(run.Filter{TenantID: "x"}, &watch.Cursor{Position: storage.Position(1)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
		}
		if r := refused(t, n.watchRuns(&runlogv1.WatchRunsRequest{}).over(), contract.ReasonOverloaded); r.retryAfter <= 0 {
			t.Error("no retry delay")
		}
		answer := n.http("GET", "/v1/runs:watch", "", "Accept", "text/event-stream")
		answer.refused(t, contract.ReasonOverloaded)
		if answer.header.Get("Retry-After") == "" {
			t.Error("no Retry-After over HTTP (APP-9)")
		}
	})
}

// TestWatchRunsOverHTTPWATCH4: Server-Sent Events with the token as id, and lines.
func TestWatchRunsOverHTTPWATCH4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.Heartbeat = 20 * time.Millisecond })
		n.append("a", newEvent("RunStarted"))
		s := n.openEvents("/v1/runs:watch?tenantId=tenant&includeExisting=true")
		mark := s.until("watermark")
		wantEqual(t, "run", parseObject(t, []byte(mark.data))["watermark"].(map[string]any)["runId"], any("a"))
		caughtUp := s.until("caughtUp")
		beat := s.until("heartbeat")
		if caughtUp.retry == "" || beat.comments == 0 || beat.id == "" {
			t.Errorf("caughtUp %+v, heartbeat %+v", caughtUp, beat)
		}
		n.append("b", newEvent("RunStarted"))
		live := s.until("watermark")
		n.append("c", newEvent("RunStarted"))
		n.restart()
		s = n.openEvents("/v1/runs:watch?tenantId=tenant&includeExisting=true", "Last-Event-ID", live.id)
		again := s.until("watermark")
		wantEqual(t, "resumed", parseObject(t, []byte(again.data))["watermark"].(map[string]any)["runId"], any("c"))
		n.http("GET", "/v1/runs:watch", "", "Accept", "text/event-stream", "Last-Event-ID", live.id).refused(t, contract.ReasonResumeTokenInvalid)
		n.http("GET", "/v1/runs:watch?status=DONE", "").refused(t, contract.ReasonInvalidArgumentField)
		n.http("POST", "/v1/runs:watch", "{}", "Content-Type", "application/json").refused(t, contract.ReasonMethodNotAllowed)

		resp := n.httpStream(n.context(), "GET", "/v1/runs:watch?status=RUNNING&includeExisting=true", "")
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for _, want := range []string{"watermark", "watermark", "watermark", "caughtUp", "heartbeat"} {
			if !lines.Scan() {
				t.Fatalf("the stream ended before %s: %v", want, lines.Err())
			}
			if result := parseObject(t, lines.Bytes())["result"].(map[string]any); result[want] == nil || result["resumeToken"] == "" {
				t.Errorf("line %v, want %s with a token", result, want)
			}
		}
	})
}

// TestWatchRunsAtTheEndOfTheNode: the stream ends with a reason, and its last token resumes.
func TestWatchRunsAtTheEndOfTheNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		w := n.watchRuns(&runlogv1.WatchRunsRequest{})
		w.want("caughtUp")
		events := n.watch(&runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_EVENT})
		events.until("caughtUp", isCaughtUp)
		if err := n.server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		refused(t, w.over(), contract.ReasonShuttingDown)
		refused(t, events.over(), contract.ReasonShuttingDown)
	})
}
