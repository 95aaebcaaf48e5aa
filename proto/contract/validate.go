package contract

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract/jsontext"
	"runlog/proto/contract/secrets"
	runlogv1 "runlog/proto/runlog/v1"
)

// Limits of an event and of a request.
const (
	// DefaultMaxPayloadBytes is the payload limit where Options set none (ENV-7).
	DefaultMaxPayloadBytes = 64 << 10
	// LargestMaxPayloadBytes is the highest limit that can be set (ENV-7).
	LargestMaxPayloadBytes = 1 << 20
	// MaxEvents is how many events one request may carry (APP-3).
	MaxEvents = 1000
	// MaxDepth is how many arrays and objects of a payload may lie within each other, itself
	// included.
	MaxDepth = jsontext.MaxDepth

	// MaxExtensionsBytes is the largest extensions object.
	MaxExtensionsBytes = 4 << 10

	maxTextBytes = 256 // ENV-3, and the other texts of the envelope
	maxKeyBytes  = 128 // IDM-5

	// Timestamps that int64 nanoseconds can hold, in whole seconds, and the nanoseconds that the
	// last of them has room for.
	minSeconds   = -9223372036
	maxSeconds   = 9223372036
	maxLastNanos = 854775807
)

// Options say how strictly events are taken. The zero value is the contract's default.
type Options struct {
	// RunID is the run that the request is for. It fills an empty run_id; an event that names
	// another run is refused. Empty: every event must name its run.
	RunID string
	// MaxPayloadBytes is the largest payload, in bytes as stored. 0 means DefaultMaxPayloadBytes;
	// more than LargestMaxPayloadBytes means that.
	MaxPayloadBytes int
	// RefuseUnknownTypes refuses event types that the contract does not know (ENV-6).
	RefuseUnknownTypes bool
	// OpaqueKeys takes any printable key on 2.x events too (IDM-5, policy "opaque").
	OpaqueKeys bool
	// RepeatedIDs takes different events with one eventId: they are stored elsewhere (ENV-10).
	RepeatedIDs bool
	// NewEventID names an event that has no eventId. nil makes UUIDs of version 7.
	NewEventID func() EventID
	// Secret is told of each payload and extensions object of a run that has what looks like a
	// secret, and says whether to refuse it. nil: nothing is looked for.
	Secret func(runID string, kind secrets.Kind) (refuse bool)
}

func (o *Options) maxPayloadBytes() int {
	if o.MaxPayloadBytes <= 0 {
		return DefaultMaxPayloadBytes
	}
	return min(o.MaxPayloadBytes, LargestMaxPayloadBytes)
}

// Validate turns a wire message into the event that the inner rooms trust, and reports every
// violation of ENV-1, 2, 3, 5, 6, 7, 10 and IDM-5. When there is one, the event is empty. What is
// kept and yet unexpected is in the event's warnings (ENV-9).
//
// The event shares its strings and the bytes of payload and extensions with w, which must not
// change afterwards.
//
// On line 1.1, attempts default to 1, and a RunStarted takes tenant, project and environment from
// its payload's context and the plan from its planRef where the envelope does not name them. What
// is taken counts as named by the event: it is not Absent, and it is part of the canonical bytes.
func Validate(w *runlogv1.EventWrite, o Options) (Event, []Violation) {
	c := checker{o: o}
	if bad := c.check(w); len(bad) > 0 {
		return Event{}, bad
	}
	return c.e, nil
}

// check makes the event of w, and returns what is wrong with it.
func (c *checker) check(w *runlogv1.EventWrite) []Violation {
	c.w, c.e, c.bad, c.keyable, c.noLine = w, Event{}, nil, true, false
	c.contract()
	c.eventID()
	c.typeAndStep()
	c.run()
	c.payload()
	c.scopeAndPlan()
	c.text("causedBySignalId", w.GetCausedBySignalId(), &c.e.CausedBySignalID)
	c.attempts()
	c.emitted()
	c.text("parentEventId", w.GetParentEventId(), &c.e.ParentEventID)
	c.extensions()
	c.secret("payload", c.e.Payload)
	c.secret("extensions", c.e.Extensions)
	c.key()
	return c.bad
}

// checker builds one event at a time and gathers what is wrong with it. An event and the options
// are large, so those of a request have one checker.
type checker struct {
	o   Options
	w   *runlogv1.EventWrite
	e   Event
	bad []Violation
	// keyable is false once a part of the key is at fault: its derived key would mislead.
	keyable bool
	// noLine is true when the event names no contract line, and so no schema.
	noLine bool
	// keys are derived keys, with room for those of left events: so many are still to check.
	keys strings.Builder
	left int
}

func (c *checker) fail(field, format string, args ...any) {
	c.bad = append(c.bad, Violation{Field: field, Reason: ReasonInvalidArgumentField, Description: fmt.Sprintf(format, args...)})
}

// failKeyPart is fail for a field that takes part in the key.
func (c *checker) failKeyPart(field, format string, args ...any) {
	c.keyable = false
	c.fail(field, format, args...)
}

