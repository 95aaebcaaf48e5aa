package wire

import (
	"fmt"
	"io"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// JSON is the marshaler of every HTTP answer. It writes JSON without blanks between its own tokens:
// protojson inserts blanks in places that vary between builds, and clients compare and search
// answers as text.
type JSON struct{ *runtime.JSONPb }

// NewJSON returns a marshaler that writes zero fields, so that `"idempotent":false` is visible. It
// refuses unknown fields, so that typing errors are found.
func NewJSON() *JSON {
	return &JSON{&runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{EmitDefaultValues: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
	}}
}

// Natural is a message whose events have payloads and extensions as JSON text, of which the answer
// has each as an object: the text as it is stored (ENV-8). So are the CloudEvents of a Pull.
type Natural struct{ proto.Message }

// Marshal returns the JSON of a message or a Natural. A payload with line breaks adds them to the
// text.
func (m *JSON) Marshal(v any) ([]byte, error) { return m.marshal(v, false) }

// MarshalLine is Marshal for one line of a stream. An object that a line cannot hold is written in
// base64, as payloadJson or extensionsJson.
func (m *JSON) MarshalLine(v any) ([]byte, error) { return m.marshal(v, true) }

func (m *JSON) marshal(v any, line bool) ([]byte, error) {
	var o objects
	if natural, ok := v.(Natural); ok {
		v = natural.Message
		o.line, o.texts = line, takeTexts(natural.Message)
	}
	message, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("server: %T is no message", v)
	}
	text, err := m.MarshalOptions.Marshal(message)
	if err != nil {
		return nil, err
	}
	return o.compact(text), nil
}

// NewEncoder returns an encoder that writes messages as Marshal does, without a separator.
func (m *JSON) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		text, err := m.Marshal(v)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
}

// takeTexts takes the payloads and extensions out of the events of a message, and returns them in
// the order in which protojson writes the fields that held them.
func takeTexts(m proto.Message) [][]byte {
	var events []*runlogv1.EventRecord
	switch m := m.(type) {
	case interface {
		GetEvents() []*runlogv1.EventRecord
	}:
		events = m.GetEvents()
	case interface {
		GetEvents() *runlogv1.EventBatch
	}:
		events = m.GetEvents().GetEvents()
	case *runlogv1.PullResponse:
		return takeCloudEvents(m)
	}
	texts := make([][]byte, 0, len(events))
	for _, e := range events {
		if form, ok := e.GetPayloadForm().(*runlogv1.EventRecord_PayloadJson); ok {
			texts = append(texts, form.PayloadJson)
			form.PayloadJson = nil
		}
		if e.ExtensionsJson != nil {
			texts = append(texts, e.ExtensionsJson)
			e.ExtensionsJson = []byte{}
		}
	}
	return texts
}

// takeCloudEvents is takeTexts for the events of a Pull.
func takeCloudEvents(m *runlogv1.PullResponse) (texts [][]byte) {
	for _, d := range m.GetDeliveries() {
		texts = append(texts, d.GetEventJson())
		d.EventJson = nil
	}
	return texts
}

// objects are the texts that stand in for empty fields of a message's JSON.
type objects struct {
	texts [][]byte
	line  bool
}

// members maps those that a text stands in for, as protojson writes them, to their names in an
// answer.
var members = map[string]string{`"payloadJson"`: "payload", `"extensionsJson"`: "extensions", `"eventJson"`: "event"}

// compact copies the JSON of protojson without blanks, and puts the texts in. A message with texts
// has no map, so that no name comes from a client.
func (o *objects) compact(text []byte) []byte {
	size := len(text)
	for _, t := range o.texts {
		size += len(t)
	}
	out := make([]byte, 0, size)
	for i := 0; i < len(text); {
		if text[i] != '"' {
			if text[i] != ' ' {
				out = append(out, text[i])
			}
			i++
			continue
		}
		end := jsontext.SkipString(text, i)
		if len(o.texts) > 0 {
			if member := members[string(text[i:end])]; member != "" {
				if next := afterEmpty(text, end); next > 0 {
					out, i = o.put(out, member), next
					continue
				}
			}
		}
		out = append(out, text[i:end]...)
		i = end
	}
	return out
}

// afterEmpty returns the offset after a colon and an empty string, which follow the name of a
// member; 0: something else follows.
func afterEmpty(text []byte, i int) int {
	if i = jsontext.SkipSpace(text, i); i == len(text) || text[i] != ':' {
		return 0
	}
	if i = jsontext.SkipSpace(text, i+1); i+1 >= len(text) || text[i] != '"' || text[i+1] != '"' {
		return 0
	}
	return i + 2
}

// put writes the next text in place of an empty field.
func (o *objects) put(out []byte, member string) []byte {
	text := o.texts[0]
	o.texts = o.texts[1:]
	if o.line {
		// A comma stands there already.
		out = out[:len(out)-1]
		return jsontext.AppendInLine(out, member, text)
	}
	out = append(append(append(out, '"'), member...), `":`...)
	return append(out, text...)
}
