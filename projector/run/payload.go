package run

import (
	"bytes"
	"cmp"
	"time"
)

// The fields that the reducer reads from payloads. All are optional. A field of the wrong JSON type
// counts as absent. No other field is read.
//
//	RunStarted      engineRunRef, engineType, startedAt, context {triggeredBy, triggerSource},
//	                planRef {uri, sha256, schemaVersion, planId, planVersion, sizeBytes,
//	                compression, expiresAt, schemaEvolutionPath,
//	                migrationHint {sourceVersion, targetVersion, transformScript}}
//	RunPaused       draining
//	RunCompleted    completedAt
//	RunCancelled    completedAt
//	RunFailed       completedAt or failedAt, and the root cause, the first that says something of
//	                  rootCause  {stepId, code, message, category} or a string, the message
//	                  error      the same
//	                  errorCode or reasonCode, the code, and the message, the first of
//	                  errorMessage, reason and message; a reason may be an object as above
//	StepStarted     startedAt
//	StepDelayed     reason
//	StepSkipped     reason
//	StepCompleted   artifacts or artifactRefs, completedAt, failedAt or attestedAt, reason or
//	                notes
//	StepFailed      the fields of StepCompleted, and error {code, message, retryable, category} or
//	                a string, the message; if it says nothing errorCode or reasonCode, the code,
//	                and errorMessage
//	StepRetrying    error {code, message, retryable, category} or a string, the message;
//	                nextAttemptAt
//	StepAttested    outcome: SUCCESS, FAIL or FAILED; the fields of StepFailed
//	SignalAccepted  signalId, signalType, reason, decidedBy or triggeredBy, decidedAt
//	SignalRejected  the same
//
// An artifact is {uri, kind, sha256, sizeBytes, expiresAt}. If kind is absent, name is read; if
// sizeBytes is absent, bytes is read, as attestations have them. An artifact without a uri is left
// out. A reason that is an object is read as its message, else its code. An event that ends a step
// also tells its startedAt if no StepStarted has. Times are RFC 3339. If one is missing, emittedAt
// is used (PRJ-10). The schemas name each of these fields, so that the answer to an append warns of
// a value that is not shown (ENV-12).
//
// The payloads of RunQueued, RunApproved, RunResumed, StepWaitingForAttestation and unknown types
// are not read.

// payload begins the reading of a record's payload.
func payload(b []byte) value { return bytes.TrimLeft(b, " \t\r\n") }

// field returns one member of an object, for payloads of which only one is read.
func (v value) field(name string) (found value) {
	for key, member := range v.members() {
		if string(key) == name {
			found = member
		}
	}
	return found
}

func decodeDraining(b []byte) bool { return payload(b).field("draining").isTrue() }

func decodeCompletedAt(b []byte) value { return payload(b).field("completedAt") }

type runStartedPayload struct {
	engineRunRef, engineType, planRef, startedAt, context value
}

func decodeRunStarted(b []byte) (p runStartedPayload) {
	for key, v := range payload(b).members() {
		switch string(key) {
		case "engineRunRef":
			p.engineRunRef = v
		case "engineType":
			p.engineType = v
		case "planRef":
			p.planRef = v
		case "startedAt":
			p.startedAt = v
		case "context":
			p.context = v
		}
	}
	return p
}

// plan reads a planRef; nil when v is no object.
func (v value) plan() *PlanRef {
	if !v.isObject() {
		return nil
	}
	p := new(PlanRef)
	for key, v := range v.members() {
		switch string(key) {
		case "uri":
			p.URI = v.text()
		case "sha256":
			p.SHA256 = v.text()
		case "schemaVersion":
			p.SchemaVersion = v.text()
		case "planId":
			p.PlanID = v.text()
		case "planVersion":
			p.PlanVersion = v.text()
		case "sizeBytes":
			p.SizeBytes = v.size()
		case "compression":
			p.Compression = v.text()
		case "expiresAt":
			p.ExpiresAt = v.text()
		case "schemaEvolutionPath":
			p.SchemaEvolutionPath = v.text()
		case "migrationHint":
			p.MigrationHint = v.migrationHint()
		}
	}
	return p
}

// migrationHint reads that of a planRef; nil when v is no object.
func (v value) migrationHint() *MigrationHint {
	if !v.isObject() {
		return nil
	}
	h := new(MigrationHint)
	for key, v := range v.members() {
		switch string(key) {
		case "sourceVersion":
			h.SourceVersion = v.text()
		case "targetVersion":
			h.TargetVersion = v.text()
		case "transformScript":
			h.TransformScript = v.text()
		}
	}
	return h
}

type runFailedPayload struct {
	completedAt, failedAt, cause, failure, reason, message value
	flat                                                   flatError
}

// flatError are the fields that describe an error outside of an error object.
type flatError struct{ code, reasonCode, message value }

// take sets the field of that name.
func (f *flatError) take(name []byte, v value) {
	switch string(name) {
	case "errorCode":
		f.code = v
	case "reasonCode":
		f.reasonCode = v
	case "errorMessage":
		f.message = v
	}
}

func (f *flatError) codeText() string { return cmp.Or(f.code.text(), f.reasonCode.text()) }

func decodeRunFailed(b []byte) (p runFailedPayload) {
	for key, v := range payload(b).members() {
		switch string(key) {
		case "completedAt":
			p.completedAt = v
		case "failedAt":
			p.failedAt = v
		case "rootCause":
			p.cause = v
		case "error":
			p.failure = v
		case "reason":
			p.reason = v
		case "message":
			p.message = v
		default:
			p.flat.take(key, v)
		}
	}
	return p
}

