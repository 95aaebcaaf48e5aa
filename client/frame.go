package client

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

// maxRequestBytes is the largest request that a node with default limits takes.
const maxRequestBytes = 16 << 20

// encoded is an AppendEventsRequest in its wire form: events may be added to the end of it.
type encoded struct {
	bytes  []byte
	events int // where the events begin
}

// encode returns the wire form of a request. The caller may change the request after that.
func encode(req *runlogv1.AppendEventsRequest) (encoded, *Error) {
	size := len(req.GetRunId()) + 32
	for _, event := range req.GetEvents() {
		size += proto.Size(event) + 6
	}
	if size > maxRequestBytes {
		return encoded{}, tooLarge(size)
	}
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
	e, sized := encoded{events: len(b)}, proto.MarshalOptions{UseCachedSize: true}
	for i, event := range req.GetEvents() {
		b = protowire.AppendTag(b, fieldEvents, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sized.Size(event)))
		var err error
		if b, err = sized.MarshalAppend(b, event); err != nil {
			return e, invalid(fmt.Sprintf("events[%d]", i), "has no wire form: "+err.Error())
		}
	}
	e.bytes = b
	return e, nil
}

// tooLarge refuses on this side what would end the stream that others share.
func tooLarge(size int) *Error {
	e := invalid("events", fmt.Sprintf("have %d bytes, more than the %d of one request; send fewer events at a time, or keep large data elsewhere and send references to it", size, maxRequestBytes))
	e.Reason, e.Violations[0].Reason = ReasonPayloadTooLarge, ReasonPayloadTooLarge
	return e
}

// frame is a request that its sender has encoded.
type frame []byte

// frameCodec sends a frame as it is, and everything else as protobuf.
type frameCodec struct{ encoding.CodecV2 }

var wireCodec = frameCodec{encoding.GetCodecV2(encodingproto.Name)}

// Marshal returns the wire form of a message.
func (c frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f)}, nil
	}
	return c.CodecV2.Marshal(v)
}
