package watch_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/testbed/bubble"
)

func plan(id string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.PlanId = id }
}

// TestWatchRunsWATCH2 covers catch-up from a token, live changes, filters, and existing runs.
func TestWatchRunsWATCH2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("a", servertest.NewEvent("RunStarted"))
		n.Append("b", servertest.NewEvent("RunStarted", plan("other")))
		n.Append("a", servertest.NewEvent("RunCompleted"))

		w := n.WatchRuns(&runlogv1.WatchRunsRequest{})
		begin := w.Want("caughtUp")
		n.Append("c", servertest.NewEvent("RunStarted"))
		mark := w.Want("c@1 RUNNING")
		servertest.WantProto(t, "persistedAt", mark.GetWatermark().PersistedAt, n.List("c")[0].PersistedAt)
		n.Append("b", servertest.NewEvent("RunPaused", plan("other")))
		w.Want("b@2 PAUSED")

		// Existing runs come first, newest first, then changes. A run that leaves the filter is
		// sent once more.
		there := n.WatchRuns(&runlogv1.WatchRunsRequest{IncludeExisting: true})
		cut := there.Want("c@1 RUNNING")
		there.Want("b@2 PAUSED", "a@2 COMPLETED", "caughtUp")
		running := n.WatchRuns(&runlogv1.WatchRunsRequest{Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}, IncludeExisting: true})
		token := running.Want("c@1 RUNNING", "caughtUp").ResumeToken
		filtered := n.WatchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod", PlanId: "other"})
		filtered.Want("caughtUp")
		n.Append("d", servertest.NewEvent("RunQueued"))
		n.Append("c", servertest.NewEvent("RunCompleted"))
		n.Append("b", servertest.NewEvent("RunResumed", plan("other")))
		running.Want("c@2 COMPLETED", "b@3 RUNNING")
		filtered.Want("b@3 RUNNING")
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
			RunId: "e", TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{Uri: "s3://p", PlanId: "plan", PlanVersion: "1"},
		}}); err != nil {
			t.Fatal(err)
		}
		w.Want("d@1 PENDING", "c@2 COMPLETED", "b@3 RUNNING", "e@0 PENDING")
		n.Append("c", servertest.NewEvent("Noted"))
		w.Want("c@3 COMPLETED")

		// Tokens outlive a restart. The rest is each run's newest, in commit order.
		n.Restart()
		w = n.WatchRuns(&runlogv1.WatchRunsRequest{ResumeToken: begin.ResumeToken})
		w.Want("d@1 PENDING", "b@3 RUNNING", "e@0 PENDING", "c@3 COMPLETED", "caughtUp")
		w = n.WatchRuns(&runlogv1.WatchRunsRequest{ResumeToken: cut.ResumeToken, IncludeExisting: true})
		// The rest of the list in its current state, and then later changes.
		w.Want("b@3 RUNNING", "a@2 COMPLETED", "d@1 PENDING", "b@3 RUNNING", "e@0 PENDING", "c@3 COMPLETED", "caughtUp")
		w = n.WatchRuns(&runlogv1.WatchRunsRequest{ResumeToken: token, Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}})
		w.Want("b@3 RUNNING", "c@3 COMPLETED", "caughtUp")
		n.Append("a", servertest.NewEvent("Late"))
		n.Append("d", servertest.NewEvent("RunStarted"))
		w.Want("d@2 RUNNING")
	})
}

// TestWatchRunsTokensWATCH2: a token of another filter, cluster or kind, a changed token, and a
// token that is too old are refused before the stream begins.
func TestWatchRunsTokensWATCH2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxCatchUp = 50 })
		other := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		other.Append("run", servertest.NewEvent("RunStarted"))
		token := n.WatchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant"}).Want("caughtUp").ResumeToken
		foreign := other.WatchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant"}).Want("caughtUp").ResumeToken
		domain := rpc.NewTokenDomain("watch of runs", n.Incarnation(), "tenant", "", "", "", "0")
		future := domain.Seal(rpc.TokenRuns, binary.AppendUvarint(binary.AppendUvarint(nil, 1<<40), 0))
		bad := []string{"x", "%%", foreign, future, n.WatchToken("run", 1), n.Position(1), token + "A", token[:len(token)-4]}
		for i := range token {
			changed := []byte(token)
			changed[i] = "AB"[(i+1)%2]
			if string(changed) != token {
				bad = append(bad, string(changed))
			}
		}
		for _, b := range bad {
			servertest.Refused(t, n.WatchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant", ResumeToken: b}).Over(), contract.ReasonResumeTokenInvalid)
		}
		for _, req := range []*runlogv1.WatchRunsRequest{
			{}, {TenantId: "tenant2"}, {ProjectId: "tenant"}, {TenantId: "tenant", Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}},
		} {
			req.ResumeToken = token
			servertest.Refused(t, n.WatchRuns(req).Over(), contract.ReasonResumeTokenInvalid)
		}
		n.HTTP("GET", "/v1/runs:watch?resumeToken="+url.QueryEscape(foreign), "").Refused(t, contract.ReasonResumeTokenInvalid)
		servertest.Refused(t, n.WatchRuns(&runlogv1.WatchRunsRequest{Status: []runlogv1.RunStatus_Value{77}}).Over(), contract.ReasonInvalidArgumentField)
		for i := range 60 {
			n.Append("run", servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(i))))
		}
		r := servertest.Refused(t, n.WatchRuns(&runlogv1.WatchRunsRequest{TenantId: "tenant", ResumeToken: token}).Over(), contract.ReasonResumeTokenInvalid)
		if r.Metadata["limit"] != "50" || !strings.Contains(r.Message, "includeExisting") {
			t.Errorf("too old: %v %q", r.Metadata, r.Message)
		}
	})
}

