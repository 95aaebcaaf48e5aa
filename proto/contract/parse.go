package contract

import (
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// ParseEvent reads one event from a line of JSON: an object in lowerCamel or snake case, either an
// envelope with its payload (2.x) or, with contractVersion "1.1", a flat event whose other members
// become the payload. The payload keeps its bytes. A null member is an absent one; 64-bit and
// 32-bit integers may be decimal strings, as in proto-JSON.
//
// It does not validate: see ValidateAll. The error is an *Error whose violations name the field,
// or, when the line is not JSON, the byte (metadata offset).
func ParseEvent(line []byte) (*runlogv1.EventWrite, error) {
	p, err := part(line)
	if err != nil {
		return nil, err
	}
	w := &runlogv1.EventWrite{}
	var bad []Violation
	for _, m := range p.envelope {
		if string(m.value) == "null" {
			continue
		}
		if fault := setField(w, m.envelope, m.value); fault != "" {
			bad = appendFault(bad, m.envelope, "%s", fault)
		}
	}
	if len(bad) > 0 {
		return nil, NewError(bad)
	}
	if p.payload != nil {
		w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: p.payload}
	}
	return w, nil
}

// setField sets an envelope field from its raw JSON value and says what is wrong with that.
func setField(w *runlogv1.EventWrite, field string, raw []byte) string {
	switch field {
	case "eventId":
		return setText(&w.EventId, raw)
	case "eventType":
		return setText(&w.EventType, raw)
	case "runId":
		return setText(&w.RunId, raw)
	case "tenantId":
		return setText(&w.TenantId, raw)
	case "projectId":
		return setText(&w.ProjectId, raw)
	case "environmentId":
		return setText(&w.EnvironmentId, raw)
	case "planId":
		return setText(&w.PlanId, raw)
	case "planVersion":
		return setText(&w.PlanVersion, raw)
	case "stepId":
		return setText(&w.StepId, raw)
	case "logicalAttemptId":
		return setCount(&w.LogicalAttemptId, raw)
	case "engineAttemptId":
		return setCount(&w.EngineAttemptId, raw)
	case "idempotencyKey":
		return setText(&w.IdempotencyKey, raw)
	case "emittedAt":
		return setTime(&w.EmittedAt, raw)
	case "emittedBy":
		return setText(&w.EmittedBy, raw)
	case "causedBySignalId":
		return setText(&w.CausedBySignalId, raw)
	case "parentEventId":
		return setText(&w.ParentEventId, raw)
	case "contractVersion":
		return setText(&w.ContractVersion, raw)
	default:
		return payloadJSONHelp
	}
}

func setText(dst *string, raw []byte) string {
	if raw[0] != '"' {
		return "must be a JSON string"
	}
	*dst = jsontext.Unquote(raw)
	if !utf8.ValidString(*dst) {
		return "escapes a lone surrogate, which is not Unicode text"
	}
	return ""
}

func setCount(dst *uint32, raw []byte) string {
	text := string(raw)
	if raw[0] == '"' {
		text = jsontext.Unquote(raw)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return "must be a whole number from 1 to 4294967295"
	}
	*dst = uint32(n)
	return ""
}

func setTime(dst **timestamppb.Timestamp, raw []byte) string {
	const help = "must be a time in RFC 3339 with at most nanoseconds, such as 2026-02-11T10:30:00.123Z"
	if raw[0] != '"' {
		return help
	}
	text := jsontext.Unquote(raw)
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !isStrictTime(text) {
		return help
	}
	*dst = timestamppb.New(t)
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