// rootCause returns the most telling account that the payload has; nil when it has none.
func (p *runFailedPayload) rootCause() *RootCause {
	for _, v := range []value{p.cause, p.failure} {
		if cause := v.rootCause(); cause != nil {
			return cause
		}
	}
	if cause := (RootCause{Code: p.flat.codeText(), Message: cmp.Or(p.flat.message.text(), p.reason.text(), p.message.text())}); cause != (RootCause{}) {
		return &cause
	}
	return p.reason.rootCause()
}

// rootCause reads a cause; nil when v says nothing.
func (v value) rootCause() *RootCause {
	cause := new(RootCause)
	if v.isString() {
		cause.Message = v.text()
	}
	for key, v := range v.members() {
		switch string(key) {
		case "stepId":
			cause.StepID = v.text()
		case "code":
			cause.Code = v.text()
		case "message":
			cause.Message = v.text()
		case "category":
			cause.Category = v.text()
		}
	}
	if *cause == (RootCause{}) {
		return nil
	}
	return cause
}

// stepPayload has the fields of all step events: they agree where they meet.
type stepPayload struct {
	startedAt, completedAt, failedAt, attestedAt value
	nextAttemptAt                                value
	artifacts, artifactRefs                      value
	failure, reason, notes, outcome, attestedBy  value
	flat                                         flatError
}

func decodeStep(b []byte) (p stepPayload) {
	for key, v := range payload(b).members() {
		switch string(key) {
		case "startedAt":
			p.startedAt = v
		case "completedAt":
			p.completedAt = v
		case "failedAt":
			p.failedAt = v
		case "attestedAt":
			p.attestedAt = v
		case "nextAttemptAt":
			p.nextAttemptAt = v
		case "artifacts":
			p.artifacts = v
		case "artifactRefs":
			p.artifactRefs = v
		case "error":
			p.failure = v
		case "reason":
			p.reason = v
		case "notes":
			p.notes = v
		case "outcome":
			p.outcome = v
		case "attestedBy":
			p.attestedBy = v
		default:
			p.flat.take(key, v)
		}
	}
	return p
}

func (p *stepPayload) endedAt(fallback time.Time) time.Time {
	return p.completedAt.timeOr(p.failedAt.timeOr(p.attestedAt.timeOr(fallback)))
}

func (p *stepPayload) reasonText() string {
	return cmp.Or(p.reason.reasonText(), p.notes.text())
}

// reasonText reads a reason, which may be an object with a message or a code.
func (v value) reasonText() string {
	if !v.isObject() {
		return v.text()
	}
	return cmp.Or(v.field("message").text(), v.field("code").text())
}

// failed returns the error of a step that failed; nil when its event says nothing.
func (p *stepPayload) failed() *StepError {
	if e := p.failure.stepError(); e != nil {
		return e
	}
	if e := (StepError{Code: p.flat.codeText(), Message: p.flat.message.text()}); e != (StepError{}) {
		return &e
	}
	return nil
}

func (p *stepPayload) artifactList() []Artifact {
	list := p.artifacts
	if !list.isArray() {
		list = p.artifactRefs
	}
	var all []Artifact
	for v := range list.elements() {
		if a := v.artifact(); a.URI != "" {
			all = append(all, a)
		}
	}
	return all
}

// artifact reads a reference; one without a uri when v is none.
func (v value) artifact() Artifact {
	var uri, kind, name, digest, size, bytes, expiresAt value
	for key, v := range v.members() {
		switch string(key) {
		case "uri":
			uri = v
		case "kind":
			kind = v
		case "name":
			name = v
		case "sha256":
			digest = v
		case "sizeBytes":
			size = v
		case "bytes":
			bytes = v
		case "expiresAt":
			expiresAt = v
		}
	}
	a := Artifact{SizeBytes: size.size()}
	texts := textsOf([...]value{uri, kind, digest, expiresAt})
	a.URI, a.Kind, a.SHA256, a.ExpiresAt = texts[0], texts[1], texts[2], texts[3]
	if a.Kind == "" {
		a.Kind = name.text()
	}
	if a.SizeBytes == nil {
		a.SizeBytes = bytes.size()
	}
	return a
}

// stepError reads why a step failed; nil when v does not say.
func (v value) stepError() *StepError {
	e := new(StepError)
	if v.isString() {
		e.Message = v.text()
	}
	for key, v := range v.members() {
		switch string(key) {
		case "code":
			e.Code = v.text()
		case "message":
			e.Message = v.text()
		case "retryable":
			if e.Retryable = nil; v.isTrue() || v.isFalse() {
				said := v.isTrue()
				e.Retryable = &said
			}
		case "category":
			e.Category = v.text()
		}
	}
	if *e == (StepError{}) {
		return nil
	}
	return e
}

type signalPayload struct {
	signalID, signalType, decidedBy, reason string
	decidedAt                               value
}

func decodeSignal(b []byte) (p signalPayload) {
	var triggeredBy value
	for key, v := range payload(b).members() {
		switch string(key) {
		case "signalId":
			p.signalID = v.text()
		case "signalType":
			p.signalType = v.text()
		case "decidedBy":
			p.decidedBy = v.text()
		case "triggeredBy":
			triggeredBy = v
		case "reason":
			p.reason = v.reasonText()
		case "decidedAt":
			p.decidedAt = v
		}
	}
	if p.decidedBy == "" {
		p.decidedBy = triggeredBy.text()
	}
	return p
}
