package decode

import (
	"bytes"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// readAppend decodes an AppendEventsRequest by hand, into texts and payloads that share one copy of
// the message: proto.Unmarshal makes an object of each. It returns false for a message in a form
// that it leaves to proto.Unmarshal: one that is malformed, has unknown fields, a payload as a
// Struct, or a field of another type. m is then half read.
func readAppend(wire []byte, m *runlogv1.AppendEventsRequest) bool {
	r := wireReader{wire: wire, end: len(wire)}
	events := r.count(fieldEvents)
	if r.bad {
		return false
	}
	r = wireReader{wire: bytes.Clone(wire), end: len(wire)}
	made := make([]writtenEvent, events)
	if events > 0 {
		m.Events = make([]*runlogv1.EventWrite, 0, events)
	}
	for r.more() {
		switch field, kind := r.tag(); {
		case kind == protowire.BytesType && field == fieldEvents:
			e := &made[len(m.Events)]
			m.Events = append(m.Events, &e.event)
			within := r.nested()
			r.bad = r.bad || !e.read(&within)
		case kind == protowire.BytesType && field == 1:
			m.RunId = r.string()
		case kind == protowire.BytesType && field == fieldRequestID:
			m.RequestId = r.string()
		case kind == protowire.VarintType && field == 3:
			n := r.varint()
			m.ExpectedLastSeq = &n
		case kind == protowire.VarintType && field == 5:
			n := r.varint()
			m.Fence = &n
		default:
			return false
		}
	}
	return !r.bad
}

// writtenEvent is an event with the parts that nearly every event has: one object instead of three.
type writtenEvent struct {
	event   runlogv1.EventWrite
	payload runlogv1.EventWrite_PayloadJson
	emitted timestamppb.Timestamp
}

// fieldPayloadJSON is a field of EventWrite (event.proto).
const fieldPayloadJSON = 18

// writtenFields has the field of an EventWrite of each number but the payload; of kind 0: none.
var writtenFields = func() (all [contract.WireNumbers]contract.MessageField) {
	for _, f := range contract.WrittenFields() {
		switch f.Kind {
		case contract.KindEventID, contract.KindLine:
			f.Kind = contract.KindText // texts until the event is checked
		case contract.KindTime:
			if f.Name != "emittedAt" {
				panic("decode: writtenEvent has room for no time but emittedAt: make room for " + f.Name)
			}
		case contract.KindText, contract.KindCount, contract.KindObject:
		default:
			panic("decode: a field that cannot be decoded: " + f.Name)
		}
		all[f.Wire] = f
	}
	return all
}()

func (w *writtenEvent) read(r *wireReader) bool {
	e := &w.event
	for r.more() {
		number, kind := r.tag()
		if uint(number) >= uint(len(writtenFields)) {
			return false
		}
		f := &writtenFields[number]
		at := unsafe.Add(unsafe.Pointer(e), f.Offset)
		switch {
		case kind == protowire.BytesType && f.Kind == contract.KindText:
			*(*string)(at) = r.string()
		case kind == protowire.VarintType && f.Kind == contract.KindCount:
			*(*uint32)(at) = uint32(r.varint())
		case kind == protowire.BytesType && f.Kind == contract.KindTime && e.EmittedAt == nil:
			e.EmittedAt = &w.emitted // the only time
			within := r.nested()
			r.bad = r.bad || !readTimestamp(&within, e.EmittedAt)
		case kind == protowire.BytesType && number == fieldPayloadJSON:
			w.payload.PayloadJson = r.bytes()
			e.PayloadForm = &w.payload
		case kind == protowire.BytesType && f.Kind == contract.KindObject:
			*(*[]byte)(at) = r.bytes()
		default:
			return false
		}
	}
	return !r.bad
}

func readTimestamp(r *wireReader, t *timestamppb.Timestamp) bool {
	for r.more() {
		switch field, kind := r.tag(); {
		case kind == protowire.VarintType && field == 1:
			t.Seconds = int64(r.varint())
		case kind == protowire.VarintType && field == 2:
			t.Nanos = int32(r.varint())
		default:
			return false
		}
	}
	return !r.bad
}

// wireReader reads the fields of a message in order. After a field that it cannot read, bad is set
// and nothing more comes.
type wireReader struct {
	wire     []byte // never changes: what was read shares it
	pos, end int    // of the message in wire
	bad      bool
}

func (r *wireReader) more() bool { return r.pos < r.end && !r.bad }

func (r *wireReader) varint() uint64 {
	if r.pos < r.end && r.wire[r.pos] < 0x80 {
		r.pos++
		return uint64(r.wire[r.pos-1])
	}
	v, n := protowire.ConsumeVarint(r.wire[r.pos:r.end])
	if n < 0 {
		r.bad = true
		return 0
	}
	r.pos += n
	return v
}

func (r *wireReader) tag() (protowire.Number, protowire.Type) {
	field, kind := protowire.DecodeTag(r.varint())
	r.bad = r.bad || field < protowire.MinValidNumber
	return field, kind
}

// span returns where the content of a length-delimited field is.
func (r *wireReader) span() (begin, end int) {
	n := r.varint()
	if r.bad || n > uint64(r.end-r.pos) {
		r.bad = true
		return r.end, r.end
	}
	begin = r.pos
	r.pos += int(n)
	return begin, r.pos
}

func (r *wireReader) string() string {
	b := r.bytes()
	r.bad = r.bad || !utf8.Valid(b)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (r *wireReader) bytes() []byte {
	begin, end := r.span()
	return r.wire[begin:end:end]
}

// nested returns a reader of a message in the message.
func (r *wireReader) nested() wireReader {
	within := *r
	within.pos, within.end = r.span()
	return within
}

// count returns how many length-delimited fields of a number the message has, and passes all.
func (r *wireReader) count(number protowire.Number) (n int) {
	for r.more() {
		switch field, kind := r.tag(); kind {
		case protowire.BytesType:
			if r.span(); field == number {
				n++
			}
		case protowire.VarintType:
			r.varint()
		default:
			r.bad = true
		}
	}
	return n
}
