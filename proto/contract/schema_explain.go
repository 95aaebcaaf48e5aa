package contract

import (
	"bytes"
	"math/bits"
	"strconv"
	"strings"
)

// explainer finds what a payload that is known to be one JSON object has against its rule, all of
// it until there are more than MaxViolations. It is the slow half of the judgement: what
// acceptsPayload has accepted never comes here, and what does may still be valid.
type explainer struct {
	// at is the JSON Pointer of the value in hand, with "payload" in front.
	at  []byte
	bad []Violation
}

// explain returns what the rule has against a payload, none where it has nothing.
func (r *rule) explain(payload []byte) []Violation {
	x := explainer{at: []byte("payload")}
	x.value(r, bytes.Trim(payload, " \t\r\n"))
	return x.bad
}

func (x *explainer) full() bool { return len(x.bad) > MaxViolations }

func (x *explainer) fail(format string, args ...any) {
	x.bad = appendFault(x.bad, string(x.at), format, args...)
	x.bad[len(x.bad)-1].Reason = ReasonSchemaValidationFailed
}

// within goes one step down, to a member or an element, and comes back.
func (x *explainer) within(step string, look func()) {
	if x.full() {
		return
	}
	back := len(x.at)
	x.at = append(append(x.at, '/'), step...)
	look()
	x.at = x.at[:back]
}

// value looks at one value, in raw bytes without white space around it.
func (x *explainer) value(r *rule, raw []byte) {
	if r == nil || x.full() {
		return
	}
	kind := kindOf(raw)
	if kind == kindNumber && isWhole(raw) {
		kind |= kindInteger
	}
	if r.kinds&kind == 0 {
		x.fail("must be %s, is %s", r.kinds.told(), told(raw))
		return
	}
	switch {
	case kind == kindObject:
		x.object(r, raw)
	case kind == kindArray:
		x.array(r, raw)
	case kind == kindString:
		x.text(r, unquote(raw))
	case kind&kindNumber != 0:
		if r.notNegative && isNegative(raw) {
			x.fail("must be 0 or more, is %s", told(raw))
		}
	}
}

// object looks at the members of an object. Of those with the same name the last one counts.
func (x *explainer) object(r *rule, raw []byte) {
	last := make([]int, len(r.members)) // where a member's last value ends; 0: it has none
	var seen uint64
	m := members{text: raw}
	for name, _, ok := m.next(); ok; name, _, ok = m.next() {
		if k := r.find([]byte(unquote(name))); k >= 0 {
			seen |= 1 << k
			last[k] = m.pos
		}
	}
	for _, k := range r.order {
		if seen>>k&1 == 0 {
			x.within(r.members[k].name, func() { x.fail("is required") })
		}
	}
	if !r.hasOneOf(seen) {
		x.fail("must have %s", r.eitherTold())
	}
	m = members{text: raw}
	for name, value, ok := m.next(); ok && !x.full(); name, value, ok = m.next() {
		if k := r.find([]byte(unquote(name))); k >= 0 && last[k] == m.pos {
			x.within(r.members[k].name, func() { x.value(r.members[k].rule, value) })
		}
	}
}

func (x *explainer) array(r *rule, raw []byte) {
	if r.items == nil {
		return
	}
	i := skipSpace(raw, 1)
	for n := 0; raw[i] != ']' && !x.full(); n++ {
		end, _ := scanValue(raw, i)
		x.within(strconv.Itoa(n), func() { x.value(r.items, raw[i:end]) })
		if i = skipSpace(raw, end); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
}

func (x *explainer) text(r *rule, text string) {
	switch {
	case r.words != nil && !r.isWord([]byte(text)):
		quoted := make([]string, len(r.words))
		for i, w := range r.words {
			quoted[i] = strconv.Quote(w)
		}
		x.fail("must be %s, is %s", strings.Join(quoted, " or "), Quote(text))
	case r.form != nil && !r.form.matches([]byte(text)):
		x.fail("must be %s, is %s", r.form.help, Quote(text))
	case r.nonEmpty && text == "":
		x.fail("must not be empty")
	}
}

// told names the types of a set.
func (k kinds) told() string {
	if k&kindNumber != 0 {
		k &^= kindInteger
	}
	var names []string
	for ; k != 0; k &= k - 1 {
		names = append(names, kindNames[bits.TrailingZeros8(uint8(k))].told)
	}
	return strings.Join(names, " or ")
}

// eitherTold names the sets of members of which one must be there.
func (r *rule) eitherTold() string {
	var sets []string
	for _, set := range r.either {
		var names []string
		for ; set != 0; set &= set - 1 {
			names = append(names, r.members[bits.TrailingZeros64(set)].name)
		}
		sets = append(sets, strings.Join(names, " and "))
	}
	return strings.Join(sets, " or ")
}

// told shows a value that has the wrong type: what it is, and itself where it is short.
func told(raw []byte) string {
	const most = 40
	switch kindOf(raw) {
	case kindString:
		return "the string " + Quote(unquote(raw))
	case kindNumber:
		if len(raw) > most {
			return "the number " + string(raw[:most]) + "…"
		}
		return "the number " + string(raw)
	case kindBoolean, kindNull:
		return string(raw)
	case kindObject:
		return "an object"
	}
	return "an array"
}

// kindOf returns the type of a checked value by its first byte; all numbers are kindNumber.
func kindOf(raw []byte) kinds {
	switch raw[0] {
	case '{':
		return kindObject
	case '[':
		return kindArray
	case '"':
		return kindString
	case 't', 'f':
		return kindBoolean
	case 'n':
		return kindNull
	}
	return kindNumber
}

// maxPlaces is how far an exponent may move the point of a whole number. Beyond, the exact
// arithmetic of math/big, and so the JSON Schema library that the tests judge by, knows no numbers.
const maxPlaces = 1_000_000

// isWhole reports whether a checked number has no fraction, however it is written: 1.50e1 has none.
func isWhole(number []byte) bool {
	whole, fraction, exponent := numberParts(number)
	places := int64(0)
	if len(exponent) > 0 {
		var err error
		if places, err = strconv.ParseInt(string(exponent), 10, 64); err != nil {
			return false
		}
	}
	if isZero(whole) && isZero(fraction) {
		return true
	}
	if places -= int64(len(fraction)); places < -maxPlaces || places > maxPlaces {
		return false
	}
	// The last digit stands for 10^places; as many zeros must stand there as are behind the point.
	zeros := trailingZeros(fraction)
	if zeros == len(fraction) {
		zeros += trailingZeros(whole)
	}
	return places+int64(zeros) >= 0
}

func isNegative(number []byte) bool {
	whole, fraction, _ := numberParts(number)
	return number[0] == '-' && (!isZero(whole) || !isZero(fraction))
}

// numberParts takes a checked number apart; its sign is left out.
func numberParts(number []byte) (whole, fraction, exponent []byte) {
	number = bytes.TrimPrefix(number, []byte("-"))
	if e := bytes.IndexAny(number, "eE"); e >= 0 {
		number, exponent = number[:e], number[e+1:]
	}
	whole, fraction, _ = bytes.Cut(number, []byte("."))
	return whole, fraction, exponent
}

func isZero(digits []byte) bool { return trailingZeros(digits) == len(digits) }

func trailingZeros(digits []byte) int { return len(digits) - len(bytes.TrimRight(digits, "0")) }
