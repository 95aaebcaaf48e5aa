package decode

import (
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"runlog/proto/contract"
)

// explainWire describes why a message that the decoder has refused cannot be decoded.
func explainWire(wire []byte, md protoreflect.MessageDescriptor) *contract.Error {
	x := wireExplainer{}
	x.message(wire, md, "")
	if len(x.bad) == 0 {
		x.fault("", "the message is not the protobuf encoding of a %s: build client and server from the same .proto files", md.Name())
	}
	return contract.NewError(x.bad)
}

type wireExplainer struct{ faults }

func (x *wireExplainer) message(wire []byte, md protoreflect.MessageDescriptor, path string) {
	seen := map[protowire.Number]int{}
	rest := wire
	for len(rest) > 0 && !x.full() {
		number, kind, n := protowire.ConsumeTag(rest)
		if n >= 0 {
			if length := protowire.ConsumeFieldValue(number, kind, rest[n:]); length >= 0 {
				value := rest[n : n+length]
				rest = rest[n+length:]
				if fd := md.Fields().ByNumber(number); fd != nil && kind == protowire.BytesType {
					content, _ := protowire.ConsumeBytes(value)
					x.field(content, fd, path, seen[number])
					seen[number]++
				}
				continue
			}
		}
		x.fault(path, "is not well-formed protobuf: it is cut off or damaged at byte %d of %d", len(wire)-len(rest), len(wire))
		return
	}
}

// field explains the content of a field of the message at path. For a list, index is the element's
// index.
func (x *wireExplainer) field(content []byte, fd protoreflect.FieldDescriptor, path string, index int) {
	switch {
	case fd.Kind() == protoreflect.StringKind:
		if !utf8.Valid(content) {
			x.fault(elementPath(path, fd, index), contract.NotUTF8)
		}
		return
	case fd.Kind() != protoreflect.MessageKind:
		return
	}
	path = elementPath(path, fd, index)
	switch {
	case fd.IsMap(), isWellKnown(fd.Message()):
		// Their content has no paths in the API.
		if (proto.UnmarshalOptions{RecursionLimit: 3 * deepest}).Unmarshal(content, newMessage(fd.Message())) != nil {
			x.fault(path, "is not well-formed protobuf, has text that is not valid UTF-8, or is nested too deep")
		}
	default:
		x.message(content, fd.Message(), path)
	}
}

func isWellKnown(md protoreflect.MessageDescriptor) bool {
	return md.ParentFile().Package() == "google.protobuf"
}

// elementPath returns the path of a field or, for a list, of its element.
func elementPath(path string, fd protoreflect.FieldDescriptor, index int) string {
	path = join(path, fd.JSONName())
	if fd.IsList() {
		path += "[" + strconv.Itoa(index) + "]"
	}
	return path
}

// join joins two parts of a path and leaves out empty ones.
func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// newMessage makes the generated Go type if there is one: a decoder knows more about it than about
// a dynamic message.
func newMessage(md protoreflect.MessageDescriptor) proto.Message {
	if known, err := protoregistry.GlobalTypes.FindMessageByName(md.FullName()); err == nil {
		return known.New().Interface()
	}
	return dynamicpb.NewMessage(md)
}

// faults collects violations, at most as many as an answer holds.
type faults struct{ bad []contract.Violation }

func (f *faults) fault(field, format string, args ...any) {
	if !f.full() {
		f.bad = append(f.bad, violation(field, format, args...))
	}
}

// full reports whether there is one more than an answer holds; the answer then says that it is
// truncated.
func (f *faults) full() bool { return len(f.bad) > contract.MaxViolations }
