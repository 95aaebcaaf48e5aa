package wire

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestMessages: a message is the wire form of one request with the events of all of its requests.
func TestMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var whole *runlogv1.AppendEventsRequest
		var message Message
		size := 0
		for n := range rapid.IntRange(1, 4).Draw(t, "requests") {
			req := &runlogv1.AppendEventsRequest{RunId: rapid.String().Draw(t, "run")}
			if rapid.Bool().Draw(t, "fenced") {
				req.Fence = proto.Uint64(rapid.Uint64().Draw(t, "fence"))
			}
			if n == 0 && rapid.Bool().Draw(t, "conditional") {
				req.ExpectedLastSeq = proto.Uint64(rapid.Uint64().Draw(t, "last"))
			}
			for range rapid.IntRange(0, 3).Draw(t, "events") {
				req.Events = append(req.Events, &runlogv1.EventWrite{EventId: rapid.String().Draw(t, "id"),
					PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: rapid.SliceOf(rapid.Byte()).Draw(t, "payload")}})
			}
			r, err := encode(req)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := Size(req, MaxBytes); err != nil || n != r.Len() {
				t.Errorf("%d bytes, want %d: %v", r.Len(), n, err)
			}
			size += r.Len()
			if n == 0 {
				whole, message = proto.CloneOf(req), r.Begin(size)
			} else {
				whole.Events, message = append(whole.Events, req.GetEvents()...), message.Add(r)
			}
		}
		buffers, err := Codec.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		got := &runlogv1.AppendEventsRequest{}
		if err := Codec.Unmarshal(buffers, got); err != nil || !proto.Equal(got, whole) {
			t.Errorf("got %v, want %v: %v", got, whole, err)
		}
	})
}

func TestRefusals(t *testing.T) {
	text := &runlogv1.EventWrite{EmittedBy: "\xff"}
	var event *EventError
	if _, err := encode(&runlogv1.AppendEventsRequest{Events: []*runlogv1.EventWrite{{}, text}}); !errors.As(err, &event) || event.Index != 1 {
		t.Errorf("got %v", err)
	}
	var large *TooLargeError
	big := &runlogv1.EventWrite{PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, MaxBytes)}}
	if _, err := encode(&runlogv1.AppendEventsRequest{Events: []*runlogv1.EventWrite{big}}); !errors.As(err, &large) || large.Bytes <= MaxBytes {
		t.Errorf("got %v", err)
	}
}

func encode(req *runlogv1.AppendEventsRequest) (Request, error) {
	size, err := Size(req, MaxBytes)
	if err != nil {
		return Request{}, err
	}
	return Encode(req, size)
}

// TestUnknownFields: a request keeps the fields of a later version, as it does in an outbox.
func TestUnknownFields(t *testing.T) {
	req := &runlogv1.AppendEventsRequest{RunId: "r", Events: []*runlogv1.EventWrite{{EventId: "e"}}}
	req.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 7))
	r, err := encode(req)
	if err != nil {
		t.Fatal(err)
	}
	got := &runlogv1.AppendEventsRequest{}
	if err := proto.Unmarshal(r.Message(), got); err != nil || !proto.Equal(got, req) {
		t.Errorf("got %v, want %v: %v", got, req, err)
	}
	if n, err := Size(req, MaxBytes); err != nil || n != r.Len() || !r.Alone() {
		t.Errorf("%d bytes, want %d; alone: %v; %v", r.Len(), n, r.Alone(), err)
	}
}
