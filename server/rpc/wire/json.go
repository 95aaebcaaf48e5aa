package wire

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
)

// JSON is the marshaler of every HTTP answer. It writes JSON without blanks: protojson inserts
// blanks in places that vary between builds, and clients compare and search answers as text.
type JSON struct{ *runtime.JSONPb }

// NewJSON returns a marshaler that writes zero fields, so that `"idempotent":false` is visible. It
// refuses unknown fields, so that typing errors are found.
func NewJSON() *JSON {
	return &JSON{&runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{EmitDefaultValues: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
	}}
}

// Marshal returns the JSON of a message in one line.
func (m *JSON) Marshal(v any) ([]byte, error) {
	text, err := m.JSONPb.Marshal(v)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	compact.Grow(len(text))
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
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
