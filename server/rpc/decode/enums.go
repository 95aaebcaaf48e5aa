package decode

import (
	"bytes"
	"net/url"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract/jsontext"
)

// The names of enum values are accepted in any case over HTTP: view=event is view=EVENT.

// unmarshal decodes well-formed JSON. It looks at the names of enum values only if the decoder
// refuses the text as it is.
func unmarshal(text []byte, to proto.Message) error {
	if decoder.Unmarshal(text, to) == nil {
		return nil
	}
	upper := bytes.Clone(text)
	upperMessage(bytes.TrimSpace(upper), to.ProtoReflect().Descriptor())
	return decoder.Unmarshal(upper, to)
}

// upperMessage changes a message in place.
func upperMessage(text []byte, md protoreflect.MessageDescriptor) {
	if len(text) == 0 || text[0] != '{' {
		return
	}
	c := jsontext.Members(text)
	for quoted, value, ok := c.Quoted(); ok; quoted, value, ok = c.Quoted() {
		fd := findField(md, jsontext.Text(quoted))
		switch {
		case fd == nil || fd.IsMap():
		case fd.IsList() && value[0] == '[':
			e := jsontext.Elements(value)
			for element, ok := e.Element(); ok; element, ok = e.Element() {
				upperValue(element, fd)
			}
		default:
			upperValue(value, fd)
		}
	}
}

func upperValue(value []byte, fd protoreflect.FieldDescriptor) {
	switch {
	case fd.Enum() != nil && value[0] == '"':
		copy(value, upperASCII(string(value)))
	case fd.Message() != nil && !isWellKnown(fd.Message()):
		upperMessage(value, fd.Message())
	}
}

// upperASCII changes no letter outside of ASCII, and so no length.
func upperASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			r -= 'a' - 'A'
		}
		return r
	}, text)
}

// upperQuery returns the values of a parameter: those of an enum in upper case, and several in one
// text apart.
func upperQuery(fd protoreflect.FieldDescriptor, texts []string) []string {
	if fd == nil || fd.Enum() == nil {
		return texts
	}
	var upper []string
	for _, text := range texts {
		if !fd.IsList() {
			upper = append(upper, upperASCII(text))
			continue
		}
		for one := range strings.SplitSeq(text, ",") {
			upper = append(upper, upperASCII(strings.TrimSpace(one)))
		}
	}
	return upper
}

// upperValues changes the parameters of a request.
func upperValues(md protoreflect.MessageDescriptor, values url.Values) {
	for name, texts := range values {
		values[name] = upperQuery(parameter(md, name), texts)
	}
}
