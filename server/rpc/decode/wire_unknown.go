package decode

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Unknown makes the refusal of a message from its fields that this node does not know (ENV-11).
type Unknown func(bad []contract.Violation) *contract.Error

// unknownFields returns the fields of an encoded message, which can be decoded, and of the messages
// in it, that md does not have, or has with another type. They are looked for in the encoding,
// because the decoder drops those in the entries of maps.
func unknownFields(wire []byte, md protoreflect.MessageDescriptor) (bad []contract.Violation) {
	whole, fields := wire, md.Fields()
	for len(wire) > 0 {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return bad
		}
		length := protowire.ConsumeFieldValue(number, kind, wire[n:])
		if length < 0 {
			return bad
		}
		fd := fields.ByNumber(number)
		switch {
		case fd == nil || !hasType(fd, kind):
			bad = append(bad, violation(strconv.Itoa(int(number)),
				"is a field number that %s does not have on this node, or has with another type: build client and server from the same .proto files", md.FullName()))
		case fd.Message() != nil:
			content, _ := protowire.ConsumeBytes(wire[n:])
			inner := unknownFields(content, fd.Message())
			if len(inner) == 0 {
				break
			}
			path := elementPath("", fd, countOf(number, whole[:len(whole)-len(wire)]))
			for _, v := range inner {
				v.Field = join(path, v.Field)
				bad = append(bad, v)
			}
		}
		if len(bad) > contract.MaxViolations {
			return bad
		}
		wire = wire[n+length:]
	}
	return bad
}

// isKnown reports, at a twentieth of the cost of unknownFields, that a batch has no unknown field.
// False means that unknownFields must look, as it does for every payload that is a Struct.
func isKnown(m *runlogv1.BatchAppendRequest) bool {
	known := len(m.ProtoReflect().GetUnknown()) == 0
	for _, r := range m.GetRequests() {
		known = known && len(r.ProtoReflect().GetUnknown()) == 0
		for _, e := range r.Events {
			known = known && e.GetPayload() == nil &&
				len(e.ProtoReflect().GetUnknown()) == 0 && len(e.EmittedAt.ProtoReflect().GetUnknown()) == 0
		}
	}
	return known
}

// hasType reports whether the decoder reads values of a type into a field. It reads lists of
// numbers in both forms, packed or one by one.
func hasType(fd protoreflect.FieldDescriptor, kind protowire.Type) bool {
	one := protowire.BytesType
	switch fd.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		one = protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		one = protowire.Fixed64Type
	default:
		one = protowire.VarintType
	}
	return kind == one || kind == protowire.BytesType && fd.IsList()
}

// countOf returns how many length-delimited fields of a number are in a part of a message.
func countOf(number protowire.Number, wire []byte) (n int) {
	for field := range lengthened(wire) {
		if field == number {
			n++
		}
	}
	return n
}
