package decode

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

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
			return textHelp(value)
		}
		return "must be a string, got " + jsontext.Show(value)
	case protoreflect.BytesKind:
		help := "must be bytes in base64, got " + jsontext.Show(value)
		if fd.Name() == "payload_json" {
			help += "; over HTTP write the payload as a JSON object under payload"
		}
		return help
	case protoreflect.MessageKind:
		switch fd.Message().FullName() {
		case "google.protobuf.Timestamp":
			text := ""
			if value[0] == '"' {
				text = jsontext.Text(value)
			}
			return timeHelp(text) + "; got " + jsontext.Show(value)
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

var (
	dateTime   = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?$`)
	leapTime   = regexp.MustCompile(`^[^:]*:\d\d:60`)
	tooPrecise = regexp.MustCompile(`\.\d{10,}`)
)

// timeHelp describes what is wrong with a text that should be a time.
func timeHelp(text string) string {
	const form = "must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z"
	hint := ""
	switch {
	case !dateTime.MatchString(text):
	case leapTime.MatchString(text):
		hint = ", without a leap second: send the second before or after it"
	case tooPrecise.MatchString(text):
		hint = ", with at most nine digits after the point"
	case strings.ContainsAny(text, "tz "):
		hint = ", with a capital T and Z"
	case strings.HasSuffix(text, "Z") || strings.ContainsAny(text[len("2026-02-11T10:30:00"):], "+-"):
		hint = ", on an existing day and at an existing time, from year 1 to 9999"
	default:
		hint = ", with Z or an offset from UTC"
	}
	return form + hint
}

// isText reports whether the decoder accepts a quoted string as Unicode text.
func isText(quoted []byte) bool {
	return decoder.Unmarshal(quoted, new(wrapperspb.StringValue)) == nil
}

// textHelp describes what is wrong with a quoted string.
func textHelp(quoted []byte) string {
	if !utf8.Valid(quoted) {
		return "is not valid UTF-8"
	}
	return "escapes a lone surrogate, which is not Unicode text"
}

// showName converts any member's name into a step of a path.
func showName(name string) string {
	if len(name) > shownBytes || contract.TextFault(name) != "" {
		return contract.Quote(name)
	}
	return name
}

// spellings returns both ways to write a field.
func spellings(fd protoreflect.FieldDescriptor) string {
	if fd.JSONName() == string(fd.Name()) {
		return strconv.Quote(fd.JSONName())
	}
	return fmt.Sprintf("%q (or %q)", fd.JSONName(), fd.Name())
}

// nearest returns the field that a name probably means: equal except for letter case, separators
// and two typing errors.
func nearest(name string, fields protoreflect.FieldDescriptors) protoreflect.FieldDescriptor {
	const most = 2
	var found protoreflect.FieldDescriptor
	best := most + 1
	name = plainName(name)
	if len(name) > 64 { // Longer than every field plus typing errors.
		return nil
	}
	for i := range fields.Len() {
		field := plainName(fields.Get(i).JSONName())
		// Two errors in a short name leave nothing recognisable.
		if d := distance(name, field); d < best && 3*d <= len(field) {
			found, best = fields.Get(i), d
		}
	}
	return found
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

func plainName(name string) string { return strings.ToLower(separators.Replace(name)) }

// distance is the Levenshtein distance: the number of bytes to add, drop or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
