package contract

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"

	"runlog/proto/contract/jsontext"
)

// Faults of a Struct that has no JSON form.
const (
	badStructNumber = "a number is NaN or infinite, which JSON cannot express"
	badStructText   = "a string or a member name is not valid UTF-8"
	badStructValue  = "a value has no kind; send a null instead"
)

// maxPathBytes bounds the path of a fault, steps that do not fit are left out.
const maxPathBytes = 200

// EncodeStruct returns the canonical JSON (RFC 8785) of a Struct: members sorted by their UTF-16
// code units, numbers in the shortest form that ECMAScript writes, no white space, no escape that
// is not needed. The same Struct always gives the same bytes. The path of a fault is a JSON Pointer
// (RFC 6901) from the Struct, such as "/list/2/ratio"; it is empty for a fault of the Struct
// itself.
func EncodeStruct(s *structpb.Struct) (json []byte, path, fault string) {
	e := structEncoder{out: make([]byte, 0, 256)}
	e.object(s, 1)
	return e.out, e.path, e.fault
}

// pointerEscapes turns a member's name into a step of a JSON Pointer.
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// structEncoder appends to out until the first fault. The path grows from the fault outwards.
type structEncoder struct {
	out         []byte
	path, fault string
}

// outwards puts a step in front of the path of a fault.
func (e *structEncoder) outwards(step string) {
	if len(e.path)+len(step) <= maxPathBytes {
		e.path = step + e.path
	}
}

func (e *structEncoder) value(v *structpb.Value, depth int) {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NullValue:
		e.out = append(e.out, "null"...)
	case *structpb.Value_BoolValue:
		e.out = strconv.AppendBool(e.out, kind.BoolValue)
	case *structpb.Value_NumberValue:
		if math.IsNaN(kind.NumberValue) || math.IsInf(kind.NumberValue, 0) {
			e.fault = badStructNumber
			return
		}
		e.out = appendDouble(e.out, kind.NumberValue)
	case *structpb.Value_StringValue:
		e.text(kind.StringValue)
	case *structpb.Value_StructValue:
		e.object(kind.StructValue, depth)
	case *structpb.Value_ListValue:
		e.list(kind.ListValue, depth)
	default:
		e.fault = badStructValue
	}
}

func (e *structEncoder) object(s *structpb.Struct, depth int) {
	if depth > MaxDepth {
		e.fault = jsontext.FaultDepth.String()
		return
	}
	names := make([]string, 0, len(s.GetFields()))
	for name := range s.GetFields() {
		names = append(names, name)
	}
	slices.SortFunc(names, compareUTF16)
	e.out = append(e.out, '{')
	for i, name := range names {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		if e.text(name); e.fault != "" {
			return
		}
		e.out = append(e.out, ':')
		if e.value(s.GetFields()[name], depth+1); e.fault != "" {
			e.outwards("/" + pointerEscapes.Replace(name))
			return
		}
	}
	e.out = append(e.out, '}')
}

func (e *structEncoder) list(l *structpb.ListValue, depth int) {
	if depth > MaxDepth {
		e.fault = jsontext.FaultDepth.String()
		return
	}
	e.out = append(e.out, '[')
	for i, v := range l.GetValues() {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		if e.value(v, depth+1); e.fault != "" {
			e.outwards("/" + strconv.Itoa(i))
			return
		}
	}
	e.out = append(e.out, ']')
}

func (e *structEncoder) text(s string) {
	if !utf8.ValidString(s) {
		e.fault = badStructText
		return
	}
	e.out = jsontext.AppendQuoted(e.out, s)
}

// appendDouble appends a finite number as ECMAScript's Number.prototype.toString writes it (RFC
// 8785, section 3.2.2.3): plain from 1e-6 up to below 1e21, else with an exponent; minus zero is 0.
func appendDouble(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go pads the exponent to two digits, ECMAScript does not: e-07 becomes e-7.
	if n := len(dst); dst[n-2] == '0' && dst[n-4] == 'e' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// compareUTF16 compares by UTF-16 code units, as RFC 8785 sorts members. It differs from the order
// of the UTF-8 bytes only where characters beyond U+FFFF meet U+E000 to U+FFFF.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if x != y {
			if p, q := firstUnit(x), firstUnit(y); p != q {
				return int(p - q)
			}
			return int(x - y)
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

// firstUnit returns the first UTF-16 code unit of a character.
func firstUnit(r rune) rune {
	if r < 0x10000 {
		return r
	}
	return 0xD800 + (r-0x10000)>>10
}
