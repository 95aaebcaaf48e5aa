package servertest

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// EventSource reads Server-Sent Events as a browser does (HTML standard, 9.2.6).
type EventSource struct {
	t        testing.TB
	Received chan SentEvent // closed at the end of the stream
	Header   map[string][]string
}

// SentEvent is one event of a stream, by the names of the standard.
type SentEvent struct {
	Name, ID, Data string
	Retry          string
	Comments       int // since the event before
}

// OpenEvents asks for a stream of events; header are names and values.
func (n *Node) OpenEvents(target string, header ...string) *EventSource {
	n.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.T.Cleanup(cancel)
	header = append([]string{"Accept", "text/event-stream"}, header...)
	resp := n.HTTPStream(ctx, "GET", target, "", header...) //nolint:bodyclose // read closes it.
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		n.T.Fatalf("HTTP %d %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), body)
	}
	s := &EventSource{t: n.T, Received: make(chan SentEvent, 10_000), Header: resp.Header}
	go s.read(resp.Body)
	return s
}

func (s *EventSource) read(body io.ReadCloser) {
	defer close(s.Received)
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 4<<20)
	var e SentEvent
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			if e.Data != "" {
				e.Data = strings.TrimSuffix(e.Data, "\n")
				s.Received <- e
			}
			e = SentEvent{ID: e.ID} // the last id stays
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "":
			e.Comments++
		case "event":
			e.Name = value
		case "id":
			e.ID = value
		case "retry":
			e.Retry = value
		case "data":
			e.Data += value + "\n"
		default:
			s.t.Errorf("line %q is none of an event stream", line)
		}
	}
}

// Until returns the next event of a name.
func (s *EventSource) Until(name string) SentEvent {
	s.t.Helper()
	deadline := time.After(Patience)
	for {
		select {
		case e, open := <-s.Received:
			if !open {
				s.t.Fatalf("the stream ended before an event %q", name)
			}
			if e.Name == name {
				return e
			}
		case <-deadline:
			s.t.Fatalf("no event %q after %v", name, Patience)
		}
	}
}
