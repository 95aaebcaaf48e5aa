package contract

import (
	"fmt"
	"strings"
	"unsafe"
)

// Recorded is an event as an authority has recorded it, with everything that its forms have: files,
// lines and messages.
type Recorded struct {
	Event

	RunSeq      uint64
	PersistedAt int64 // nanoseconds since 1970-01-01T00:00:00Z (APP-5)
	AppendedBy  Author
	Original    Original

	PayloadSalt   Salt // stored with the payload
	PayloadDigest Digest
	RecordDigest  Digest
	ChainDigest   Digest
}

// Field describes a field of a recorded event. The forms of an event walk over [Fields], so that
// none of them spells out its fields.
//
// The methods return where the field is in an event. Each is for fields of one kind, and panics for
// all others.
type Field struct {
	// Name is the field's name in JSON, in lowerCamel case. A name with a dot is that of a member
	// within an object, such as "original.source".
	Name string
	// Column is the name where there are no objects, in snake case.
	Column string
	Kind   Kind
	// Optional fields may be absent. They are then zero or empty.
	Optional bool
	// Varied texts are seldom those of another event, so that a dictionary saves nothing.
	Varied bool
	// Absent is the bit of a field that a sparse event may leave out (ENV-1); 0: it may not.
	Absent Absent
	// Body is the number of the field in a stored body (record.v1.Body), below BodyNumbers; 0: the
	// body has it in another way, or not. It never changes.
	Body byte

	// canonical is the number of the field among the canonical bytes (AppendCanonical); 0: it is
	// not one of them. It never changes, and is no number of the wire.
	canonical byte
	// ofTry fields may differ between two tries to append one event (IDM-7).
	ofTry bool

	// offset is where the field is in Recorded. Kind is that of the type of at, so that a method
	// which has compared its kind may use the offset. Forms walk over all fields of every event:
	// with calls of at in place of it, a CSV row took a quarter more time.
	offset uintptr
	at     func(*Recorded) any
}

// Kind is the Go type of a field.
type Kind uint8

// The kinds of fields, each with its method.
const (
	KindText    Kind = iota + 1 // string: Text
	KindCount                   // uint32, without quotes in JSON: Count
	KindNumber                  // uint64: Number
	KindTime                    // int64, nanoseconds since 1970-01-01T00:00:00Z: Time
	KindEventID                 // EventID: EventID
	KindLine                    // Line: Line
	KindDigest                  // Digest: Digest
	KindNames                   // Absent, the names of inherited fields: Names
	KindObject                  // []byte, a JSON object: Object
	KindSalt                    // Salt: Salt
)

// Forms keep fields in arrays by their numbers, which are below these.
const (
	BodyNumbers = 32 // of a stored body
	WireNumbers = 64 // of a message
)

// elsewhere is what a row has in place of a number, if the form that has the number has the field
// in another way, or not at all. It becomes 0. A row that has nothing there was forgotten
// (checkFields).
const elsewhere = 0xff

// recordedFields is the description of a recorded event: a row a field, in the order of the columns
// of a file. Those of the producer come first, the payload is the last.
var recordedFields = described([]Field{
	{Name: "eventId", canonical: 1, ofTry: true, Body: 1, at: func(r *Recorded) any { return &r.EventID }},
	{Name: "eventType", canonical: 2, Body: 3, at: func(r *Recorded) any { return &r.Type }},
	{Name: "runId", canonical: 3, Body: elsewhere, at: func(r *Recorded) any { return &r.RunID }},
	{Name: "tenantId", canonical: 4, Body: elsewhere, Absent: AbsentTenant, at: func(r *Recorded) any { return &r.TenantID }},
	{Name: "projectId", canonical: 5, Body: elsewhere, Absent: AbsentProject, at: func(r *Recorded) any { return &r.ProjectID }},
	{Name: "environmentId", canonical: 6, Body: elsewhere, Absent: AbsentEnvironment, at: func(r *Recorded) any { return &r.EnvironmentID }},
	{Name: "planId", canonical: 7, Body: elsewhere, Absent: AbsentPlan, at: func(r *Recorded) any { return &r.PlanID }},
	{Name: "planVersion", canonical: 8, Body: elsewhere, Absent: AbsentPlanVersion, at: func(r *Recorded) any { return &r.PlanVersion }},
	{Name: "stepId", canonical: 9, Body: 4, Optional: true, at: func(r *Recorded) any { return &r.StepID }},
	{Name: "logicalAttemptId", canonical: 10, Body: 5, at: func(r *Recorded) any { return &r.LogicalAttemptID }},
	{Name: "engineAttemptId", canonical: 11, ofTry: true, Body: 6, at: func(r *Recorded) any { return &r.EngineAttemptID }},
	{Name: "idempotencyKey", canonical: 12, Body: 7, at: func(r *Recorded) any { return &r.IdempotencyKey }},
	{Name: "emittedAt", canonical: 13, ofTry: true, Body: 8, at: func(r *Recorded) any { return &r.EmittedAt }},
	{Name: "emittedBy", canonical: 14, ofTry: true, Body: 9, Optional: true, at: func(r *Recorded) any { return &r.EmittedBy }},
	{Name: "causedBySignalId", canonical: 15, Body: 10, Optional: true, Varied: true, at: func(r *Recorded) any { return &r.CausedBySignalID }},
	{Name: "parentEventId", canonical: 16, Body: 11, Optional: true, Varied: true, at: func(r *Recorded) any { return &r.ParentEventID }},
	{Name: "contractVersion", canonical: 17, Body: 12, at: func(r *Recorded) any { return &r.Contract }},
	{Name: "runSeq", canonical: elsewhere, Body: 16, at: func(r *Recorded) any { return &r.RunSeq }},
	{Name: "persistedAt", canonical: elsewhere, Body: elsewhere, at: func(r *Recorded) any { return &r.PersistedAt }},
	{Name: "payloadSalt", canonical: elsewhere, Body: 22, at: func(r *Recorded) any { return &r.PayloadSalt }},
	{Name: "payloadDigest", canonical: elsewhere, Body: elsewhere, at: func(r *Recorded) any { return &r.PayloadDigest }},
	{Name: "recordDigest", canonical: elsewhere, Body: elsewhere, at: func(r *Recorded) any { return &r.RecordDigest }},
	{Name: "chainDigest", canonical: elsewhere, Body: elsewhere, at: func(r *Recorded) any { return &r.ChainDigest }},
	{Name: "inherited", canonical: elsewhere, Body: 14, at: func(r *Recorded) any { return &r.Absent }},
	{Name: "appendedBy", canonical: elsewhere, Body: 18, Optional: true, at: func(r *Recorded) any { return &r.AppendedBy.Name }},
	{Name: "appendedByTokenId", canonical: elsewhere, Body: 21, Optional: true, at: func(r *Recorded) any { return &r.AppendedBy.TokenID }},
	{Name: "original.persistedAt", canonical: elsewhere, Body: 17, Optional: true, at: func(r *Recorded) any { return &r.Original.PersistedAt }},
	{Name: "original.source", canonical: elsewhere, Body: 20, Optional: true, at: func(r *Recorded) any { return &r.Original.Source }},
	{Name: "extensions", canonical: 19, Body: 19, Optional: true, at: func(r *Recorded) any { return &r.Extensions }},
	{Name: "payload", canonical: elsewhere, Body: 13, at: func(r *Recorded) any { return &r.Payload }},
})

