package contract

import (
	"bytes"
	"fmt"
	"strconv"

	"runlog/proto/contract/schema"
	runlogv1 "runlog/proto/runlog/v1"
)

// MaxViolations bounds the violations in one answer. If a request has more, the error says
// truncated=true, and the rest appears once the first ones are fixed.
const MaxViolations = 100

// Metadata keys of the errors made here.
const (
	metadataIndex       = "index"
	metadataExpectedKey = "expected_key"
	metadataMaxBytes    = "max_bytes"
	metadataOffset      = "offset"
	metadataSchema      = "schema"
	metadataSecret      = "secret"
	metadataTruncated   = "truncated"
)

// ValidateAll validates the 1 to 1,000 events of one request (APP-3). All of them are valid, or the
// error is an *Error with the violations of every event, their fields prefixed as in
// "events[3].stepId". Two different events have two eventIds (ENV-10). Its reason is that of the
// first violation, and its metadata name the first bad event as index, the derived key as
// expected_key, the payload limit as max_bytes, the path at which the server has the schema as
// schema, the kind of a secret as secret, where they apply.
func ValidateAll(events []*runlogv1.EventWrite, o Options) ([]Event, error) {
	if n := len(events); n == 0 || n > MaxEvents {
		return nil, WrongCount(n)
	}
	c := checker{o: o}
	valid := make([]Event, 0, len(events))
	var bad []Violation
	first := -1
	for i, w := range events {
		c.left = len(events) - i
		violations := c.check(w)
		if len(violations) == 0 {
			valid = append(valid, c.e)
			continue
		}
		if first < 0 {
			first = i
		}
		for _, v := range violations {
			v.Field = "events[" + strconv.Itoa(i) + "]." + v.Field
			bad = append(bad, v)
		}
		if len(bad) > MaxViolations {
			break
		}
	}
	if first < 0 && !o.RepeatedIDs {
		first, bad = repeatedID(valid)
	}
	if first < 0 {
		return valid, nil
	}
	err := NewError(bad)
	err.Metadata[metadataIndex] = strconv.Itoa(first)
	switch err.Reason {
	case ReasonPayloadTooLarge:
		err.Metadata[metadataMaxBytes] = strconv.Itoa(o.maxPayloadBytes())
	case ReasonSchemaValidationFailed:
		line, _ := ParseLine(events[first].GetContractVersion())
		err.Metadata[metadataSchema] = schema.Path(line.String(), events[first].GetEventType())
	}
	return nil, err
}

// repeatedID finds the first event that has the eventId of an earlier one, and is another event:
// one that is sent twice is a duplicate. index is -1 if there is none.
func repeatedID(events []Event) (index int, bad []Violation) {
	increasing := func(i int) bool { return bytes.Compare(events[i-1].EventID[:], events[i].EventID[:]) < 0 }
	first := 1
	for first < len(events) && increasing(first) { // as UUIDs of version 7 do
		first++
	}
	if first >= len(events) {
		return -1, nil
	}
	seen := make(map[EventID]int, len(events))
	for i := range events {
		e := &events[i]
		earlier, there := seen[e.EventID]
		if there && !sameEvent(&events[earlier], e) {
			return i, []Violation{{
				Field:       "events[" + strconv.Itoa(i) + "].eventId",
				Reason:      ReasonInvalidArgumentField,
				Description: "is that of an earlier event of the request: send a UUID of its own, or leave it out and the server makes one",
			}}
		}
		seen[e.EventID] = i
	}
	return -1, nil
}

// sameEvent reports whether two events of a request are one for the log: they have one key, or one
// cause if the server assigns the attempt.
func sameEvent(a, b *Event) bool {
	return a.RunID == b.RunID && a.IdempotencyKey == b.IdempotencyKey &&
		(a.IdempotencyKey != "" || a.Type == b.Type && a.StepID == b.StepID && a.Cause() == b.Cause())
}

// WrongCount is the refusal of a request with that many events, which are none or too many (APP-3).
func WrongCount(events int) *Error {
	return NewError([]Violation{{
		Field:       "events",
		Reason:      ReasonInvalidArgumentField,
		Description: fmt.Sprintf("has %d events: send 1 to %d", events, MaxEvents),
	}})
}

// NewError makes the error of a list of violations, which is not empty. Its reason is that of the
// first. What is beyond the bound on an answer is left out, and the metadata say truncated.
func NewError(bad []Violation) *Error {
	metadata := make(map[string]string)
	if len(bad) > MaxViolations {
		bad = bad[:MaxViolations]
		metadata[metadataTruncated] = "true"
	}
	v := bad[0]
	if v.Expected != "" {
		metadata[metadataExpectedKey] = v.Expected
	}
	if v.Secret != "" {
		metadata[metadataSecret] = string(v.Secret)
	}
	message := v.Description
	if v.Field != "" {
		message = v.Field + " " + message
	}
	switch more := len(bad) - 1; {
	case more == 1:
		message += " (and 1 more violation)"
	case more > 1:
		message += fmt.Sprintf(" (and %d more violations)", more)
	}
	return &Error{Reason: v.Reason, Message: message, Violations: bad, Metadata: metadata}
}
