package decode

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// bodyDepth is the maximum nesting of a body without events.
const bodyDepth = 80

// decoder is the decoder of everything except events.
var decoder = protojson.UnmarshalOptions{RecursionLimit: bodyDepth}

// JSON decodes a body, which must be exactly one JSON object. It may contain flat 1.1 events.
// Events keep the text of their payloads and extensions (ENV-8): to shares it with body. For a body
// that cannot be decoded the error lists every fault.
func JSON(body []byte, to proto.Message) *contract.Error {
	md := to.ProtoReflect().Descriptor()
	if fault := checkJSON(body, md.FullName()); fault != nil {
		return fault
	}
	decoded, err := readEvents(body, to)
	if decoded {
		return nil
	}
	// The decoder's own parser refuses text that is not JSON, such as the number 1e.
	if !json.Valid(body) {
		return explainSyntax(body)
	}
	if err == nil {
		if err = unmarshal(body, to); err == nil {
			return refuseEmptyFilters(body, md)
		}
	}
	if fault := explainJSON(body, md); fault != nil {
		return fault
	}
	return refuse("", "the body is not the JSON of this request: %v", err)
}

// explainJSON returns every fault of a well-formed body that the decoder has refused; nil: none
// found.
func explainJSON(body []byte, md protoreflect.MessageDescriptor) *contract.Error {
	x := jsonExplainer{}
	x.message(bytes.TrimSpace(body), md, "")
	if len(x.bad) == 0 {
		return nil
	}
	return contract.NewError(x.bad)
}

type jsonExplainer struct{ faults }

func (x *jsonExplainer) message(text []byte, md protoreflect.MessageDescriptor, path string) {
	if text[0] != '{' {
		subject := ""
		if path == "" {
			subject = "the body "
		}
		x.fault(path, "%smust be an object, got %s%s", subject, jsontext.Show(text), arrayHelp(text, md, path))
		return
	}
	if _, bare := jsontext.Lookup(text, "eventType"); bare && path == "" && takesEvents(md) {
		x.fault("", `the body is an event: put it into {"events": [...]}`)
		return
	}
	// By field; for a oneof, by the field that is set.
	seen := map[protoreflect.Name]string{}
	c := jsontext.Members(text)
	for quoted, value, ok := c.Quoted(); ok; quoted, value, ok = c.Quoted() {
		if x.full() {
			return
		}
		name := jsontext.Text(quoted)
		fd := findField(md, name)
		if fd == nil {
			x.unknown(name, md, path)
			continue
		}
		at := join(path, fd.JSONName())
		if _, twice := seen[fd.Name()]; twice {
			x.fault(at, "appears twice: keep one")
			continue
		}
		seen[fd.Name()] = ""
		if isNull(value) {
			continue // It counts as absent.
		}
		if of := fd.ContainingOneof(); of != nil && !of.IsSynthetic() {
			if other := seen[of.Name()]; other != "" {
				x.fault(at, "appears beside %s: keep one", other)
				continue
			}
			seen[of.Name()] = fd.JSONName()
		}
		x.field(value, fd, at)
	}
}

// arrayHelp returns the remedy for a body that is an array of events.
func arrayHelp(text []byte, md protoreflect.MessageDescriptor, path string) string {
	if path == "" && text[0] == '[' && takesEvents(md) {
		return `: put the events into {"events": [...]}`
	}
	return ""
}

func takesEvents(md protoreflect.MessageDescriptor) bool { return md.Fields().ByName("events") != nil }

// findField accepts both spellings that the decoder accepts.
func findField(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return md.Fields().ByTextName(name)
}

// unknown reports a member that is not a field.
func (x *jsonExplainer) unknown(name string, md protoreflect.MessageDescriptor, path string) {
	at := join(path, showName(name))
	if near := nearest(name, md.Fields()); near != nil {
		x.fault(at, "is not a field: did you mean %s?", contract.Spellings(near.JSONName()))
		return
	}
	var known []string
	for i := range md.Fields().Len() {
		known = append(known, md.Fields().Get(i).JSONName())
	}
	x.fault(at, "is not a field: the fields are %s (lowerCamel or, as in the .proto files, snake_case)", strings.Join(known, ", "))
}

// field explains the value of a field; at is its path.
func (x *jsonExplainer) field(value []byte, fd protoreflect.FieldDescriptor, at string) {
	switch {
	case fd.IsList():
		if value[0] != '[' {
			x.fault(at, "must be an array, got %s", jsontext.Show(value))
			return
		}
		c := jsontext.Elements(value)
		element, ok := c.Element()
		for i := 0; ok && !x.full(); i++ {
			x.single(element, fd, at+"["+strconv.Itoa(i)+"]")
			element, ok = c.Element()
		}
	case fd.IsMap():
		if value[0] != '{' {
			x.fault(at, "must be an object, got %s", jsontext.Show(value))
			return
		}
		seen := map[string]bool{}
		c := jsontext.Members(value)
		for quoted, element, ok := c.Quoted(); ok; quoted, element, ok = c.Quoted() {
			if x.full() {
				return
			}
			name := jsontext.Text(quoted)
			if seen[name] {
				x.fault(join(at, showName(name)), "appears twice: keep one")
			}
			seen[name] = true
			x.single(element, fd, join(at, showName(name)))
		}
	default:
		x.single(value, fd, at)
	}
}

// single explains one value: a message by its members, any other value as a whole. fd may be a list
// or a map, of which the value is an element.
func (x *jsonExplainer) single(value []byte, fd protoreflect.FieldDescriptor, at string) {
	md := leafOf(fd).Message()
	switch {
	case md != nil && md.FullName() == "runlog.v1.EventWrite" && value[0] == '{':
		for _, v := range contract.ExplainEvent(value) {
			x.fault(join(at, v.Field), "%s", v.Description)
		}
	case md != nil && !isWellKnown(md):
		x.message(value, md, at)
	case !accepts(value, fd):
		x.fault(at, "%s", valueHelp(value, leafOf(fd)))
	}
}

// leafOf returns the field that defines the type of one value.
func leafOf(fd protoreflect.FieldDescriptor) protoreflect.FieldDescriptor {
	if fd.IsMap() {
		return fd.MapValue()
	}
	return fd
}

// accepts reports whether the decoder accepts one value.
func accepts(value []byte, fd protoreflect.FieldDescriptor) bool {
	open, end := `{"`+fd.JSONName()+`":`, "}"
	switch {
	case fd.IsList():
		open, end = open+"[", "]}"
	case fd.IsMap():
		open, end = open+`{"":`, "}}"
	}
	text := append(append([]byte(open), value...), end...)
	return unmarshal(text, newMessage(fd.ContainingMessage())) == nil
}

func isNull(value []byte) bool { return string(value) == "null" }
