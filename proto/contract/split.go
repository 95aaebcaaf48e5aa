package contract

import (
	"encoding/json"
	"fmt"
	"strconv"

	"runlog/proto/contract/jsontext"
)

// member is one top-level member of an event's JSON text, in raw bytes.
type member struct {
	name     string // unescaped
	envelope string // the lowerCamel name of the envelope field that it is; empty for none
	rawName  []byte // with its quotes
	value    []byte
}

// parted is an event's JSON text taken apart, which ParseEvent and NormalizeFlat share.
type parted struct {
	line Line
	// envelope holds the members that are envelope fields, in their order, payload left out.
	envelope []member
	// payload is the event's payload as one JSON object: the payload member byte for byte, or, for
	// a flat 1.1 event, that together with the members that are not envelope fields. nil: none.
	payload []byte
}

// envelopeField returns the lowerCamel name of the envelope field that a JSON member stands for, in
// lowerCamel or snake case (contract section 2); empty when it is none.
func envelopeField(name string) string {
	switch name {
	case "eventId", "event_id":
		return "eventId"
	case "eventType", "event_type":
		return "eventType"
	case "runId", "run_id":
		return "runId"
	case "tenantId", "tenant_id":
		return "tenantId"
	case "projectId", "project_id":
		return "projectId"
	case "environmentId", "environment_id":
		return "environmentId"
	case "planId", "plan_id":
		return "planId"
	case "planVersion", "plan_version":
		return "planVersion"
	case "stepId", "step_id":
		return "stepId"
	case "logicalAttemptId", "logical_attempt_id":
		return "logicalAttemptId"
	case "engineAttemptId", "engine_attempt_id":
		return "engineAttemptId"
	case "idempotencyKey", "idempotency_key":
		return "idempotencyKey"
	case "emittedAt", "emitted_at":
		return "emittedAt"
	case "emittedBy", "emitted_by":
		return "emittedBy"
	case "causedBySignalId", "caused_by_signal_id":
		return "causedBySignalId"
	case "parentEventId", "parent_event_id":
		return "parentEventId"
	case "contractVersion", "contract_version":
		return "contractVersion"
	case "payload":
		return "payload"
	case "payloadJson", "payload_json":
		return "payloadJson"
	}
	return ""
}

// isServerAssigned reports whether a member of a record is one that its producer never writes.
func isServerAssigned(name string) bool {
	switch name {
	case "runSeq", "run_seq", "persistedAt", "persisted_at":
		return true
	}
	return false
}

// part takes the JSON text of one event apart. On line 1.1 it moves the members that are no
// envelope fields into the payload and drops runSeq and persistedAt; on 2.x such members are
// violations, with ENV-4 for occurredAt. The error is an *Error.
func part(text []byte) (parted, error) {
	all, err := topLevel(text)
	if err != nil {
		return parted{}, err
	}
	var p parted
	var payload *member
	var rest []member
	var bad []Violation
	seen := make(map[string]bool, len(all))
	for i := range all {
		m := &all[i]
		id := m.envelope
		if id == "" {
			id = m.name
		}
		if seen[id] {
			bad = appendFault(bad, m.field(), "appears twice: keep one")
			continue
		}
		seen[id] = true
		switch {
		case m.envelope == "payload":
			payload = m
		case m.envelope != "":
			p.envelope = append(p.envelope, *m)
			if m.envelope == "contractVersion" && m.value[0] == '"' && jsontext.Unquote(m.value) == "1.1" {
				p.line = Line11
			}
		default:
			rest = append(rest, *m)
		}
	}
	if p.line == Line2 {
		for i := range rest {
			bad = appendFault(bad, rest[i].field(), "%s", StrangerHelp(rest[i].name))
		}
		rest = nil
	}
	p.payload, bad = merge(payload, rest, bad)
	if len(bad) > 0 {
		return parted{}, NewError(bad)
	}
	return p, nil
}

// topLevel returns the members of the one JSON object that text is.
func topLevel(text []byte) ([]member, error) {
	// A payload of MaxDepth levels lies one level deeper in its event.
	if pos, fault := jsontext.CheckObject(text, MaxDepth+1); fault != 0 {
		err := NewError(appendFault(nil, "", "not a JSON event at byte %d: %s", pos, fault))
		err.Metadata[metadataOffset] = strconv.Itoa(pos)
		return nil, err
	}
	var all []member
	c := jsontext.Members(text)
	for rawName, value, ok := c.Quoted(); ok; rawName, value, ok = c.Quoted() {
		name := jsontext.Unquote(rawName)
		all = append(all, member{name: name, envelope: envelopeField(name), rawName: rawName, value: value})
	}
	return all, nil
}

