package contract

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// Record is an event as another authority has recorded it.
type Record struct {
	Event *runlogv1.EventWrite
	// RunSeq and PersistedAt are what that authority had assigned.
	RunSeq      uint64
	PersistedAt int64 // nanoseconds since 1970-01-01T00:00:00Z
	// PayloadDigest and RecordDigest are empty, or what APP-11 must give for the event.
	PayloadDigest, RecordDigest string
	// PlanID and PlanVersion are what the event inherited from its run, empty where it names them.
	PlanID, PlanVersion string
	// AppendedBy is the identity that the other authority had authenticated (SEC-8), empty where it
	// had none.
	AppendedBy string
}

// ParseRecord reads one record from a line of JSON, as "runlog events -o json" writes it: an event
// as ParseEvent reads it, of either contract line, with runSeq and persistedAt beside it. Of the
// other members that reading an event adds, it returns payloadDigest, recordDigest and appendedBy.
// inherited says which fields the producer had left out. ParseRecord drops importedAt and
// chainDigest, which belong to the place where the record was read. A payload may be payloadJson
// instead, its bytes in base64, as export files have those that a line cannot hold.
//
// It does not validate the event, nor compare the digests. The error is an *Error, as ParseEvent's
// is.
func ParseRecord(line []byte) (Record, error) {
	all, err := topLevel(line)
	if err != nil {
		return Record{}, err
	}
	var r Record
	var bad []Violation
	var inherited, payload []byte
	event := []byte{'{'}
	seen := map[string]bool{}
	for i := range all {
		m := &all[i]
		field := recordField(m.name)
		if field == "" {
			if len(event) > 1 {
				event = append(event, ',')
			}
			event = append(append(append(event, m.rawName...), ':'), m.value...)
			continue
		}
		fault := ""
		switch {
		case seen[field]:
			fault = "appears twice: keep one"
		case field == "runSeq":
			fault = setSeq(&r.RunSeq, m.value)
		case field == "persistedAt":
			fault = setStamp(&r.PersistedAt, m.value)
		case field == "payloadDigest":
			fault = setText(&r.PayloadDigest, m.value)
		case field == "recordDigest":
			fault = setText(&r.RecordDigest, m.value)
		case field == "appendedBy":
			if fault = setText(&r.AppendedBy, m.value); fault == "" {
				fault = TextFault(r.AppendedBy)
			}
		case field == "inherited":
			inherited = m.value
		case field == "payloadJson":
			fault = setBytes(&payload, m.value)
		}
		seen[field] = true
		if fault != "" {
			bad = appendFault(bad, field, "%s", fault)
		}
	}
	for _, field := range [...]string{"runSeq", "persistedAt"} {
		if !seen[field] {
			bad = appendFault(bad, field, "is required: an imported record keeps its own")
		}
	}
	if len(bad) > 0 {
		return Record{}, NewError(bad)
	}
	if r.Event, err = ParseEvent(append(event, '}')); err != nil {
		return Record{}, err
	}
	if payload != nil {
		if r.Event.PayloadForm != nil {
			return Record{}, NewError(appendFault(nil, "payloadJson", "appears beside payload, or beside the members of a flat event: keep one"))
		}
		r.Event.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: payload}
	}
	if r.Event.EventId == "" {
		return Record{}, NewError(appendFault(nil, "eventId", "is required: an imported record keeps its own"))
	}
	if fault := r.leaveOut(inherited); fault != "" {
		return Record{}, NewError(appendFault(nil, "inherited", "%s", fault))
	}
	return r, nil
}

// recordField returns the lowerCamel name of what a record has beside its event, empty for all
// else.
func recordField(name string) string {
	switch name {
	case "runSeq", "run_seq":
		return "runSeq"
	case "persistedAt", "persisted_at":
		return "persistedAt"
	case "payloadDigest", "payload_digest":
		return "payloadDigest"
	case "recordDigest", "record_digest":
		return "recordDigest"
	case "chainDigest", "chain_digest":
		return "chainDigest"
	case "importedAt", "imported_at":
		return "importedAt"
	case "appendedBy", "appended_by":
		return "appendedBy"
	case "inherited":
		return "inherited"
	case "payloadJson", "payload_json":
		return "payloadJson"
	}
	return ""
}

// setSeq leaves room for what is appended behind the largest one.
func setSeq(dst *uint64, raw []byte) string {
	text := string(raw)
	if raw[0] == '"' {
		text = jsontext.Unquote(raw)
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n == 0 || n == math.MaxInt64 {
		return "must be a whole number from 1 to 9223372036854775806"
	}
	*dst = n
	return ""
}

func setStamp(dst *int64, raw []byte) string {
	var at *timestamppb.Timestamp
	if fault := setTime(&at, raw); fault != "" {
		return fault
	}
	if at.Seconds < 0 || at.Seconds >= maxSeconds || at.Seconds == 0 && at.Nanos == 0 {
		return "must be between 1970 and 2262"
	}
	*dst = at.Seconds*1e9 + int64(at.Nanos)
	return ""
}

// setBytes takes the JSON object that base64 stands for; whether it is one, the validation of the
// event tells.
func setBytes(dst *[]byte, raw []byte) string {
	if raw[0] == '"' {
		if b, err := base64.StdEncoding.DecodeString(jsontext.Unquote(raw)); err == nil && len(b) > 0 {
			*dst = b
			return ""
		}
	}
	return "must be a JSON object in base64"
}

// leaveOut takes back what reading filled in from the run (ENV-1).
func (r *Record) leaveOut(inherited []byte) string {
	e := r.Event
	const help = `must be an array of names from tenantId, projectId, environmentId, planId and planVersion`
	if len(inherited) == 0 || string(inherited) == "null" {
		return ""
	}
	var names []string
	if json.Unmarshal(inherited, &names) != nil {
		return help
	}
	for _, name := range names {
		switch name {
		case "tenantId":
			e.TenantId = ""
		case "projectId":
			e.ProjectId = ""
		case "environmentId":
			e.EnvironmentId = ""
		case "planId":
			r.PlanID, e.PlanId = e.PlanId, ""
		case "planVersion":
			r.PlanVersion, e.PlanVersion = e.PlanVersion, ""
		default:
			return help
		}
	}
	return ""
}

// DigestFaults compares the digests that the record brings along with those of its validated event
// (APP-11).
func (r *Record) DigestFaults(e *Event) (bad []Violation) {
	payload, record := e.Digests(r.AppendedBy)
	for _, d := range [...]struct {
		field, given, want string
	}{
		{"payloadDigest", r.PayloadDigest, payload.String()},
		{"recordDigest", r.RecordDigest, record.String()},
	} {
		if d.given != "" && d.given != d.want {
			bad = appendFault(bad, d.field, "is not that of the record, whose digest is %s: the record was changed on its way, "+
				"if only in the spelling of its payload; import it as it was, or without its digests", d.want)
		}
	}
	return bad
}
