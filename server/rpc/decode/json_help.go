package decode

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// shownBytes limits how much of a member's name a path repeats.
const shownBytes = 40

// valueHelp describes the value that a field needs.
func valueHelp(value []byte, fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		if value[0] == '"' {
			return contract.TextHelp(value, jsontext.Unquote(value))
		}
		return "must be a string, got " + jsontext.Show(value)
	case protoreflect.BytesKind:
		return "must be bytes in base64, got " + jsontext.Show(value)
	case protoreflect.MessageKind:
		switch fd.Message().FullName() {
		case "google.protobuf.Timestamp":
			text := ""
			if value[0] == '"' {
				text = jsontext.Text(value)
			}
			return contract.TimeHelp(text) + "; got " + jsontext.Show(value)
		case "google.protobuf.Duration":
			return `must be a duration in seconds, such as "90s" or "0.5s", got ` + jsontext.Show(value)
		case "google.protobuf.Struct":
			return "must be a JSON object, got " + jsontext.Show(value)
		}
	}
	return scalarHelp(fd) + ", got " + jsontext.Show(value)
}

// scalarHelp describes the value that a field of a scalar kind needs.
func scalarHelp(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return "must be true or false"
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return "must be an integer from -2147483648 to 2147483647"
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return "must be an integer from -9223372036854775808 to 9223372036854775807"
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return "must be an integer from 0 to 4294967295"
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return "must be an integer from 0 to 18446744073709551615"
	case protoreflect.EnumKind:
		return "must be one of " + strings.Join(enumNames(fd.Enum()), ", ")
	default:
		return fmt.Sprintf("must be a %s", fd.Kind())
	}
}

// enumNames returns the names of an enum without its unspecified value.
func enumNames(ed protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range ed.Values().Len() {
		if name := string(ed.Values().Get(i).Name()); !strings.HasSuffix(name, "_UNSPECIFIED") {
			names = append(names, name)
		}
	}
	return names
}

// showName converts any member's name into a step of a path.
func showName(name string) string {
	if len(name) > shownBytes || contract.TextFault(name) != "" {
		return contract.Quote(name)
	}
	return name
}

// nearest returns the field that a name probably means; nil: none.
func nearest(name string, fields protoreflect.FieldDescriptors) protoreflect.FieldDescriptor {
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = fields.Get(i).JSONName()
	}
	return fields.ByJSONName(contract.Nearest(name, names))
}
