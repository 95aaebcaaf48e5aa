package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc/wire"
)

const mimeEventStream = "text/event-stream"

// prepareStream selects Server-Sent Events for a server stream if the request accepts them. It
// resumes the stream at the browser's Last-Event-ID.
func prepareStream(w http.ResponseWriter, r *http.Request) {
	export := strings.HasSuffix(r.URL.RawPath, ":export")
	stream := streamed(r.URL.RawPath)
	if stream {
		w.Header().Add("Vary", "Accept")
	}
	if !stream || !strings.Contains(r.Header.Get("Accept"), mimeEventStream) {
		r.Header.Del("Accept")
		return
	}
	r.Header.Set("Accept", mimeEventStream)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // A proxy must not buffer events.
	if token := r.Header.Get("Last-Event-ID"); token != "" {
		if export {
			setParameter(r.URL, token, "pageToken", "page_token")
		} else {
			setParameter(r.URL, token, "resumeToken", "resume_token")
		}
	}
}

// eventStreamMarshaler writes each message of a stream as an event: its kind as the event's name,
// the resume token as its id, and as data the same JSON that other clients get.
type eventStreamMarshaler struct{ json *wire.JSON }

var (
	_ runtime.Marshaler = (*eventStreamMarshaler)(nil)
	_ runtime.Delimited = (*eventStreamMarshaler)(nil)
)

// retryMillis is how long a browser waits before it connects again.
const retryMillis = "2000"

func (m *eventStreamMarshaler) Marshal(v any) ([]byte, error) {
	// grpc-gateway wraps messages of a stream, and the error that ends it, each in a type of its
	// own.
	if failed, ok := v.(map[string]proto.Message); ok {
		data, err := m.json.Marshal(failed["error"])
		return event("error", "", "", data), err
	}
	chunk, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("server: %T is no message of a stream", v)
	}
	result := chunk["result"]
	data, err := m.json.MarshalLine(result)
	if err != nil {
		return nil, err
	}
	if natural, ok := result.(wire.Natural); ok {
		result = natural.Message
	}
	switch m := result.(type) {
	case *runlogv1.WatchRunResponse:
		return watchEvent(m.ProtoReflect(), m.ResumeToken, data), nil
	case *runlogv1.WatchRunsResponse:
		return watchEvent(m.ProtoReflect(), m.ResumeToken, data), nil
	case *runlogv1.ExportEventsResponse:
		if m.Summary != nil {
			return event("summary", "", "", data), nil
		}
		return event("events", m.ResumeToken, "", data), nil
	default:
		return event("events", "", "", data), nil
	}
}

// watchEvent names the event after the kind that the message has.
func watchEvent(m protoreflect.Message, token string, data []byte) []byte {
	name, first := "", ""
	if kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")); kind != nil {
		name = kind.JSONName()
	}
	switch name {
	case "caughtUp":
		first = "retry: " + retryMillis + "\n"
	case "heartbeat":
		first = ": ping\n"
	}
	return event(name, token, first, data)
}

func event(name, id, first string, data []byte) []byte {
	var b strings.Builder
	b.WriteString(first)
	b.WriteString("event: " + name + "\n")
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	// A line of JSON fits into one data line.
	b.WriteString("data: ")
	b.Write(data)
	b.WriteString("\n\n")
	return []byte(b.String())
}

// Delimiter is empty, because an event ends itself.
func (*eventStreamMarshaler) Delimiter() []byte { return nil }

// ContentType returns the media type of the stream.
func (*eventStreamMarshaler) ContentType(any) string { return mimeEventStream }

func (m *eventStreamMarshaler) Unmarshal(data []byte, v any) error { return m.json.Unmarshal(data, v) }

func (m *eventStreamMarshaler) NewDecoder(r io.Reader) runtime.Decoder { return m.json.NewDecoder(r) }

func (m *eventStreamMarshaler) NewEncoder(w io.Writer) runtime.Encoder { return m.json.NewEncoder(w) }
