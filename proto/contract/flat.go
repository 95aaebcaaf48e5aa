package contract

import (
	"fmt"
	"slices"

	"runlog/proto/contract/jsontext"
)

// flatten makes the payload of a 1.1 event: its payload member as it is, followed by the members
// that are no envelope fields, with their raw bytes. It drops runSeq and persistedAt. A name in
// both is a fault.
func (r *eventReader) flatten() {
	r.strangers = slices.DeleteFunc(r.strangers, func(m member) bool { return isServerAssigned(m.name) })
	if len(r.strangers) == 0 {
		return
	}
	if r.encoded {
		r.fault(payloadJSONField.String(), "appears beside the members of a flat event: keep one")
		return
	}
	taken := make(map[string]string)
	c := jsontext.Members(r.payload)
	for name, _, ok := c.Member(); ok; name, _, ok = c.Member() {
		taken[string(name)] = "appears beside the envelope and inside payload: keep one"
	}
	out := []byte{'{'}
	if len(taken) > 0 {
		out = append(out[:0], r.payload[:len(r.payload)-1]...)
	}
	for _, m := range r.strangers {
		if fault := taken[m.name]; fault != "" {
			r.fault(showName(m.name), "%s", fault)
		}
		taken[m.name] = "appears twice: keep one"
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.rawName...), ':'), m.value...)
	}
	out = append(out, '}')
	// A member is one level deeper in the payload than it was beside the envelope.
	if _, fault := jsontext.CheckObject(out, MaxDepth); fault != 0 {
		r.fault(payloadField.String(), "of this flat event is %s", fault)
	}
	r.payload = out
}

// strangerHelp says what to do about a member of a 2.x event that is no envelope field (ENV-4).
func strangerHelp(name string) string {
	switch {
	case name == "occurredAt" || name == "occurred_at":
		return "is not a field of the 2.x envelope (ENV-4): put the source's time into payload.sourceOccurredAt"
	case isServerAssigned(name):
		return "is assigned by the server: remove it"
	}
	if near := Nearest(name, fieldNames); near != "" {
		return "is not a field: did you mean " + Spellings(near) + "?"
	}
	return `is not an envelope field: put it inside payload or extensions, or set contractVersion to "1.1" for a flat 1.1 event`
}

// showName returns a member's name for a violation.
func showName(name string) string {
	const most = 64
	if len(name) > most || TextFault(name) != "" {
		return Quote(name)
	}
	return name
}

// appendFault appends a violation; not without end, as a text may hold any number of faults.
func appendFault(bad []Violation, field, format string, args ...any) []Violation {
	if len(bad) > MaxViolations {
		return bad
	}
	return append(bad, Violation{Field: field, Reason: ReasonInvalidArgumentField, Description: fmt.Sprintf(format, args...)})
}