func (c *checker) contract() {
	version := c.w.GetContractVersion()
	line, ok := ParseLine(version)
	if !ok {
		c.noLine = true
		c.failKeyPart("contractVersion", `is %s: send "2.0.0" (the default) or "1.1"`, Quote(version))
	}
	c.e.Contract = line
}

func (c *checker) eventID() {
	text := c.w.GetEventId()
	if text == "" {
		if c.o.NewEventID != nil {
			c.e.EventID = c.o.NewEventID()
		} else {
			c.e.EventID = EventID(uuid.Must(uuid.NewV7()))
		}
		return
	}
	// uuid.Parse knows other forms too, all of other lengths; the contract knows the plain one.
	id, err := uuid.Parse(text)
	if err != nil || len(text) != EventIDText {
		c.fail("eventId", "is %s: send a UUID in its 36-character form, or leave it out and the server makes one", Quote(text))
		return
	}
	if id == uuid.Nil || id == uuid.Max {
		c.fail("eventId", "is %s, which names no event: send a UUID of its own, or leave it out and the server makes one", Quote(text))
		return
	}
	c.e.EventID = EventID(id)
}

// typeAndStep checks eventType and stepId, and that they fit (ENV-2, ENV-3, ENV-6).
func (c *checker) typeAndStep() {
	name, step := c.w.GetEventType(), c.w.GetStepId()
	c.name("eventType", name, &c.e.Type)
	if c.o.RefuseUnknownTypes && c.e.Type != "" && TypeCode(name) == 0 {
		remedy := "start the nodes with --unknown-types accept to store them"
		if likely, ok := LikelyType(name); ok {
			remedy = "did you mean " + likely + "?"
		}
		c.fail("eventType", "%s is not an event type of the contract, and this server refuses other types; %s", Quote(name), remedy)
	}
	switch ScopeOf(name) {
	case ScopeStep:
		if step == "" {
			c.failKeyPart("stepId", "is required on %s: name the step that the event is about", name)
			return
		}
	case ScopeRun:
		if step != "" {
			c.failKeyPart("stepId", "must be absent on %s, which is about the whole run: remove it", name)
			return
		}
	}
	if step == "" {
		return
	}
	if fault := StepFault(step); fault != "" {
		c.failKeyPart("stepId", "%s", fault)
		return
	}
	c.e.StepID = step
}

func (c *checker) run() {
	id := c.w.GetRunId()
	if id == "" {
		id = c.o.RunID
	}
	c.name("runId", id, &c.e.RunID)
	if c.o.RunID != "" && id != c.o.RunID {
		c.failKeyPart("runId", "is %s but the request is for run %s: a request carries events of one run; remove the field or send another request",
			Quote(id), Quote(c.o.RunID))
	}
}

func (c *checker) scopeAndPlan() {
	e, w := &c.e, c.w
	if e.Contract == Line11 && e.Type == RunStarted && e.Payload != nil {
		c.fillFromPayload()
	}
	c.scope("tenantId", w.GetTenantId(), &e.TenantID, AbsentTenant, TenantFault)
	c.scope("projectId", w.GetProjectId(), &e.ProjectID, AbsentProject, ScopeFault)
	c.scope("environmentId", w.GetEnvironmentId(), &e.EnvironmentID, AbsentEnvironment, ScopeFault)
	c.plan("planId", w.GetPlanId(), &e.PlanID, AbsentPlan)
	c.plan("planVersion", w.GetPlanVersion(), &e.PlanVersion, AbsentPlanVersion)
}

// sparse reports whether a field may be left out, and notes when it is: on line 1.1 it is then what
// the payload has already filled in, or inherited from the run (ENV-1).
func (c *checker) sparse(named string, dst *string, bit Absent) bool {
	if named != "" || c.e.Contract != Line11 {
		return false
	}
	if *dst == "" {
		c.e.Absent |= bit
	}
	return true
}

func (c *checker) scope(field, named string, dst *string, bit Absent, faultOf func(string) string) {
	if c.sparse(named, dst, bit) {
		return
	}
	switch fault := faultOf(named); {
	case named == "":
		c.fail(field, "is required: name the one that the run belongs to")
	case fault != "":
		c.fail(field, "%s", fault)
	default:
		*dst = named
	}
}

func (c *checker) plan(field, named string, dst *string, bit Absent) {
	if !c.sparse(named, dst, bit) {
		c.name(field, named, dst)
	}
}

