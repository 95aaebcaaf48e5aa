package cloudevent

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"runlog/proto/contract/jsontext"
	"runlog/storage"
)

const (
	// ContentType is that of an event in structured mode.
	ContentType = "application/cloudevents+json"
	// dataContentType is that of every payload.
	dataContentType = "application/json"
	specVersion     = "1.0"
	headerPrefix    = "ce-"

	// roomForAttributes is about the size of an event in structured mode without its payload.
	roomForAttributes = 512
)

// Event is a stored event and what else its CloudEvent says.
type Event struct {
	Record *storage.Record
	// Cluster is the id of the cluster.
	Cluster string
	// Position is the position of the record, as answers of the API name it.
	Position string
}

// attribute is one attribute of an event. All of them are strings in JSON.
type attribute struct{ name, value string }

// attributes returns the attributes of an event except for specversion and datacontenttype. An
// empty value means that the event does not have the attribute.
func (e *Event) attributes() [9]attribute {
	r := e.Record
	return [...]attribute{
		{"id", e.ID()},
		{"source", e.source()},
		{"type", "runlog." + r.Type},
		{"subject", r.RunID},
		{"time", r.Persisted().Format(time.RFC3339Nano)},
		{"eventid", r.EventID.String()},
		{"runseq", strconv.FormatUint(r.RunSeq, 10)},
		{"tenant", r.TenantID},
		{"position", e.Position},
	}
}

// ID returns the id of the event, which is the same for every attempt. No other event of its
// source has it: a runSeq has no slash (ENV-10).
func (e *Event) ID() string {
	return string(strconv.AppendUint(append([]byte(e.Record.RunID), '/'), e.Record.RunSeq, 10))
}

// MessageID returns the id of the event with that of the cluster before it, for receivers that
// recognise a message by its id alone: a cluster that was restored from a backup has other events
// at the same places. It is percent-encoded text of letters, digits and -_~/%. The dot is left out,
// because the signature of a webhook puts dots behind the id (Standard Webhooks 1.0.0).
func (e *Event) MessageID() string {
	plain := func(c byte) bool { return isUnreserved(c) && c != '.' || c == '/' }
	return string(appendPercent(appendPercent(nil, e.Cluster+"/", plain), e.ID(), plain))
}

func (e *Event) source() string {
	source := append(make([]byte, 0, 128), "/runlog/"...)
	source = appendPercent(source, e.Cluster, isUnreserved)
	source = appendPercent(append(source, '/'), e.Record.TenantID, isUnreserved)
	return string(source)
}

// AppendStructured appends the event in structured mode: one JSON object. Its last member is data.
func AppendStructured(dst []byte, e *Event) []byte {
	dst = slices.Grow(dst, roomForAttributes+len(e.Record.Payload))
	dst = append(dst, `{"specversion":"`+specVersion+`"`...)
	for _, a := range e.attributes() {
		if a.value != "" {
			dst = append(append(append(dst, `,"`...), a.name...), `":`...)
			dst = jsontext.AppendQuoted(dst, a.value)
		}
	}
	dst = append(dst, `,"datacontenttype":"`+dataContentType+`","data":`...)
	return append(append(dst, e.Record.Payload...), '}')
}

// SetHeaders sets the headers of the event in binary mode, whose body is the payload (CloudEvents,
// HTTP Protocol Binding 1.0, 3.1).
func SetHeaders(h http.Header, e *Event) {
	h.Set("Content-Type", dataContentType)
	h.Set(headerPrefix+"specversion", specVersion)
	for _, a := range e.attributes() {
		if a.value != "" {
			h.Set(headerPrefix+a.name, string(appendPercent(nil, a.value, isPlainInHeader)))
		}
	}
}

// appendPercent appends s with every byte percent-encoded that is not plain.
func appendPercent(dst []byte, s string, plain func(byte) bool) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; plain(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

// isUnreserved reports whether a URI has the character as it is (RFC 3986, 2.3).
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// isPlainInHeader reports whether a header of binary mode has the character as it is (CloudEvents,
// HTTP Protocol Binding 1.0, 3.1.3.2).
func isPlainInHeader(c byte) bool {
	return '!' <= c && c <= '~' && c != '"' && c != '%'
}
