package wire

import (
	"unicode/utf8"
	"unsafe"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Unmarshal decodes a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*runlogv1.ConsumeResponse)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return UnmarshalDeliveries(b.ReadOnlyData(), m)
}

// fieldDeliveries is the field of ConsumeResponse (subscription_service.proto).
const fieldDeliveries = 1

// proto.Unmarshal decodes smaller deliveries than leastDelivery, which no node sends: an empty one
// would become hundreds of times as large. It also decodes larger ones than mostDelivery, because
// the texts of a delivery share their memory: a program that keeps one of them keeps all.
const (
	leastDelivery = 128
	mostDelivery  = 4 << 10
)

// UnmarshalDeliveries does what proto.Unmarshal does, with three allocations for an event in place
// of 23. It keeps nothing of data.
func UnmarshalDeliveries(data []byte, m *runlogv1.ConsumeResponse) error {
	proto.Reset(m)
	rest := data
	for len(rest) > 0 {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 || number != fieldDeliveries || kind != protowire.BytesType {
			return proto.Unmarshal(data, m) // of another version, or no message at all
		}
		body, size := protowire.ConsumeBytes(rest[n:])
		if size < 0 {
			return proto.Unmarshal(data, m)
		}
		one, err := unmarshalDelivery(body)
		if err != nil {
			return err
		}
		m.Deliveries = append(m.Deliveries, one)
		rest = rest[n+size:]
	}
	return nil
}

func unmarshalDelivery(data []byte) (*runlogv1.EventDelivery, error) {
	if len(data) >= leastDelivery && len(data) <= mostDelivery {
		if d := new(delivery); d.parse(data) {
			return &d.m, nil
		}
	}
	m := &runlogv1.EventDelivery{}
	return m, proto.Unmarshal(data, m)
}

// delivery is an EventDelivery with what it points at, in one allocation.
type delivery struct {
	m       runlogv1.EventDelivery
	event   runlogv1.EventRecord
	times   [eventTimes]timestamppb.Timestamp
	payload runlogv1.EventRecord_PayloadJson
	texts   [eventTexts]string
	pointed uint8 // of texts: those in use
	timed   uint8 // of times
}

// What an EventRecord points at, at most, if it has no field twice: times, and texts that may be
// absent.
const (
	eventTimes = 2
	eventTexts = 8
)

// Fields of an EventRecord (event.proto) that are not one field of the table.
const (
	fieldPayloadJSON = 18
	fieldOriginal    = 28
)

// eventFields has the field of an EventRecord of each number; of kind 0: none.
var eventFields = func() (all [contract.WireNumbers]contract.MessageField) {
	texts, times := 0, 0
	for _, f := range contract.MessageFields() {
		switch f.Kind {
		case contract.KindTime:
			times++
		case contract.KindEventID, contract.KindLine, contract.KindSalt, contract.KindDigest:
			f.Kind = contract.KindText
		case contract.KindText:
			if f.Pointer {
				texts++
			}
		}
		all[f.Wire] = f
	}
	if texts > eventTexts || times > eventTimes {
		panic("wire: a delivery has no room for all texts or times of an event: raise eventTexts or eventTimes")
	}
	return all
}()

// parse decodes an EventDelivery as a node sends it; false: proto.Unmarshal must.
func (d *delivery) parse(data []byte) bool {
	text := string(data) // The texts are parts of it.
	for at := 0; at < len(data); {
		f, ok := next(data, &at)
		switch {
		case !ok:
			return false
		case f.is(1, protowire.BytesType):
			d.m.DeliveryId, ok = f.text(text)
		case f.is(2, protowire.VarintType):
			d.m.Attempt = uint32(f.n)
		case f.is(3, protowire.BytesType) && d.m.Event == nil:
			d.m.Event = &d.event
			ok = d.parseEvent(data[f.from:f.to], text[f.from:f.to])
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	return true
}

// parseEvent decodes an EventRecord (event.proto). text has the same bytes.
func (d *delivery) parseEvent(data []byte, text string) bool {
	for at := 0; at < len(data); {
		f, ok := next(data, &at)
		if !ok {
			return false
		}
		if !d.set(&f, data, text) {
			return false
		}
	}
	return true
}

// set sets a field of the event.
func (d *delivery) set(f *field, data []byte, text string) (ok bool) {
	if f.number >= protowire.Number(len(eventFields)) {
		return false
	}
	e, to := &d.event, &eventFields[f.number]
	at := unsafe.Add(unsafe.Pointer(e), to.Offset)
	if f.kind == protowire.VarintType {
		switch to.Kind {
		case contract.KindCount:
			*(*uint32)(at) = uint32(f.n)
		case contract.KindNumber:
			*(*uint64)(at) = f.n
		default:
			return false
		}
		return true
	}
	value := data[f.from:f.to]
	switch {
	case to.Kind == contract.KindText:
		s, ok := f.text(text)
		if !to.Pointer {
			*(*string)(at) = s
			return ok
		}
		if int(d.pointed) == len(d.texts) {
			return false // It has a field twice.
		}
		d.texts[d.pointed] = s
		*(**string)(at) = &d.texts[d.pointed]
		d.pointed++
		return ok
	case to.Kind == contract.KindTime:
		if int(d.timed) == len(d.times) {
			return false
		}
		d.timed++
		return setTime((**timestamppb.Timestamp)(at), &d.times[d.timed-1], value)
	case to.Kind == contract.KindNames:
		if !utf8.Valid(value) {
			return false
		}
		names := (*[]string)(at)
		*names = append(*names, string(value))
	case to.Kind == contract.KindObject:
		*(*[]byte)(at) = append(make([]byte, 0, len(value)), value...)
	case f.number == fieldPayloadJSON:
		d.payload.PayloadJson = append(make([]byte, 0, len(value)), value...)
		e.PayloadForm = &d.payload
	case f.number == fieldOriginal:
		e.Original = new(runlogv1.Original)
		return proto.Unmarshal(value, e.Original) == nil
	default:
		return false
	}
	return true
}

// setTime decodes a google.protobuf.Timestamp.
func setTime(to **timestamppb.Timestamp, t *timestamppb.Timestamp, data []byte) bool {
	if *to != nil {
		return false // Two are merged.
	}
	*to = t
	for at := 0; at < len(data); {
		f, ok := next(data, &at)
		switch {
		case ok && f.is(1, protowire.VarintType):
			t.Seconds = int64(f.n)
		case ok && f.is(2, protowire.VarintType):
			t.Nanos = int32(f.n)
		default:
			return false
		}
	}
	return true
}

// field is a field of a message: a number n, or the bytes from..to.
type field struct {
	number   protowire.Number
	kind     protowire.Type
	n        uint64
	from, to int
}

// next decodes the field at a place, and moves the place behind it.
func next(data []byte, at *int) (f field, ok bool) {
	number, kind, n := protowire.ConsumeTag(data[*at:])
	if n < 0 {
		return f, false
	}
	f.number, f.kind = number, kind
	*at += n
	switch kind {
	case protowire.VarintType:
		f.n, n = protowire.ConsumeVarint(data[*at:])
	case protowire.BytesType:
		var value []byte
		value, n = protowire.ConsumeBytes(data[*at:])
		f.from, f.to = *at+n-len(value), *at+n
	default:
		return f, false
	}
	*at += max(0, n)
	return f, n >= 0
}

func (f *field) is(number protowire.Number, kind protowire.Type) bool {
	return f.number == number && f.kind == kind
}

// text is the field's part of a text.
func (f *field) text(of string) (string, bool) {
	s := of[f.from:f.to]
	return s, utf8.ValidString(s)
}
