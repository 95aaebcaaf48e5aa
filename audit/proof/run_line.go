package proof

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// A line of a proof has the input of a record's digests, its place, and the chain digest. Fields
// that a sparse event omitted are omitted. Extensions are in base64. The payload follows: as it is,
// or in base64 if a line cannot hold it.

// lineMember is a member of a line.
type lineMember struct {
	begin string // comma, name and colon
	field contract.Field
	// object: the member is the object of the fields of Original, of which field is the first.
	object bool
}

// lineMembers are the members with what the digests cover but the payload, in the order of a line:
// the place in the run, then all other fields.
var lineMembers = func() []lineMember {
	var place, rest []lineMember
	for _, f := range contract.Fields() {
		m := lineMember{field: f}
		name := f.Name
		switch {
		case f.Kind == contract.KindDigest, f.Kind == contract.KindNames, name == "payload", name == "original.source":
			continue
		case name == "original.persistedAt":
			name, m.object = "original", true
		case f.Kind == contract.KindObject:
			name += "Json"
		}
		m.begin = `,"` + name + `":`
		if name == "runSeq" || name == "persistedAt" {
			place = append(place, m)
		} else {
			rest = append(rest, m)
		}
	}
	return append(place, rest...)
}()

// runOriginal is the member original.
type runOriginal struct {
	PersistedAt string `json:"persistedAt"`
	Source      string `json:"source,omitempty"`
}

// line returns the record as a proof has it, with the line feed.
func (r *Record) line(at Place, chain contract.Digest) ([]byte, error) {
	const usual = 1 << 10 // bytes without the payload
	b := make([]byte, 0, usual+len(r.Payload))
	for i := range lineMembers {
		b = lineMembers[i].append(b, (*contract.Recorded)(r))
	}
	b[0] = '{'
	b = strconv.AppendInt(append(b, `,"index":"`...), at.Index, 10)
	b = strconv.AppendUint(append(b, `","position":"`...), at.Position, 10)
	b = strconv.AppendUint(append(b, `","offset":"`...), uint64(at.Offset), 10)
	b = append(append(append(b, `","chainDigest":"`...), chain.String()...), '"')
	if inLine(r.Payload) {
		b = append(append(b, `,"payload":`...), r.Payload...)
	} else {
		b = appendBase64(append(b, `,"payloadJson":`...), r.Payload)
	}
	return append(b, "}\n"...), nil
}

// append appends a comma and the member; nothing if it is absent.
func (m *lineMember) append(b []byte, r *contract.Recorded) []byte {
	f, begin := &m.field, len(b)
	b = append(b, m.begin...)
	switch f.Kind {
	case contract.KindText:
		text := *f.Text(r)
		if text == "" && (f.Optional || f.Absent != 0) {
			return b[:begin]
		}
		return appendText(b, text)
	case contract.KindCount:
		return strconv.AppendUint(b, uint64(*f.Count(r)), 10)
	case contract.KindNumber:
		return append(strconv.AppendUint(append(b, '"'), *f.Number(r), 10), '"')
	case contract.KindTime:
		if !m.object {
			return append(appendTime(append(b, '"'), *f.Time(r)), '"')
		}
		if r.Original.PersistedAt == 0 {
			return b[:begin]
		}
		b = append(appendTime(append(b, `{"persistedAt":"`...), r.Original.PersistedAt), '"')
		if r.Original.Source != "" {
			b = appendText(append(b, `,"source":`...), r.Original.Source)
		}
		return append(b, '}')
	case contract.KindEventID:
		return append(f.EventID(r).Append(append(b, '"')), '"')
	case contract.KindLine:
		return append(append(append(b, '"'), f.Line(r).String()...), '"')
	case contract.KindSalt:
		return append(append(append(b, '"'), f.Salt(r).String()...), '"')
	case contract.KindObject:
		if len(*f.Object(r)) == 0 {
			return b[:begin]
		}
		return appendBase64(b, *f.Object(r))
	}
	panic("proof: a field that no line has: " + f.Name)
}

