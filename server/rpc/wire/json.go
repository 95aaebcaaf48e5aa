package wire

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
)

// JSON is the marshaler of every HTTP answer. It writes JSON without blanks: protojson puts some
// in, in other places from build to build, and answers are compared and searched as text.
type JSON struct{ *runtime.JSONPb }

// NewJSON writes fields that are zero, so that `"idempotent":false` can be seen, and
// refuses fields that it does not know, so that a typing error is found.
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