// TestWatchRunsHeartbeatWATCH4: the token of an idle watch advances past entries that do not match.
func TestWatchRunsHeartbeatWATCH4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 10 * time.Millisecond })
		n.Append("run", servertest.NewEvent("RunStarted"))
		w := n.WatchRuns(&runlogv1.WatchRunsRequest{TenantId: "nobody"})
		first := w.Want("caughtUp", "heartbeat")
		n.Append("run", servertest.NewEvent("RunCompleted"))
		for {
			if _, m := w.Next(); m.ResumeToken != first.ResumeToken {
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
		n := servertest.Start(t)
		for range 100_000 {
			s, err := n.Server.Internals().Projector.SubscribeRuns(run.Filter{TenantID: "x"}, &watch.Cursor{Position: storage.Position(1)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
		}
		if r := servertest.Refused(t, n.WatchRuns(&runlogv1.WatchRunsRequest{}).Over(), contract.ReasonOverloaded); r.RetryAfter <= 0 {
			t.Error("no retry delay")
		}
		answer := n.HTTP("GET", "/v1/runs:watch", "", "Accept", "text/event-stream")
		answer.Refused(t, contract.ReasonOverloaded)
		if answer.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After over HTTP (APP-9)")
		}
	})
}

// TestWatchRunsOverHTTPWATCH4: Server-Sent Events with the token as id, and lines.
func TestWatchRunsOverHTTPWATCH4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 20 * time.Millisecond })
		n.Append("a", servertest.NewEvent("RunStarted"))
		s := n.OpenEvents("/v1/runs:watch?tenantId=tenant&includeExisting=true")
		mark := s.Until("watermark")
		servertest.WantEqual(t, "run", servertest.ParseObject(t, []byte(mark.Data))["watermark"].(map[string]any)["runId"], any("a"))
		caughtUp := s.Until("caughtUp")
		beat := s.Until("heartbeat")
		if caughtUp.Retry == "" || beat.Comments == 0 || beat.ID == "" {
			t.Errorf("caughtUp %+v, heartbeat %+v", caughtUp, beat)
		}
		n.Append("b", servertest.NewEvent("RunStarted"))
		live := s.Until("watermark")
		n.Append("c", servertest.NewEvent("RunStarted"))
		n.Restart()
		s = n.OpenEvents("/v1/runs:watch?tenantId=tenant&includeExisting=true", "Last-Event-ID", live.ID)
		again := s.Until("watermark")
		servertest.WantEqual(t, "resumed", servertest.ParseObject(t, []byte(again.Data))["watermark"].(map[string]any)["runId"], any("c"))
		n.HTTP("GET", "/v1/runs:watch", "", "Accept", "text/event-stream", "Last-Event-ID", live.ID).Refused(t, contract.ReasonResumeTokenInvalid)
		n.HTTP("GET", "/v1/runs:watch?status=DONE", "").Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP("POST", "/v1/runs:watch", "{}", "Content-Type", "application/json").Refused(t, contract.ReasonMethodNotAllowed)

		resp := n.HTTPStream(n.Context(), "GET", "/v1/runs:watch?status=RUNNING&includeExisting=true", "")
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for _, want := range []string{"watermark", "watermark", "watermark", "caughtUp", "heartbeat"} {
			if !lines.Scan() {
				t.Fatalf("the stream ended before %s: %v", want, lines.Err())
			}
			if result := servertest.ParseObject(t, lines.Bytes())["result"].(map[string]any); result[want] == nil || result["resumeToken"] == "" {
				t.Errorf("line %v, want %s with a token", result, want)
			}
		}
	})
}

// TestWatchRunsAtTheEndOfTheNode: the stream ends with a reason, and its last token resumes.
func TestWatchRunsAtTheEndOfTheNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		w := n.WatchRuns(&runlogv1.WatchRunsRequest{})
		w.Want("caughtUp")
		events := n.Watch(&runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_EVENT})
		events.Until("caughtUp", servertest.IsCaughtUp)
		if err := n.Server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		servertest.Refused(t, w.Over(), contract.ReasonShuttingDown)
		servertest.Refused(t, events.Over(), contract.ReasonShuttingDown)
	})
}