// Fields returns the fields of a recorded event, in the order of the columns of a file. The caller
// may change the slice.
func Fields() []Field { return append([]Field(nil), recordedFields...) }

// described fills in what follows from the rest of a row. A program does not start with a table
// that has a fault.
func described(rows []Field) []Field {
	sample := new(Recorded)
	for i := range rows {
		f := &rows[i]
		f.Column = snakeCase(f.Name)
		if f.at == nil {
			continue // checkFields says so
		}
		var at unsafe.Pointer
		f.Kind, at = kindOf(f.at(sample))
		f.offset = uintptr(at) - uintptr(unsafe.Pointer(sample))
	}
	if err := checkFields(rows); err != nil {
		panic(fmt.Sprintf("contract: the table of fields (recordedFields): %v", err))
	}
	for i := range rows {
		for _, number := range []*byte{&rows[i].Body, &rows[i].canonical} {
			if *number == elsewhere {
				*number = 0
			}
		}
	}
	return rows
}

// kindOf returns the kind of a field that is at a pointer, and the pointer; of kind 0: none.
func kindOf(at any) (Kind, unsafe.Pointer) {
	switch at := at.(type) {
	case *string:
		return KindText, unsafe.Pointer(at)
	case *uint32:
		return KindCount, unsafe.Pointer(at)
	case *uint64:
		return KindNumber, unsafe.Pointer(at)
	case *int64:
		return KindTime, unsafe.Pointer(at)
	case *EventID:
		return KindEventID, unsafe.Pointer(at)
	case *Line:
		return KindLine, unsafe.Pointer(at)
	case *Salt:
		return KindSalt, unsafe.Pointer(at)
	case *Digest:
		return KindDigest, unsafe.Pointer(at)
	case *Absent:
		return KindNames, unsafe.Pointer(at)
	case *[]byte:
		return KindObject, unsafe.Pointer(at)
	}
	return 0, nil
}

// snakeCase returns a lowerCamel name in snake case. A dot becomes an underscore too.
func snakeCase(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c == '.':
			b.WriteByte('_')
		case 'A' <= c && c <= 'Z':
			b.WriteByte('_')
			b.WriteByte(c - 'A' + 'a')
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Text returns where a text is.
func (f *Field) Text(r *Recorded) *string { return (*string)(f.in(r, KindText)) }

// Count returns where a count is.
func (f *Field) Count(r *Recorded) *uint32 { return (*uint32)(f.in(r, KindCount)) }

// Number returns where a number is.
func (f *Field) Number(r *Recorded) *uint64 { return (*uint64)(f.in(r, KindNumber)) }

// Time returns where a time is.
func (f *Field) Time(r *Recorded) *int64 { return (*int64)(f.in(r, KindTime)) }

// EventID returns where an event id is.
func (f *Field) EventID(r *Recorded) *EventID { return (*EventID)(f.in(r, KindEventID)) }

// Line returns where a contract line is.
func (f *Field) Line(r *Recorded) *Line { return (*Line)(f.in(r, KindLine)) }

// Salt returns where a salt is.
func (f *Field) Salt(r *Recorded) *Salt { return (*Salt)(f.in(r, KindSalt)) }

// Digest returns where a digest is.
func (f *Field) Digest(r *Recorded) *Digest { return (*Digest)(f.in(r, KindDigest)) }

// Names returns where the names of inherited fields are.
func (f *Field) Names(r *Recorded) *Absent { return (*Absent)(f.in(r, KindNames)) }

// Object returns where a JSON object is.
func (f *Field) Object(r *Recorded) *[]byte { return (*[]byte)(f.in(r, KindObject)) }

func (f *Field) in(r *Recorded, kind Kind) unsafe.Pointer {
	if f.Kind != kind {
		panic("contract: a field of another kind")
	}
	return unsafe.Add(unsafe.Pointer(r), f.offset)
}
