package contract

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// ParseEvent reads one event from a line of JSON: an object in lowerCamel or snake case, either an
// envelope with its payload (2.x) or, with contractVersion "1.1", a flat event whose other members
// become the payload. payload and extensions keep their bytes (ENV-8). A null member is an absent
// one; 64-bit and 32-bit integers may be decimal strings, as in proto-JSON.
//
// It does not validate: see ValidateAll. The error is an *Error whose violations name the field,
// or, when the line is not JSON, the byte (metadata offset).
func ParseEvent(line []byte) (*runlogv1.EventWrite, error) {
	if err := checkLine(line); err != nil {
		return nil, err
	}
	w := &runlogv1.EventWrite{}
	if bad := ReadEvent(w, line); len(bad) > 0 {
		return nil, NewError(bad)
	}
	return w, nil
}

// checkLine requires that a line is one JSON object.
func checkLine(line []byte) error {
	// A payload of MaxDepth levels lies one level deeper in its event.
	pos, fault := jsontext.CheckObject(line, MaxDepth+1)
	if fault == 0 {
		return nil
	}
	err := NewError(appendFault(nil, "", "not a JSON event at byte %d: %s", pos, fault))
	err.Metadata[metadataOffset] = strconv.Itoa(pos)
	return err
}

// ReadEvent is ParseEvent for the text of an object that the caller has checked. It sets w, and
// returns every fault. w shares the bytes of its payload and extensions with the text.
func ReadEvent(w *runlogv1.EventWrite, object []byte) []Violation {
	r := eventReader{w: w}
	r.read(object)
	return r.bad
}

// eventReader reads one event.
type eventReader struct {
	w    *runlogv1.EventWrite
	line Line
	// seen has a bit for each field that the text has, null or not.
	seen uint64
	// payload is the member payload as it is written; nil: none. encoded: it was in base64.
	payload []byte
	encoded bool
	// strangers are the members that are no envelope fields, in their order.
	strangers []member
	bad       []Violation
}

// member is one member of an event's JSON text, in raw bytes.
type member struct {
	name    string // unescaped
	rawName []byte // with its quotes
	value   []byte
}

func (r *eventReader) read(object []byte) {
	c := jsontext.Members(object)
	for quoted, value, ok := c.Quoted(); ok; quoted, value, ok = c.Quoted() {
		name := quoted[1 : len(quoted)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = jsontext.AppendUnquoted(nil, quoted)
		}
		f := fieldOf(name)
		if f == noField {
			r.strangers = append(r.strangers, member{name: string(name), rawName: quoted, value: value})
			continue
		}
		if r.seen>>f&1 == 1 {
			r.fault(f.String(), "appears twice: keep one")
			continue
		}
		r.seen |= 1 << f
		if string(value) == "null" {
			continue
		}
		if help := r.set(f, value); help != "" {
			r.fault(f.String(), "%s", help)
		}
	}
	r.finish()
}

func (r *eventReader) fault(field, format string, args ...any) {
	r.bad = appendFault(r.bad, field, format, args...)
}

// finish takes the payload and the members that are no envelope fields: on line 1.1 they belong to
// the payload, on 2.x they are faults.
func (r *eventReader) finish() {
	if len(r.strangers) > 0 {
		if r.line == Line2 {
			for i := range r.strangers {
				r.fault(showName(r.strangers[i].name), "%s", strangerHelp(r.strangers[i].name))
			}
		} else {
			r.flatten()
		}
	}
	if r.payload != nil {
		r.w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: r.payload}
	}
}

// set sets an envelope field from its raw JSON value, and says what is wrong with that.
func (r *eventReader) set(f field, raw []byte) string {
	written := &jsonFields[f].written
	at := unsafe.Add(unsafe.Pointer(r.w), written.Offset)
	switch written.Kind {
	case KindText, KindEventID:
		return setText((*string)(at), raw)
	case KindCount:
		return setCount((*uint32)(at), raw)
	case KindTime:
		return setTime((**timestamppb.Timestamp)(at), raw)
	case KindLine:
		version := (*string)(at)
		help := setText(version, raw)
		r.line, _ = ParseLine(*version)
		return help
	case 0:
		return r.setObject(f, raw)
	}
	panic("contract: a field that has no JSON text: " + written.Name)
}

