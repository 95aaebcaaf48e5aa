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

// bodyDepth is the maximum nesting of messages and payload values in a body: the 64 levels of the
// contract, and the levels around them. Proto uses three levels for one of JSON, so a deeper body
// could not be forwarded.
const bodyDepth = 80

// decoder is the decoder whose refusals are explained.
var decoder = protojson.UnmarshalOptions{RecursionLimit: bodyDepth}

// JSON decodes a body, which must be exactly one JSON object. It may contain flat 1.1 events. For a
// body that cannot be decoded the error lists every fault.
func JSON(body []byte, to proto.Message) *contract.Error {
	md := to.ProtoReflect().Descriptor()
	if fault := checkJSON(body, md.FullName()); fault != nil {
		return fault
	}
	// The decoder's own parser refuses text that is not JSON, such as the number 1e.
	if !json.Valid(body) {
		return explainSyntax(body)
	}
	text, fault := flatten(body, md)
	if fault != nil {
		return fault
	}
	err := decoder.Unmarshal(text, to)
	if err != nil {
		text = upperBody(text, md)
		err = decoder.Unmarshal(text, to)
	}
	if err == nil {
		return nil
	}
	if fault := explainJSON(text, md); fault != nil {
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
		x.fault(path, "must be an object, got %s%s", jsontext.Show(text), arrayHelp(text, md, path))
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
	if path == "" && text[0] == '[' && md.Fields().ByName("events") != nil {
		return `: put the events into {"events": [...]}`
	}
	return ""
}

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
		x.fault(at, "is not a field: did you mean %s?", spellings(near))
		return
	}
	if md.FullName() == "runlog.v1.EventWrite" {
		x.fault(at, "%s", contract.StrangerHelp(name))
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
	case md != nil && !isWellKnown(md):
		x.message(value, md, at)
	case md != nil && md.FullName() == "google.protobuf.Struct" && value[0] == '{':
		x.object(value, at, 1)
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
	return decoder.Unmarshal(text, newMessage(fd.ContainingMessage())) == nil
}

// object explains the content of a payload. Its paths are JSON Pointers, like the validator's.
func (x *jsonExplainer) object(value []byte, at string, depth int) {
	seen := map[string]bool{}
	c := jsontext.Members(value)
	for quoted, member, ok := c.Quoted(); ok; quoted, member, ok = c.Quoted() {
		if x.full() {
			return
		}
		name := jsontext.Text(quoted)
		to := inner(at, pointerEscapes.Replace(showName(name)))
		if !isText(quoted) {
			x.fault(to, "has a name that %s", textHelp(quoted))
		}
		if seen[name] {
			x.fault(to, "appears twice: keep one")
		}
		seen[name] = true
		x.value(member, to, depth)
	}
}

func (x *jsonExplainer) value(value []byte, at string, depth int) {
	switch c := value[0]; {
	case x.full():
	case (c == '{' || c == '[') && depth == contract.MaxDepth:
		x.fault(at, "is nested deeper than %d levels", contract.MaxDepth)
	case c == '{':
		x.object(value, at, depth+1)
	case c == '[':
		e := jsontext.Elements(value)
		element, ok := e.Element()
		for i := 0; ok && !x.full(); i++ {
			x.value(element, inner(at, strconv.Itoa(i)), depth+1)
			element, ok = e.Element()
		}
	case c == '"':
		if !isText(value) {
			x.fault(at, "%s", textHelp(value))
		}
	case c == '-' || '0' <= c && c <= '9':
		if _, err := strconv.ParseFloat(string(value), 64); err != nil {
			x.fault(at, "%s is out of the range of a double: send it as a string", jsontext.Show(value))
		}
	}
}

// inner appends a step to a payload's path. It leaves out steps that would make the path useless.
func inner(at, step string) string {
	const most = 256
	if len(at)+len(step) > most {
		return at
	}
	return at + "/" + step
}

// pointerEscapes escapes a member's name for a JSON Pointer (RFC 6901).
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func isNull(value []byte) bool { return string(value) == "null" }
