package decode

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Field numbers of repeated fields. A test compares them with the descriptors.
const (
	fieldEvents    = 2 // of AppendEventsRequest and of CreateRunRequest
	fieldStart     = 7 // of ReleaseLeaseRequest: its events
	fieldRequestID = 4 // of AppendEventsRequest
	fieldRequests  = 1 // of BatchAppendRequest
	fieldPayload   = 19

	fieldStructFields = 1
	fieldEntryValue   = 2
	fieldValueStruct  = 5
	fieldValueList    = 6
	fieldListValues   = 1
)

// deepest is the nesting to which the values of a Struct are counted. The contract allows 64
// levels; deeper values are refused uncounted.
const deepest = 100

// smallWire is the size of messages that are not counted before decoding. Decoded, they take 10 MB
// at most, and the validator counts them then.
const smallWire = 64 << 10

// checkWire counts the elements of a message before it is decoded. For a request with too many
// events it returns the requestID, so that a stream can answer it.
func checkWire(m proto.Message, wire []byte) (requestID string, fault *contract.Error) {
	if len(wire) <= smallWire {
		return "", nil
	}
	t := tally{values: -1}
	if len(wire) > 2*maxValues {
		t.values = 0
	}
	switch m.(type) {
	case *runlogv1.AppendEventsRequest, *runlogv1.CreateRunRequest:
		t.request(wire, fieldEvents)
		if t.events > contract.MaxEvents {
			fault = contract.WrongCount(t.events)
		}
	case *runlogv1.ReleaseLeaseRequest:
		t.request(wire, fieldStart)
		fault = CheckStart(t.events)
		t.requestID = nil
	case *runlogv1.BatchAppendRequest:
		for field, request := range lengthened(wire) {
			if field == fieldRequests {
				t.requests++
				t.request(request, fieldEvents)
			}
		}
		if t.requests > 0 {
			fault = CheckBatch(t.requests, t.events)
		}
		t.requestID = nil
	default:
		return "", nil
	}
	if fault == nil && t.values > maxValues {
		fault = tooManyValues()
	}
	if fault != nil && contract.TextFault(string(t.requestID)) == "" {
		requestID = string(t.requestID)
	}
	return requestID, fault
}

// tally counts elements. Malformed data ends a count; the decoder refuses the same data.
type tally struct {
	requests, events int
	values           int // -1: not counted
	requestID        []byte
}

func (t *tally) request(wire []byte, events protowire.Number) {
	for field, content := range lengthened(wire) {
		switch field {
		case events:
			t.events++
			if t.values >= 0 {
				t.event(content)
			}
		case fieldRequestID:
			t.requestID = content
		}
	}
}

func (t *tally) event(wire []byte) {
	for field, payload := range lengthened(wire) {
		if field == fieldPayload {
			t.structure(payload, 1)
		}
	}
}

func (t *tally) structure(wire []byte, depth int) {
	for field, entry := range lengthened(wire) {
		if field != fieldStructFields {
			continue
		}
		t.values++
		for field, value := range lengthened(entry) {
			if field == fieldEntryValue {
				t.value(value, depth)
			}
		}
	}
}

func (t *tally) value(wire []byte, depth int) {
	for field, content := range lengthened(wire) {
		switch {
		case field != fieldValueStruct && field != fieldValueList:
		case depth == deepest:
			t.values += len(content) // an upper bound
		case field == fieldValueStruct:
			t.structure(content, depth+1)
		default:
			t.list(content, depth+1)
		}
	}
}

func (t *tally) list(wire []byte, depth int) {
	for field, element := range lengthened(wire) {
		if field == fieldListValues {
			t.values++
			t.value(element, depth)
		}
	}
}

// lengthened yields the length-delimited fields in order, until the message ends or is malformed.
func lengthened(wire []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(field protowire.Number, content []byte) bool) {
		for len(wire) > 0 {
			// Most fields have a tag and a length of one byte each. protowire takes twice as long
			// for these.
			if len(wire) > 1 && wire[0] < 0x80 && wire[0]&7 == byte(protowire.BytesType) && int(wire[1]) <= min(0x7f, len(wire)-2) && wire[0] > 7 {
				end := 2 + int(wire[1])
				if !yield(protowire.Number(wire[0]>>3), wire[2:end]) {
					return
				}
				wire = wire[end:]
				continue
			}
			field, kind, n := protowire.ConsumeTag(wire)
			if n < 0 {
				return
			}
			length := protowire.ConsumeFieldValue(field, kind, wire[n:])
			if length < 0 {
				return
			}
			if kind == protowire.BytesType {
				content, _ := protowire.ConsumeBytes(wire[n:])
				if !yield(field, content) {
					return
				}
			}
			wire = wire[n+length:]
		}
	}
}
