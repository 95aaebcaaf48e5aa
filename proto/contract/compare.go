package contract

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"

	"runlog/proto/contract/jsontext"
)

// SameContent reports whether two events under one key say the same (IDM-7): whether everything but
// eventId, engineAttemptId, emittedAt and emittedBy is equal. A duplicate for which it is false has
// diverged from the stored event.
//
// Payloads and extensions are compared as JSON values: the order of members and the spelling of
// strings do not matter, of duplicate members the last counts, and numbers are compared exactly, as
// decimals, so that 1, 1.0 and 1e0 are equal and no large integer is rounded. An exponent of more
// than 18 digits is compared as it is written.
//
// Both events must be resolved: what a sparse 1.1 event left out is compared by the value inherited
// from the run, so that a duplicate that names a field is not a divergence from one that left it
// out. Absent and KeyDerived are therefore not compared.
func SameContent(a, b *Event) bool {
	for i := range contentFields {
		f := &contentFields[i]
		x, y := f.in(a), f.in(b)
		if f.kind == KindText { // as most are
			if *(*string)(x) != *(*string)(y) {
				return false
			}
			continue
		}
		same := false
		switch f.kind {
		case KindCount:
			same = *(*uint32)(x) == *(*uint32)(y)
		case KindTime:
			same = *(*int64)(x) == *(*int64)(y)
		case KindEventID:
			same = *(*EventID)(x) == *(*EventID)(y)
		case KindLine:
			same = *(*Line)(x) == *(*Line)(y)
		case KindObject:
			same = sameObject(*(*[]byte)(x), *(*[]byte)(y))
		}
		if !same {
			return false
		}
	}
	return sameObject(a.Payload, b.Payload)
}

// sameObject compares two payloads, or extensions, as JSON values. Bytes that are no JSON object,
// which no validated event holds, equal only themselves.
func sameObject(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if _, fault := jsontext.CheckObject(a, MaxDepth); fault != 0 {
		return false
	}
	if _, fault := jsontext.CheckObject(b, MaxDepth); fault != 0 {
		return false
	}
	formA, _ := appendComparable(make([]byte, 0, len(a)+len(a)/4), a, 0)
	formB, _ := appendComparable(make([]byte, 0, len(b)+len(b)/4), b, 0)
	return bytes.Equal(formA, formB)
}

// appendComparable appends a form of the checked JSON value at b[i] that is equal, byte for byte,
// for equal values, and returns the position after the value. The form says where it ends:
//
//	{ name value … }   members sorted by name, duplicates removed
//	[ value … ]
//	" length text      a string or a name; 4 bytes, big endian; unescaped
//	+ digits e exp ;   a number; or - for a negative one
//	t f n              literals
//
// It walks over the text once, whatever the nesting, and recurses at most MaxDepth times.
func appendComparable(dst, b []byte, i int) ([]byte, int) {
	i = jsontext.SkipSpace(b, i)
	switch b[i] {
	case '{':
		return appendComparableObject(dst, b, i)
	case '[':
		dst = append(dst, '[')
		for i = jsontext.SkipSpace(b, i+1); b[i] != ']'; i = jsontext.SkipSpace(b, i) {
			if b[i] == ',' {
				i++
			}
			dst, i = appendComparable(dst, b, i)
		}
		return append(dst, ']'), i + 1
	case '"':
		return appendComparableString(dst, b, i)
	case 't', 'f', 'n':
		end, _ := jsontext.ScanScalar(b, i)
		return append(dst, b[i]), end
	default:
		end, _ := jsontext.ScanNumber(b, i)
		return appendDecimal(dst, b[i:end]), end
	}
}

func appendComparableString(dst, b []byte, i int) ([]byte, int) {
	end := jsontext.SkipString(b, i)
	dst = append(dst, '"')
	mark := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = jsontext.AppendUnquoted(dst, b[i:end])
	binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark-4))
	return dst, end
}

// span is the comparable form of one member inside the form of its object.
type span struct{ name, form []byte }

func appendComparableObject(dst, b []byte, i int) ([]byte, int) {
	type place struct{ start, value, end int }
	var places []place
	dst = append(dst, '{')
	begin := len(dst)
	for i = jsontext.SkipSpace(b, i+1); b[i] != '}'; i = jsontext.SkipSpace(b, i) {
		if b[i] == ',' {
			i = jsontext.SkipSpace(b, i+1)
		}
		p := place{start: len(dst)}
		dst, i = appendComparableString(dst, b, i)
		p.value = len(dst)
		i = jsontext.SkipSpace(b, i) + 1 // The colon.
		dst, i = appendComparable(dst, b, i)
		p.end = len(dst)
		places = append(places, p)
	}

	spans := make([]span, len(places))
	sorted := true
	for k, p := range places {
		spans[k] = span{name: dst[p.start+5 : p.value], form: dst[p.start:p.end]}
		sorted = sorted && (k == 0 || bytes.Compare(spans[k-1].name, spans[k].name) < 0)
	}
	if !sorted {
		dst = append(dst[:begin], sortMembers(spans, len(dst)-begin)...)
	}
	return append(dst, '}'), i + 1
}

// sortMembers returns the forms in the order of their names, of equal names the last.
func sortMembers(spans []span, size int) []byte {
	slices.SortStableFunc(spans, func(x, y span) int { return bytes.Compare(x.name, y.name) })
	out := make([]byte, 0, size)
	for k, s := range spans {
		if k+1 < len(spans) && bytes.Equal(s.name, spans[k+1].name) {
			continue
		}
		out = append(out, s.form...)
	}
	return out
}

// maxExponentDigits keeps exponents, with the digits moved out of a fraction, within an int64.
const maxExponentDigits = 18

// appendDecimal appends the comparable form of a JSON number: its sign, its digits without zeros in
// front or behind, and the power of ten that belongs to the last digit. Every zero is "+0;".
func appendDecimal(dst, number []byte) []byte {
	sign := byte('+')
	negative, whole, fraction, exponent := jsontext.SplitNumber(number)
	if negative {
		sign = '-'
	}
	mark := len(dst)
	dst = append(dst, sign)
	first := len(dst)
	dst = append(dst, bytes.TrimLeft(whole, "0")...)
	if len(dst) == first {
		fractionDigits := bytes.TrimLeft(fraction, "0")
		dst = append(dst, fractionDigits...)
	} else {
		dst = append(dst, fraction...)
	}
	shift := int64(-len(fraction))
	for len(dst) > first && dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
		shift++
	}
	if len(dst) == first {
		return append(dst[:mark], "+0;"...)
	}
	return append(appendExponent(append(dst, 'e'), exponent, shift), ';')
}

// appendExponent appends the sum of a written exponent and shift. One too long to be added up is
// appended as it is written, followed by the shift.
func appendExponent(dst, exponent []byte, shift int64) []byte {
	negative := len(exponent) > 0 && exponent[0] == '-'
	digits := bytes.TrimLeft(exponent, "+-0")
	if len(digits) > maxExponentDigits {
		if negative {
			dst = append(dst, '-')
		}
		return strconv.AppendInt(append(append(dst, digits...), '~'), shift, 10)
	}
	var value int64
	for _, c := range digits {
		value = value*10 + int64(c-'0')
	}
	if negative {
		value = -value
	}
	return strconv.AppendInt(dst, value+shift, 10)
}
