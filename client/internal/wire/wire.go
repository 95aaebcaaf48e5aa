// Package wire encodes requests of appends in the goroutines of their callers, and joins them into
// messages. It decodes the deliveries of consumers.
package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// The fields of AppendEventsRequest (event_service.proto).
const (
	fieldRunID           = 1
	fieldEvents          = 2
	fieldExpectedLastSeq = 3
	fieldFence           = 5
)

// MaxBytes is the largest request that a node with default limits takes.
const MaxBytes = 16 << 20

// Request is an AppendEventsRequest in its wire form, without its request_id.
type Request struct {
	bytes  []byte
	events int  // where the events begin
	alone  bool // it has a condition
}

// TooLargeError refuses a request that would end the stream, which others share.
type TooLargeError struct{ Bytes, Max int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("have %d bytes, more than the limit of %d; send fewer events at a time, or keep large data elsewhere and send references to it", e.Bytes, e.Max)
}

// EventError refuses an event that has no wire form, such as one with text that is not UTF-8.
type EventError struct {
	Index int
	Cause error
}

func (e *EventError) Error() string { return "has no wire form: " + e.Cause.Error() }

// Size returns the size of the wire form of a request, in bytes. An error is a *TooLargeError, for
// more than limit or MaxBytes.
func Size(req *runlogv1.AppendEventsRequest, limit int64) (int, error) {
	size := protowire.SizeTag(fieldRunID) + protowire.SizeBytes(len(req.GetRunId()))
	if req.ExpectedLastSeq != nil {
		size += protowire.SizeTag(fieldExpectedLastSeq) + protowire.SizeVarint(req.GetExpectedLastSeq())
	}
	if req.Fence != nil {
		size += protowire.SizeTag(fieldFence) + protowire.SizeVarint(req.GetFence())
	}
	size += len(req.ProtoReflect().GetUnknown())
	for _, event := range req.GetEvents() {
		size += protowire.SizeTag(fieldEvents) + protowire.SizeBytes(proto.Size(event))
	}
	if limit = min(limit, MaxBytes); int64(size) > limit {
		return 0, &TooLargeError{Bytes: int64(size), Max: limit}
	}
	return size, nil
}

// Encode returns the wire form of a request, of which Size has returned size. The caller may change
// the request after that. An error is an *EventError.
func Encode(req *runlogv1.AppendEventsRequest, size int) (Request, error) {
	b := make([]byte, 0, size)
	b = protowire.AppendTag(b, fieldRunID, protowire.BytesType)
	b = protowire.AppendString(b, req.GetRunId())
	if req.ExpectedLastSeq != nil {
		b = protowire.AppendTag(b, fieldExpectedLastSeq, protowire.VarintType)
		b = protowire.AppendVarint(b, req.GetExpectedLastSeq())
	}
	if req.Fence != nil {
		b = protowire.AppendTag(b, fieldFence, protowire.VarintType)
		b = protowire.AppendVarint(b, req.GetFence())
	}
	later := req.ProtoReflect().GetUnknown() // fields of a later version may be conditions
	b = append(b, later...)
	r, sized := Request{events: len(b), alone: req.ExpectedLastSeq != nil || len(later) > 0}, proto.MarshalOptions{UseCachedSize: true}
	for i, event := range req.GetEvents() {
		b = protowire.AppendTag(b, fieldEvents, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sized.Size(event)))
		var err error
		if b, err = sized.MarshalAppend(b, event); err != nil {
			return r, &EventError{i, err}
		}
	}
	r.bytes = b
	return r, nil
}

// Len is the size of the request, in bytes.
func (r Request) Len() int { return len(r.bytes) }

// Alone reports whether no other request may be in its message.
func (r Request) Alone() bool { return r.alone }

// Message is a request in its wire form, for a stream with Codec.
type Message []byte

// Message returns the request alone.
func (r Request) Message() Message { return r.bytes }

// Begin returns a message with the request and room for so many bytes in all.
func (r Request) Begin(size int) Message { return append(make(Message, 0, size), r.bytes...) }

// Add adds the events of a request of the same run, with the same fence. Neither may be Alone.
func (m Message) Add(r Request) Message { return append(m, r.bytes[r.events:]...) }

// Codec sends a Message as it is, and everything else as protobuf. UnmarshalDeliveries decodes a
// ConsumeResponse.
var Codec encoding.CodecV2 = codec{encoding.GetCodecV2(encodingproto.Name)}

type codec struct{ encoding.CodecV2 }

// Marshal returns the wire form of a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(Message); ok {
		return mem.BufferSlice{mem.SliceBuffer(m)}, nil
	}
	return c.CodecV2.Marshal(v)
}
