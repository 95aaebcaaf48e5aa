package schema

import (
	"bytes"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"runlog/proto/contract/jsontext"
)

// Fault is one fault of a payload.
type Fault struct {
	// Path is the JSON Pointer (RFC 6901) of the value from the payload; empty means the payload.
	Path string
	// Description says what the value must be and, where it is not missing, what it is.
	Description string
}

// Faults returns the faults of a payload that is known to be one JSON object, remarks on its
// optional fields that have an unexpected form (ENV-9), and the values of the right form that a
// snapshot cannot show as they are (ENV-12); at most most of each. No fault means that the payload
// is valid.
func (r *Rule) Faults(payload []byte, most int) (faults, remarks, unshown []Fault) {
	x := explainer{most: most}
	x.value(r, bytes.Trim(payload, " \t\r\n"))
	return x.faults, x.remarks, x.unshown
}

// explainer is the slow half of the check: it gathers every fault.
type explainer struct {
	path            []byte // of the value in hand
	most            int
	faults, remarks []Fault
	unshown         []Fault
	// optional is true inside a value that may have any form.
	optional bool
}

func (x *explainer) full() bool { return len(x.faults) >= x.most }

// must reports that the value in hand is not what it must be or, if it is optional, should be.
func (x *explainer) must(description string) {
	x.report("must "+description, "should "+description)
}

func (x *explainer) report(fault, remark string) {
	switch {
	case !x.optional && !x.full():
		x.faults = append(x.faults, Fault{string(x.path), fault})
	case x.optional && len(x.remarks) < x.most:
		x.remarks = append(x.remarks, Fault{string(x.path), remark})
	}
}

// shows reports that a snapshot shows something else than the value in hand, or nothing.
func (x *explainer) shows(what string, raw []byte) {
	if len(x.unshown) < x.most {
		x.unshown = append(x.unshown, Fault{string(x.path), "is kept, but snapshots do not show it as it is: they show " + what + "; got " + jsontext.Show(raw)})
	}
}

// within goes one step down, to a member or an element, and comes back.
func (x *explainer) within(step string, look func()) {
	if x.full() {
		return
	}
	back := len(x.path)
	x.path = append(append(x.path, '/'), step...)
	look()
	x.path = x.path[:back]
}

// value checks one value, as it is written, without white space around it.
func (x *explainer) value(r *Rule, raw []byte) {
	if r == nil || x.full() {
		return
	}
	if outer := x.optional; r.optional && !outer {
		x.optional = true
		defer func() { x.optional = outer }()
	}
	kind := kindOf(raw)
	if kind == kindNumber && isWhole(raw) {
		kind |= kindInteger
	}
	if r.kinds&kind == 0 {
		x.must("be " + r.kinds.describe() + ", got " + jsontext.Show(raw))
		return
	}
	switch {
	case kind == kindObject:
		x.object(r, raw)
	case kind == kindArray:
		x.array(r, raw)
	case kind == kindString:
		x.text(r, raw)
	case kind&kindNumber != 0:
		x.number(r, raw)
	}
}

// object checks the members of an object. Of those with the same name the last one counts.
func (x *explainer) object(r *Rule, raw []byte) {
	last := make([]int, len(r.members)) // the offset after a member's last value; 0: it has none
	var seen uint64
	c := jsontext.Members(raw)
	for name, _, ok := c.Member(); ok; name, _, ok = c.Member() {
		if k := r.find(name); k >= 0 {
			seen |= 1 << k
			last[k] = c.Pos()
		}
	}
	for _, k := range r.order {
		if seen>>k&1 == 0 {
			x.within(r.members[k].name, func() { x.report("is required", "is missing") })
		}
	}
	if !r.hasOneOf(seen) {
		x.must("have " + r.describeEither())
	}
	c = jsontext.Members(raw)
	for name, value, ok := c.Member(); ok && !x.full(); name, value, ok = c.Member() {
		if k := r.find(name); k >= 0 && last[k] == c.Pos() {
			x.within(r.members[k].name, func() { x.value(r.members[k].rule, value) })
		}
	}
}

func (x *explainer) array(r *Rule, raw []byte) {
	if r.items == nil {
		return
	}
	c := jsontext.Elements(raw)
	element, ok := c.Element()
	for n := 0; ok && !x.full(); n++ {
		x.within(strconv.Itoa(n), func() { x.value(r.items, element) })
		element, ok = c.Element()
	}
}

func (x *explainer) number(r *Rule, raw []byte) {
	if !r.notNegative {
		return
	}
	if isNegative(raw) {
		x.must("be 0 or more, got " + jsontext.Show(raw))
		return
	}
	if _, exact, ok := jsontext.Size(raw); !exact || !ok {
		x.shows("whole numbers up to 9223372036854775807, from 9007199254740992 on only in digits alone", raw)
	}
}

func (x *explainer) text(r *Rule, raw []byte) {
	text := []byte(jsontext.Unquote(raw))
	switch {
	case r.words != nil && !r.isWord(text):
		quoted := make([]string, len(r.words))
		for i, w := range r.words {
			quoted[i] = strconv.Quote(w)
		}
		x.must("be " + strings.Join(quoted, " or ") + ", got " + jsontext.Show(raw))
	case r.form != nil && !r.form.matches(text):
		x.must("be " + r.form.help + ", got " + jsontext.Show(raw))
	case r.nonEmpty && len(text) == 0:
		x.must("not be empty")
	case r.form != nil && !r.form.shown(raw[1:len(raw)-1]):
		x.shows(r.form.shows, raw)
	case !utf8.Valid(text):
		x.shows("U+FFFD in place of a lone surrogate", raw)
	}
}

// describe names the types of a set.
func (k kinds) describe() string {
	if k&kindNumber != 0 {
		k &^= kindInteger
	}
	var names []string
	for ; k != 0; k &= k - 1 {
		names = append(names, kindNames[bits.TrailingZeros8(uint8(k))].prose)
	}
	return strings.Join(names, " or ")
}

// describeEither names the sets of members, one of which the object must have.
func (r *Rule) describeEither() string {
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

// kindOf returns the type of a checked value by its first byte; every number is kindNumber.
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

// maxPlaces is how far an exponent may move the point of a whole number. The exact arithmetic of
// math/big, and so the JSON Schema library that the tests compare with, has the same limit.
const maxPlaces = 1_000_000

// isWhole reports whether a checked number has no fraction, in whatever spelling: 1.50e1 has none.
func isWhole(number []byte) bool {
	_, whole, fraction, exponent := jsontext.SplitNumber(number)
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
	// The last digit stands for 10^places. That many zeros must stand at the end of the digits
	// when places is negative.
	zeros := trailingZeros(fraction)
	if zeros == len(fraction) {
		zeros += trailingZeros(whole)
	}
	return places+int64(zeros) >= 0
}

func isNegative(number []byte) bool {
	negative, whole, fraction, _ := jsontext.SplitNumber(number)
	return negative && (!isZero(whole) || !isZero(fraction))
}

func isZero(digits []byte) bool { return trailingZeros(digits) == len(digits) }

func trailingZeros(digits []byte) int { return len(digits) - len(bytes.TrimRight(digits, "0")) }
