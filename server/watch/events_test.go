package watch_test

import (
	"bufio"
	"context"
	"fmt"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

func TestServerSentEventsWATCH4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 20 * time.Millisecond })
		n.Append("run:1/é", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")))
		target := servertest.RunPath("run:1/é", ":watch")
		s := n.OpenEvents(target)
		servertest.WantEqual(t, "Cache-Control", fmt.Sprint(s.Header["Cache-Control"]), "[no-cache]")
		mark := s.Until("watermark")
		m := servertest.ParseObject(t, []byte(mark.Data))
		servertest.WantEqual(t, "data", fmt.Sprint(m["watermark"].(map[string]any)["lastEventSeq"], m["watermark"].(map[string]any)["status"]), "2RUNNING")
		servertest.WantEqual(t, "id is the resume token", mark.ID, m["resumeToken"].(string))
		caughtUp := s.Until("caughtUp")
		if caughtUp.Retry == "" {
			t.Error("no retry")
		}
		beat := s.Until("heartbeat")
		if beat.Comments == 0 || beat.ID == "" {
			t.Errorf("heartbeat: %+v, want a comment ping and an id", beat)
		}
		n.Append("run:1/é", servertest.NewEvent("RunCompleted"))
		live := s.Until("watermark")
		servertest.WantEqual(t, "live", fmt.Sprint(servertest.ParseObject(t, []byte(live.Data))["watermark"].(map[string]any)["lastEventSeq"]), "3")

		// A reconnecting browser sends the last id, which takes precedence over the address.
		s = n.OpenEvents(target+"?afterSeq=0&resumeToken="+live.ID, "Last-Event-ID", mark.ID)
		again := s.Until("watermark")
		servertest.WantEqual(t, "resumed", fmt.Sprint(servertest.ParseObject(t, []byte(again.Data))["watermark"].(map[string]any)["lastEventSeq"]), "3")
		s = n.OpenEvents(target, "Last-Event-ID", live.ID)
		servertest.WantEqual(t, "nothing new", (<-s.Received).Name, "caughtUp")

		// A refusal before the stream begins is answered like any other call.
		n.HTTP("GET", "/v1/runs/nobody:watch?mustExist=true", "", "Accept", "text/event-stream").Refused(t, contract.ReasonRunNotFound)
		n.HTTP("GET", target, "", "Accept", "text/event-stream", "Last-Event-ID", "nonsense").Refused(t, contract.ReasonResumeTokenInvalid)
		n.HTTP("GET", target+"?view=NOTHING", "", "Accept", "text/event-stream").Refused(t, contract.ReasonInvalidArgumentField)

		// A whole run as events.
		s = n.OpenEvents(servertest.RunPath("run:1/é", "/events:read"))
		batch := servertest.ParseObject(t, []byte(s.Until("events").Data))
		servertest.WantEqual(t, "events", len(batch["events"].([]any)), 3)
		// A unary call answers with JSON, also to a browser that accepts events.
		n.HTTP("GET", servertest.RunPath("run:1/é", "/snapshot"), "", "Accept", "text/event-stream, */*").OK(t)
		n.Append("x:watch", servertest.NewEvent("RunStarted"))
		n.HTTP("GET", "/v1/runs/x%3Awatch", "", "Accept", "text/event-stream").OK(t)
	})
}

// TestNDJSON is what other clients get: one JSON object a line.
func TestNDJSON(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 20 * time.Millisecond })
		n.Append("run", servertest.NewEvent("RunStarted"))
		ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
		defer cancel()
		for _, accept := range []string{"", "application/json", "*/*"} {
			resp := n.HTTPStream(ctx, "GET", "/v1/runs/run:watch", "", "Accept", accept)
			servertest.WantEqual(t, "code and type", fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Content-Type")), "200 application/json")
			lines := bufio.NewScanner(resp.Body)
			for _, want := range []string{"watermark", "caughtUp", "heartbeat", "heartbeat"} {
				if !lines.Scan() {
					t.Fatalf("the stream ended before %s: %v", want, lines.Err())
				}
				result := servertest.ParseObject(t, lines.Bytes())["result"].(map[string]any)
				if result[want] == nil || result["resumeToken"] == "" {
					t.Errorf("line %v, want %s with a token", result, want)
				}
			}
			resp.Body.Close()
		}
		bubble.Until(t, "no subscription is left", func() bool { return n.Metric("runlog_projector_subscriptions") == 0 })
	})
}