// setObject sets the payload or the extensions, in either form.
func (r *eventReader) setObject(f field, raw []byte) string {
	dst, other := &r.payload, payloadField
	if f == extensionsField || f == extensionsJSONField {
		dst, other = &r.w.ExtensionsJson, extensionsField
	}
	asText := f == payloadField || f == extensionsField
	if asText {
		other++
	}
	switch {
	case *dst != nil:
		return "appears beside " + other.String() + ": keep one"
	case !asText:
		r.encoded = r.encoded || f == payloadJSONField
		return setBytes(dst, raw, other)
	case raw[0] != '{':
		return "must be a JSON object, got " + jsontext.Show(raw)
	}
	*dst = raw
	return ""
}

func setText(dst *string, raw []byte) string {
	if raw[0] != '"' {
		return "must be a string, got " + jsontext.Show(raw)
	}
	*dst = jsontext.Unquote(raw)
	return TextHelp(raw, *dst)
}

// TextHelp says why a quoted string, whose text is given, is not Unicode text; empty if it is.
func TextHelp(quoted []byte, text string) string {
	switch {
	case utf8.ValidString(text):
		return ""
	case !utf8.Valid(quoted):
		return NotUTF8
	}
	return "escapes a lone surrogate, which is not Unicode text"
}

func setCount(dst *uint32, raw []byte) string {
	n, ok := parseWhole(raw, 32)
	if !ok {
		return "must be an integer from 0 to 4294967295, got " + jsontext.Show(raw)
	}
	*dst = uint32(n)
	return ""
}

// parseWhole reads a JSON number without a fraction, however it is written, or a string that is
// such a number, as proto-JSON does.
func parseWhole(raw []byte, bits int) (uint64, bool) {
	if raw[0] == '"' {
		if raw = []byte(jsontext.Unquote(raw)); len(raw) == 0 {
			return 0, false
		}
	}
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	if end, fault := jsontext.ScanNumber(raw, 0); fault != 0 || end != len(raw) {
		return 0, false
	}
	if n, err := strconv.ParseUint(string(raw), 10, bits); err == nil {
		return n, true
	}
	negative, whole, fraction, exponent := jsontext.SplitNumber(raw)
	digits := strings.TrimLeft(string(whole)+string(fraction), "0")
	if digits == "" {
		return 0, true
	}
	places := 0
	if len(exponent) > 0 {
		e, err := strconv.ParseInt(string(exponent), 10, 32)
		if err != nil {
			return 0, false
		}
		places = int(e)
	}
	for places -= len(fraction); places < 0 && strings.HasSuffix(digits, "0"); places++ {
		digits = digits[:len(digits)-1]
	}
	const most = 20 // digits of the largest uint64
	if negative || places < 0 || places > most {
		return 0, false
	}
	n, err := strconv.ParseUint(digits+strings.Repeat("0", places), 10, bits)
	return n, err == nil
}

func setTime(dst **timestamppb.Timestamp, raw []byte) string {
	text := ""
	if raw[0] == '"' {
		text = jsontext.Unquote(raw)
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	at := timestamppb.New(t)
	if err != nil || !isStrictTime(text) || !at.IsValid() {
		return TimeHelp(text) + "; got " + jsontext.Show(raw)
	}
	*dst = at
	return ""
}

// isStrictTime refuses what time.Parse takes beyond RFC 3339: an hour of one digit, a decimal
// comma, an offset out of range; and digits beyond the ninth, which it drops in silence.
func isStrictTime(text string) bool {
	const seconds = len("2006-01-02T15:04:05")
	if len(text) <= seconds || text[len("2006-01-02T15")] != ':' {
		return false
	}
	zone := text[seconds:]
	if zone[0] == '.' {
		end := jsontext.SkipDigits([]byte(zone), 1)
		if end > 10 {
			return false
		}
		zone = zone[end:]
	}
	return zone == "Z" || len(zone) == 6 && zone[1:3] <= "23" && zone[4:] <= "59"
}

// setBytes takes the JSON object that base64 stands for; whether it is one, the validation of the
// event tells. It knows both alphabets, with padding or without, as proto-JSON does.
func setBytes(dst *[]byte, raw []byte, natural field) string {
	if raw[0] == '"' {
		text, encoding := jsontext.Unquote(raw), base64.StdEncoding
		if strings.ContainsAny(text, "-_") {
			encoding = base64.URLEncoding
		}
		if len(text)%4 != 0 {
			encoding = encoding.WithPadding(base64.NoPadding)
		}
		if b, err := encoding.DecodeString(text); err == nil {
			*dst = b
			return ""
		}
	}
	return "must be bytes in base64, got " + jsontext.Show(raw) + "; write a JSON object under " + natural.String()
}
