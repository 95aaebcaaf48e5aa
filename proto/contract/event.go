package contract

// Line is a contract line: the two shapes that producers speak.
type Line uint8

const (
	// Line2 is contract "2.0.0", the default.
	Line2 Line = iota
	// Line11 is contract "1.1".
	Line11
)

// String returns the contractVersion as the envelope spells it.
func (l Line) String() string {
	if l == Line11 {
		return "1.1"
	}
	return "2.0.0"
}

// ParseLine returns the line that a contractVersion names; 2.x when it is empty, as for an event
// that names none.
func ParseLine(version string) (Line, bool) {
	switch version {
	case "", "2.0.0":
		return Line2, true
	case "1.1":
		return Line11, true
	}
	return Line2, false
}

// Absent names envelope fields that a sparse 1.1 event left out. They are inherited from the run
// when the event is read and take no part in its canonical bytes (ENV-1).
type Absent uint8

// The fields that can be absent.
const (
	AbsentTenant Absent = 1 << iota
	AbsentProject
	AbsentEnvironment
	AbsentPlan
	AbsentPlanVersion
)

// EventID is a UUID of any RFC 9562 version.
type EventID [16]byte

// Digest is a SHA-256.
type Digest [32]byte

// Salt is what keeps the payload digest of an event from telling its payload to those that guess
// (LIFE-5): 16 random bytes, which the node that encodes the event makes.
type Salt [16]byte

// Event is a validated EventWrite: the form in which every inner room takes events and trusts them.
// Strings are valid UTF-8 and within their limits; an empty string is an absent field.
type Event struct {
	EventID EventID
	Type    string
	RunID   string

	TenantID      string
	ProjectID     string
	EnvironmentID string
	PlanID        string
	PlanVersion   string
	Absent        Absent

	StepID           string
	LogicalAttemptID uint32 // ≥ 1; 0: the authority has yet to assign it
	// AttemptAssigned: the authority assigns the attempt, because the producer left it out or
	// because the event is its own (IDM-10).
	AttemptAssigned bool
	EngineAttemptID uint32 // ≥ 1
	IdempotencyKey  string // never empty, unless the attempt is yet to be assigned
	KeyDerived      bool   // the key is the derived one and need not be stored

	EmittedAt        int64 // nanoseconds since 1970-01-01T00:00:00Z
	EmittedBy        string
	CausedBySignalID string
	ParentEventID    string
	Contract         Line

	Payload    []byte // one JSON object, never empty
	Extensions []byte // one JSON object; empty: none

	// Warnings are the optional fields of the payload that have an unexpected form (ENV-9). They
	// are part of an answer, and are not stored.
	Warnings []Warning
}

// Warning is a remark about a field of an event that was accepted.
type Warning struct{ Field, Description string }