// merge returns the payload of an event: its payload member as it is, followed by the members of a
// flat event. A name in both is a violation.
func merge(payload *member, rest []member, bad []Violation) ([]byte, []Violation) {
	var base []byte
	if payload != nil && string(payload.value) != "null" {
		base = payload.value
	}
	if base != nil && base[0] != '{' {
		return nil, appendFault(bad, "payload", "must be a JSON object")
	}
	rest = withoutServerAssigned(rest)
	if len(rest) == 0 {
		return base, bad
	}
	taken := make(map[string]bool)
	c := jsontext.Members(base)
	for name, _, ok := c.Member(); ok; name, _, ok = c.Member() {
		taken[string(name)] = true
	}
	out := []byte{'{'}
	if len(taken) > 0 {
		out = append(out[:0], base[:len(base)-1]...)
	}
	for i, m := range rest {
		if taken[m.name] {
			bad = appendFault(bad, m.field(), "appears beside the envelope and inside payload: keep one")
		}
		if i > 0 || len(taken) > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.rawName...), ':'), m.value...)
	}
	out = append(out, '}')
	// A member is one level deeper in the payload than it was beside the envelope.
	if _, fault := jsontext.CheckObject(out, MaxDepth); fault != 0 {
		bad = appendFault(bad, "payload", "of this flat event is %s", fault)
	}
	return out, bad
}

func withoutServerAssigned(rest []member) []member {
	kept := rest[:0]
	for _, m := range rest {
		if !isServerAssigned(m.name) {
			kept = append(kept, m)
		}
	}
	return kept
}

// StrangerHelp says what to do about a member of a 2.x event that is no envelope field (ENV-4).
func StrangerHelp(name string) string {
	switch {
	case name == "occurredAt" || name == "occurred_at":
		return "is not a field of the 2.x envelope (ENV-4): put the source's time into payload.sourceOccurredAt"
	case isServerAssigned(name):
		return "is assigned by the server: remove it"
	}
	return `is not an envelope field: put it inside payload, or set contractVersion to "1.1" for a flat 1.1 event`
}

// field returns the member's name for a violation.
func (m *member) field() string {
	if m.envelope != "" {
		return m.envelope
	}
	const most = 64
	if len(m.name) > most || TextFault(m.name) != "" {
		return Quote(m.name)
	}
	return m.name
}

// appendFault appends a violation; not without end, as a text may hold any number of faults.
func appendFault(bad []Violation, field, format string, args ...any) []Violation {
	if len(bad) > MaxViolations {
		return bad
	}
	return append(bad, Violation{Field: field, Reason: ReasonInvalidArgumentField, Description: fmt.Sprintf(format, args...)})
}

// NormalizeFlat turns the JSON text of a flat 1.1 event into the envelope form that proto-JSON
// reads: every top-level member that is no envelope field moves into payload with its raw bytes,
// runSeq and persistedAt are dropped. A 2.x event comes back unchanged, once it is known to hold
// nothing but envelope fields (ENV-4). The error is an *Error.
func NormalizeFlat(event json.RawMessage) (json.RawMessage, error) {
	p, err := part(event)
	if err != nil {
		return nil, err
	}
	if p.line != Line11 {
		return event, nil
	}
	out := make([]byte, 0, len(event)+len(`{"payload":{}}`))
	out = append(out, '{')
	for _, m := range p.envelope {
		if m.envelope == "payloadJson" {
			return nil, NewError(appendFault(nil, m.envelope, payloadJSONHelp))
		}
		out = append(append(append(out, m.rawName...), ':'), m.value...)
		out = append(out, ',')
	}
	if p.payload == nil {
		out[len(out)-1] = '}' // There is a member, contractVersion, and so a comma.
		return out, nil
	}
	return append(append(append(out, `"payload":`...), p.payload...), '}'), nil
}

// payloadJSONHelp refuses the field that carries a payload as bytes over gRPC.
const payloadJSONHelp = "is a field for gRPC clients: write the payload as a JSON object under payload"