// plainText marks the bytes that encoding/json writes as they are.
var plainText = func() (plain [256]bool) {
	for c := ' '; c <= '~'; c++ {
		plain[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return plain
}()

// appendText appends a text as encoding/json writes it, with the escapes for HTML.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if !plainText[text[i]] {
			return append(b, Quote(text)...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// appendTime appends what FormatTime returns.
func appendTime(b []byte, ns int64) []byte {
	return time.Unix(0, ns).UTC().AppendFormat(b, time.RFC3339Nano)
}

func appendBase64(b, object []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), object), '"')
}

// inLine reports whether a line of JSON can hold a payload byte for byte.
func inLine(payload []byte) bool {
	return jsontext.FitsLine(payload) && json.Valid(payload)
}

var errNoObject = errors.New("it is not a JSON object")

// parseRecord parses a line. It does not check that line would write it the same way. The record
// shares its payload with the line.
func parseRecord(text []byte) (r Record, at Place, chain string, err error) {
	if !json.Valid(text) || text[0] != '{' {
		return r, at, "", errNoObject
	}
	c := jsontext.Members(text)
	for name, value, ok := c.Member(); ok && err == nil; name, value, ok = c.Member() {
		switch string(name) {
		case "index":
			n, failed := parsePlace(value, 63)
			at.Index, err = int64(n), failed
		case "position":
			at.Position, err = parsePlace(value, 64)
		case "offset":
			n, failed := parsePlace(value, 32)
			at.Offset, err = uint32(n), failed
		case "chainDigest":
			err = json.Unmarshal(value, &chain)
		case "payload":
			r.Payload = value
		case "payloadJson":
			err = json.Unmarshal(value, &r.Payload)
		default:
			err = parseMember(name, value, (*contract.Recorded)(&r))
		}
		if err != nil {
			return r, at, "", fmt.Errorf("%s: %w", name, err)
		}
	}
	for i := range sparse {
		if f := &sparse[i]; *f.Text((*contract.Recorded)(&r)) == "" {
			r.Absent |= f.Absent
		}
	}
	return r, at, chain, nil
}

// parsePlace parses a number of a place, in decimal digits between quotes.
func parsePlace(value []byte, bits int) (uint64, error) {
	if value[0] != '"' {
		return 0, errors.New("it is not a JSON string")
	}
	return strconv.ParseUint(jsontext.Unquote(value), 10, bits)
}

// parseMember sets the field of a member. It ignores names that no field has.
func parseMember(name, value []byte, r *contract.Recorded) (err error) {
	var m *lineMember
	for i := range lineMembers {
		if lineMembers[i].is(name) {
			m = &lineMembers[i]
		}
	}
	if m == nil {
		return nil
	}
	f := &m.field
	switch {
	case m.object:
		return parseOriginal(value, &r.Original)
	case f.Kind == contract.KindCount:
		return json.Unmarshal(value, f.Count(r))
	case f.Kind == contract.KindObject:
		return json.Unmarshal(value, f.Object(r))
	case value[0] != '"':
		return errors.New("it is not a JSON string")
	}
	text := jsontext.Unquote(value)
	switch f.Kind {
	case contract.KindText:
		*f.Text(r) = text
	case contract.KindNumber:
		*f.Number(r), err = strconv.ParseUint(text, 10, 64)
	case contract.KindTime:
		*f.Time(r), err = parseTime(text)
	case contract.KindEventID:
		var id uuid.UUID
		id, err = uuid.Parse(text)
		*f.EventID(r) = contract.EventID(id)
	case contract.KindSalt:
		if !contract.ParseSalt(f.Salt(r), text) {
			err = errors.New("it is not a salt of 32 lower-case hexadecimal digits")
		}
	case contract.KindLine:
		var known bool
		if *f.Line(r), known = contract.ParseLine(text); !known {
			err = fmt.Errorf("%q is not known", text)
		}
	}
	return err
}

// is reports whether a member has a name.
func (m *lineMember) is(name []byte) bool {
	return len(m.begin) == len(`,"":`)+len(name) && m.begin[2:2+len(name)] == string(name)
}

func parseOriginal(value []byte, o *contract.Original) error {
	var said runOriginal
	err := json.Unmarshal(value, &said)
	if err == nil {
		o.Source = said.Source
		o.PersistedAt, err = parseTime(said.PersistedAt)
	}
	return err
}

// parseTime parses the output of FormatTime.
func parseTime(text string) (int64, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	return at.UnixNano(), err
}
