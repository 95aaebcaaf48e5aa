package contract

import (
	"encoding/json"
	"fmt"
	"unsafe"

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
	// PayloadDigest and RecordDigest are empty, or what APP-11 must give for the event with
	// PayloadSalt.
	PayloadSalt, PayloadDigest, RecordDigest string
	// PlanID and PlanVersion are what the event inherited from its run, empty where it names them.
	PlanID, PlanVersion string
	// AppendedBy is what the other authority had recorded of its caller (SEC-8). An import keeps
	// the name alone: the token is one of that authority.
	AppendedBy Author
	// Original is what another authority, from which that one imported the event, said of it.
	Original Original
}

// Origin returns what the authority of the record says of it to the one that imports it (APP-13).
func (r *Record) Origin() Original {
	return Original{PersistedAt: r.PersistedAt, Source: r.AppendedBy.Name}
}

// ParseRecord reads one record from a line of JSON, as "runlog events -o json" writes it: an event
// as ParseEvent reads it, of either contract line, with runSeq and persistedAt beside it. Of the
// other members that reading an event adds, it returns payloadSalt, payloadDigest, recordDigest,
// appendedBy, appendedByTokenId and original. inherited says which fields the producer had left
// out. ParseRecord drops chainDigest, which belongs to the place where the record was read.
//
// It does not validate the event, nor compare the digests. The error is an *Error, as ParseEvent's
// is.
func ParseRecord(line []byte) (Record, error) {
	if err := checkLine(line); err != nil {
		return Record{}, err
	}
	var r Record
	var bad []Violation
	var inherited []byte
	event := []byte{'{'}
	seen := map[string]bool{}
	c := jsontext.Members(line)
	for quoted, value, ok := c.Quoted(); ok; quoted, value, ok = c.Quoted() {
		field := recordField(jsontext.Unquote(quoted))
		if field == "" {
			if len(event) > 1 {
				event = append(event, ',')
			}
			event = append(append(append(event, quoted...), ':'), value...)
			continue
		}
		fault := ""
		switch {
		case seen[field]:
			fault = "appears twice: keep one"
		case field == "runSeq":
			fault = setSeq(&r.RunSeq, value)
		case field == "persistedAt":
			fault = setStamp(&r.PersistedAt, value)
		case field == "payloadSalt":
			fault = setText(&r.PayloadSalt, value)
		case field == "payloadDigest":
			fault = setText(&r.PayloadDigest, value)
		case field == "recordDigest":
			fault = setText(&r.RecordDigest, value)
		case field == "appendedBy":
			fault = setIdentity(&r.AppendedBy.Name, value)
		case field == "appendedByTokenId":
			fault = setIdentity(&r.AppendedBy.TokenID, value)
		case field == "original":
			fault = setOriginal(&r.Original, value)
		case field == "inherited":
			inherited = value
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
	r.Event = &runlogv1.EventWrite{}
	if bad = ReadEvent(r.Event, append(event, '}')); len(bad) > 0 {
		return Record{}, NewError(bad)
	}
	if r.Event.EventId == "" {
		return Record{}, NewError(appendFault(nil, "eventId", "is required: an imported record keeps its own"))
	}
	if fault := r.leaveOut(inherited); fault != "" {
		return Record{}, NewError(appendFault(nil, "inherited", "%s", fault))
	}
	return r, nil
}

const (
	// MaxRunSeq is the largest runSeq of a run (APP-13). JavaScript has no exact numbers above it.
	MaxRunSeq = 1<<53 - 1
	// MaxImportedSeq is the largest runSeq of an imported event. It leaves room for more than four
	// thousand million events that are appended behind it.
	MaxImportedSeq = MaxRunSeq - 1<<32
)

func setSeq(dst *uint64, raw []byte) string {
	n, ok := parseWhole(raw, 64)
	if !ok || n == 0 || n > MaxImportedSeq {
		return fmt.Sprintf("must be a whole number from 1 to %d", MaxImportedSeq)
	}
	*dst = n
	return ""
}

func setIdentity(dst *string, raw []byte) string {
	if fault := setText(dst, raw); fault != "" {
		return fault
	}
	return TextFault(*dst)
}

func setOriginal(dst *Original, raw []byte) string {
	const help = "must be an object with persistedAt and source"
	var members map[string]json.RawMessage
	if string(raw) == "null" {
		return ""
	}
	if json.Unmarshal(raw, &members) != nil {
		return help
	}
	for name, value := range members {
		fault := help
		switch name {
		case "persistedAt", "persisted_at":
			fault = setStamp(&dst.PersistedAt, value)
		case "source":
			fault = setIdentity(&dst.Source, value)
		}
		if fault != "" {
			return name + " " + fault
		}
	}
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

// leaveOut takes back what reading filled in from the run (ENV-1).
func (r *Record) leaveOut(inherited []byte) string {
	const help = `must be an array of names from tenantId, projectId, environmentId, planId and planVersion`
	if len(inherited) == 0 || string(inherited) == "null" {
		return ""
	}
	var names []string
	if json.Unmarshal(inherited, &names) != nil {
		return help
	}
	for _, name := range names {
		f := fieldOf([]byte(name))
		written := &jsonFields[f].written
		if f == noField || written.Name != name || written.Absent == 0 {
			return help
		}
		text := (*string)(unsafe.Add(unsafe.Pointer(r.Event), written.Offset))
		switch written.Absent {
		case AbsentPlan:
			r.PlanID = *text
		case AbsentPlanVersion:
			r.PlanVersion = *text
		}
		*text = ""
	}
	return ""
}

// DigestFaults compares the digests that the record brings along with those of its validated event
// and its salt (APP-11). The authority that imports the event gives it a salt of its own.
func (r *Record) DigestFaults(e *Event) (bad []Violation) {
	if r.PayloadSalt == "" && r.PayloadDigest == "" && r.RecordDigest == "" {
		return nil
	}
	var salt Salt
	if !ParseSalt(&salt, r.PayloadSalt) {
		return appendFault(nil, "payloadSalt", "must be %d lower-case hexadecimal digits, as the record was read: "+
			"its digests cannot be checked without it; import it as it was, or without its digests and its salt", 2*len(salt))
	}
	payload, record := e.Digests(salt, r.AppendedBy, r.Original)
	for _, d := range [...]struct {
		field, given, want string
	}{
		{"payloadDigest", r.PayloadDigest, payload.String()},
		{"recordDigest", r.RecordDigest, record.String()},
	} {
		if d.given != "" && d.given != d.want {
			bad = appendFault(bad, d.field, "is not that of the record, whose digest is %s: the record was changed on its way, "+
				"if only in the spelling of its payload; import it as it was, or without its digests and its salt", d.want)
		}
	}
	return bad
}