func (c *checker) attempts() {
	logical, engine := c.w.GetLogicalAttemptId(), c.w.GetEngineAttemptId()
	c.e.AttemptAssigned = logical == 0 && c.w.GetIdempotencyKey() == "" && c.e.Cause() != ""
	if c.e.Contract == Line11 {
		engine = max(engine, 1)
		if !c.e.AttemptAssigned {
			logical = max(logical, 1)
		}
	}
	switch {
	case logical > 0 || c.e.AttemptAssigned:
	case Recurs(c.e.Type) && c.e.Payload == nil: // a payload that was refused may name the cause
		c.keyable = false
	case Recurs(c.e.Type):
		assigned := "name the cause as causedBySignalId"
		if c.w.GetIdempotencyKey() != "" {
			assigned = "leave out idempotencyKey too and " + assigned
		}
		c.failKeyPart("logicalAttemptId", "is required: number the run's %s events from 1, or %s: the server then assigns the attempt", c.e.Type, assigned)
	default:
		c.failKeyPart("logicalAttemptId", "is required: number the attempts of a step or run-level event from 1")
	}
	switch {
	case engine > 0:
	case OfOneTry(c.e.Type):
		c.failKeyPart("engineAttemptId", "is required: send the number of the platform's try that the event is about")
	default:
		c.fail("engineAttemptId", "is required: send 1 if the platform does not number its attempts")
	}
	c.e.LogicalAttemptID, c.e.EngineAttemptID = logical, engine
}

func (c *checker) emitted() {
	t := c.w.GetEmittedAt()
	switch nanos, ok := nanoseconds(t); {
	case t == nil:
		c.fail("emittedAt", "is required: send the producer's time of the event")
	case !ok:
		c.fail("emittedAt", "is out of range: send a time from 1677-09-21T00:12:44Z to 2262-04-11T23:47:16.854775807Z, with 0 to 999999999 nanoseconds")
	default:
		c.e.EmittedAt = nanos
	}
	c.text("emittedBy", c.w.GetEmittedBy(), &c.e.EmittedBy)
}

// key takes, derives or compares the idempotency key (IDM-5).
func (c *checker) key() {
	e, given := &c.e, c.w.GetIdempotencyKey()
	opaque := e.Contract == Line11 || c.o.OpaqueKeys
	if opaque && given != "" && !isPrintable(given) {
		c.fail("idempotencyKey", "is %s: send 1 to 128 printable ASCII characters", Quote(given))
		return
	}
	if !c.keyable {
		return
	}
	if e.PlanVersion == "" {
		// Only a sparse 1.1 event comes here. What it would inherit is not known yet, so its key
		// can be neither derived nor recognised as the derived one.
		if given == "" {
			c.fail("planVersion", "is required on a 1.1 event without an idempotencyKey, which is derived from it: send one of them")
		}
		e.IdempotencyKey = given
		return
	}
	if e.AttemptAssigned {
		e.KeyDerived = true
		return
	}
	derived := deriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
	switch {
	case given == string(derived[:]):
		e.IdempotencyKey, e.KeyDerived = given, true
	case given == "":
		e.IdempotencyKey, e.KeyDerived = c.keep(&derived), true
	case opaque:
		e.IdempotencyKey = given
	default:
		parts := "runId|stepId (RUN without one)|logicalAttemptId|eventType|planId|planVersion"
		if OfOneTry(e.Type) {
			parts += "|engineAttemptId"
		}
		c.bad = append(c.bad, Violation{
			Field:  "idempotencyKey",
			Reason: ReasonKeyMismatch,
			Description: "must be " + string(derived[:]) + ", the lower-case hex of SHA-256 over " + parts +
				": correct it, or leave it out and the server derives it",
			Expected: string(derived[:]),
		})
	}
}

// keep returns the text of a derived key. Those of the events of a request share an allocation.
func (c *checker) keep(key *keyText) string {
	if c.keys.Cap()-c.keys.Len() < len(key) {
		c.keys.Reset()
		c.keys.Grow(max(c.left, 1) * len(key))
	}
	c.keys.Write(key[:])
	all := c.keys.String()
	return all[len(all)-len(key):]
}

// requiredHelp is the remedy for a name that is missing.
var requiredHelp = map[string]string{
	"eventType":   "say what happened, such as RunStarted",
	"planId":      "name the plan that the run executes",
	"planVersion": "name the version of the plan",
}

// name takes a required text that takes part in the key (ENV-3).
func (c *checker) name(field, value string, dst *string) {
	switch fault := NameFault(value); {
	case value == "" && requiredHelp[field] != "":
		c.failKeyPart(field, "%s: %s", fault, requiredHelp[field])
		return
	case fault != "":
		c.failKeyPart(field, "%s", fault)
		return
	}
	*dst = value
}

// text takes an optional text.
func (c *checker) text(field, value string, dst *string) {
	if fault := TextFault(value); fault != "" {
		c.fail(field, "%s", fault)
		return
	}
	*dst = value
}

func isPrintable(key string) bool {
	for i := range len(key) {
		if key[i] < 0x20 || key[i] > 0x7e {
			return false
		}
	}
	return len(key) <= maxKeyBytes
}

// nanoseconds returns a timestamp as nanoseconds since 1970, false when it is malformed or does not
// fit.
func nanoseconds(t *timestamppb.Timestamp) (int64, bool) {
	s, n := t.GetSeconds(), t.GetNanos()
	if s < minSeconds || s > maxSeconds || n < 0 || n > 999999999 || s == maxSeconds && n > maxLastNanos {
		return 0, false
	}
	return s*1e9 + int64(n), true
}

// Quote quotes the beginning of a value in a message: printable ASCII and short.
func Quote(s string) string { return jsontext.Quote(s) }
