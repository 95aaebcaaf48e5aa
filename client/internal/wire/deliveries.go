package wire

import (
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	m                        runlogv1.EventDelivery
	event                    runlogv1.EventRecord
	emitted, persisted       timestamppb.Timestamp
	payload                  runlogv1.EventRecord_PayloadJson
	step, by, signal, parent string
	appendedBy, token        string
}

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
		switch f.kind {
		case protowire.VarintType:
			ok = d.number(&f)
		case protowire.BytesType:
			ok = d.text(&f, text) || d.bytes(&f, data)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

func (d *delivery) number(f *field) bool {
	switch f.number {
	case 10:
		d.event.LogicalAttemptId = uint32(f.n)
	case 11:
		d.event.EngineAttemptId = uint32(f.n)
	case 20:
		d.event.RunSeq = f.n
	default:
		return false
	}
	return true
}

// text sets a field of text.
func (d *delivery) text(f *field, text string) (ok bool) {
	e := &d.event
	var to *string
	switch f.number {
	case 1:
		to = &e.EventId
	case 2:
		to = &e.EventType
	case 3:
		to = &e.RunId
	case 4:
		to = &e.TenantId
	case 5:
		to = &e.ProjectId
	case 6:
		to = &e.EnvironmentId
	case 7:
		to = &e.PlanId
	case 8:
		to = &e.PlanVersion
	case 9:
		to, e.StepId = &d.step, &d.step
	case 12:
		to = &e.IdempotencyKey
	case 14:
		to, e.EmittedBy = &d.by, &d.by
	case 15:
		to, e.CausedBySignalId = &d.signal, &d.signal
	case 16:
		to, e.ParentEventId = &d.parent, &d.parent
	case 17:
		to = &e.ContractVersion
	case 22:
		to = &e.PayloadDigest
	case 23:
		to = &e.RecordDigest
	case 24:
		to = &e.ChainDigest
	case 27:
		to, e.AppendedBy = &d.appendedBy, &d.appendedBy
	case 29:
		to, e.AppendedByTokenId = &d.token, &d.token
	default:
		return false
	}
	*to, ok = f.text(text)
	return ok
}

// bytes sets a field of bytes, a time, or a repeated text.
func (d *delivery) bytes(f *field, data []byte) (ok bool) {
	e, value := &d.event, data[f.from:f.to]
	switch f.number {
	case 13:
		return setTime(&e.EmittedAt, &d.emitted, value)
	case 18:
		d.payload.PayloadJson = append(make([]byte, 0, len(value)), value...)
		e.PayloadForm = &d.payload
	case 21:
		return setTime(&e.PersistedAt, &d.persisted, value)
	case 25:
		if !utf8.Valid(value) {
			return false
		}
		e.Inherited = append(e.Inherited, string(value))
	case 28:
		e.Original = new(runlogv1.Original)
		return proto.Unmarshal(value, e.Original) == nil
	case 40:
		e.ExtensionsJson = append(make([]byte, 0, len(value)), value...)
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
