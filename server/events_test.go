package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/testbed/bubble"
)

// eventSource reads Server-Sent Events as a browser does (HTML standard, 9.2.6).
type eventSource struct {
	t        testing.TB
	received chan sentEvent // closed at the end of the stream
	header   map[string][]string
}

type sentEvent struct {
	name, id, data string
	retry          string
	comments       int // since the event before
}

// openEvents asks for a stream of events; header are names and values.
func (n *node) openEvents(target string, header ...string) *eventSource {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.t.Cleanup(cancel)
	resp := n.httpStream(ctx, "GET", target, "", append([]string{"Accept", "text/event-stream"}, header...)...)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		n.t.Fatalf("HTTP %d %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), body)
	}
	s := &eventSource{t: n.t, received: make(chan sentEvent, 10_000), header: resp.Header}
	go s.read(resp.Body)
	return s
}

func (s *eventSource) read(body io.ReadCloser) {
	defer close(s.received)
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 4<<20)
	var e sentEvent
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			if e.data != "" {
				e.data = strings.TrimSuffix(e.data, "\n")
				s.received <- e
			}
			e = sentEvent{id: e.id} // the last id stays
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "":
			e.comments++
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "retry":
			e.retry = value
		case "data":
			e.data += value + "\n"
		default:
			s.t.Errorf("line %q is none of an event stream", line)
		}
	}
}

func (s *eventSource) until(name string) sentEvent {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case e, open := <-s.received:
			if !open {
				s.t.Fatalf("the stream ended before an event %q", name)
			}
			if e.name == name {
				return e
			}
		case <-deadline:
			s.t.Fatalf("no event %q after %v", name, patience)
		}
	}
}

func TestServerSentEventsWATCH4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.Heartbeat = 20 * time.Millisecond })
		n.append("run:1/é", newEvent("RunStarted"), newEvent("StepStarted", step("a")))
		target := runPath("run:1/é", ":watch")
		s := n.openEvents(target)
		wantEqual(t, "Cache-Control", fmt.Sprint(s.header["Cache-Control"]), "[no-cache]")
		mark := s.until("watermark")
		m := parseObject(t, []byte(mark.data))
		wantEqual(t, "data", fmt.Sprint(m["watermark"].(map[string]any)["lastEventSeq"], m["watermark"].(map[string]any)["status"]), "2RUNNING")
		wantEqual(t, "id is the resume token", mark.id, m["resumeToken"].(string))
		caughtUp := s.until("caughtUp")
		if caughtUp.retry == "" {
			t.Error("no retry")
		}
		beat := s.until("heartbeat")
		if beat.comments == 0 || beat.id == "" {
			t.Errorf("heartbeat: %+v, want a comment ping and an id", beat)
		}
		n.append("run:1/é", newEvent("RunCompleted"))
		live := s.until("watermark")
		wantEqual(t, "live", fmt.Sprint(parseObject(t, []byte(live.data))["watermark"].(map[string]any)["lastEventSeq"]), "3")

		// A reconnecting browser sends the last id, which takes precedence over the address.
		s = n.openEvents(target+"?afterSeq=0&resumeToken="+live.id, "Last-Event-ID", mark.id)
		again := s.until("watermark")
		wantEqual(t, "resumed", fmt.Sprint(parseObject(t, []byte(again.data))["watermark"].(map[string]any)["lastEventSeq"]), "3")
		s = n.openEvents(target, "Last-Event-ID", live.id)
		wantEqual(t, "nothing new", (<-s.received).name, "caughtUp")

		// A refusal before the stream begins is answered like any other call.
		n.http("GET", "/v1/runs/nobody:watch?mustExist=true", "", "Accept", "text/event-stream").refused(t, contract.ReasonRunNotFound)
		n.http("GET", target, "", "Accept", "text/event-stream", "Last-Event-ID", "nonsense").refused(t, contract.ReasonResumeTokenInvalid)
		n.http("GET", target+"?view=NOTHING", "", "Accept", "text/event-stream").refused(t, contract.ReasonInvalidArgumentField)

		// A whole run as events.
		s = n.openEvents(runPath("run:1/é", "/events:read"))
		batch := parseObject(t, []byte(s.until("events").data))
		wantEqual(t, "events", len(batch["events"].([]any)), 3)
		// A unary call answers with JSON, also to a browser that accepts events.
		n.http("GET", runPath("run:1/é", "/snapshot"), "", "Accept", "text/event-stream, */*").ok(t)
		n.append("x:watch", newEvent("RunStarted"))
		n.http("GET", "/v1/runs/x%3Awatch", "", "Accept", "text/event-stream").ok(t)
	})
}

// TestNDJSON is what other clients get: one JSON object a line.
func TestNDJSON(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.Heartbeat = 20 * time.Millisecond })
		n.append("run", newEvent("RunStarted"))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, accept := range []string{"", "application/json", "*/*"} {
			resp := n.httpStream(ctx, "GET", "/v1/runs/run:watch", "", "Accept", accept)
			wantEqual(t, "code and type", fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Content-Type")), "200 application/json")
			lines := bufio.NewScanner(resp.Body)
			for _, want := range []string{"watermark", "caughtUp", "heartbeat", "heartbeat"} {
				if !lines.Scan() {
					t.Fatalf("the stream ended before %s: %v", want, lines.Err())
				}
				result := parseObject(t, lines.Bytes())["result"].(map[string]any)
				if result[want] == nil || result["resumeToken"] == "" {
					t.Errorf("line %v, want %s with a token", result, want)
				}
			}
			resp.Body.Close()
		}
		bubble.Until(t, "no subscription is left", func() bool { return n.metric("runlog_projector_subscriptions") == 0 })
	})
}
