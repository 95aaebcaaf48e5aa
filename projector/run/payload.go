package run

import (
	"bytes"
	"time"
)

// The fields that the reducer reads from payloads. All are optional. A field of the wrong JSON type
// counts as absent. No other field is read.
//
//	RunStarted      engineRunRef, engineType, startedAt,
//	                planRef {uri, sha256, schemaVersion, planId, planVersion, sizeBytes,
//	                compression}
//	RunPaused       draining
//	RunCompleted    completedAt
//	RunCancelled    completedAt
//	RunFailed       completedAt, and the root cause, the first of
//	                  rootCause  {stepId, code, message, category} or a string, the message
//	                  error      the same
//	                  reason     a string, the message
//	                  message    a string
//	StepStarted     startedAt
//	StepDelayed     reason
//	StepSkipped     reason
//	StepCompleted   artifacts or artifactRefs, completedAt, reason
//	StepFailed      error {code, message, retryable, category} or a string, the message;
//	                artifacts or artifactRefs, completedAt, reason
//	StepAttested    outcome: SUCCESS, FAIL or FAILED; the fields of StepFailed; attestedAt if
//	                there is no completedAt; notes if there is no reason
//	SignalAccepted  signalId, signalType, reason, decidedBy or triggeredBy, decidedAt
//	SignalRejected  the same
//
// An artifact is {uri, kind, sha256, sizeBytes, expiresAt}. If kind is absent, name is read; if
// sizeBytes is absent, bytes is read, as attestations have them. An artifact without a uri is left
// out. Times are RFC 3339. If one is missing, emittedAt is used (PRJ-10).
//
// The payloads of RunQueued, RunApproved, RunResumed, StepWaitingForAttestation and unknown types
// are not read.

// payload begins the reading of a record's payload.
func payload(b []byte) value { return bytes.TrimLeft(b, " \t\r\n") }

// field returns one member of an object, for payloads of which only one is read.
func (v value) field(name string) (found value) {
	m := v.members()
	for {
		key, member, ok := m.member()
		if !ok {
			return found
		}
		if string(key) == name {
			found = member
		}
	}
}

func decodeDraining(b []byte) bool { return payload(b).field("draining").isTrue() }

func decodeCompletedAt(b []byte) value { return payload(b).field("completedAt") }

type runStartedPayload struct {
	engineRunRef, engineType, planRef, startedAt value
}

func decodeRunStarted(b []byte) (p runStartedPayload) {
	m := payload(b).members()
	for {
		key, v, ok := m.member()
		if !ok {
			return p
		}
		switch string(key) {
		case "engineRunRef":
			p.engineRunRef = v
		case "engineType":
			p.engineType = v
		case "planRef":
			p.planRef = v
		case "startedAt":
			p.startedAt = v
		}
	}
}

// plan reads a planRef; nil when v is no object.
func (v value) plan() *PlanRef {
	if !v.isObject() {
		return nil
	}
	p := new(PlanRef)
	m := v.members()
	for {
		key, v, ok := m.member()
		if !ok {
			return p
		}
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
		}
	}
}

type runFailedPayload struct {
	completedAt, cause, failure, reason, message value
}

func decodeRunFailed(b []byte) (p runFailedPayload) {
	m := payload(b).members()
	for {
		key, v, ok := m.member()
		if !ok {
			return p
		}
		switch string(key) {
		case "completedAt":
			p.completedAt = v
		case "rootCause":
			p.cause = v
		case "error":
			p.failure = v
		case "reason":
			p.reason = v
		case "message":
			p.message = v
		}
	}
}

// rootCause returns the most telling account that the payload has; nil when it has none.
func (p *runFailedPayload) rootCause() *RootCause {
	for _, v := range []value{p.cause, p.failure} {
		switch {
		case v.isObject():
			return v.rootCause()
		case v.isString():
			return &RootCause{Message: v.text()}
		}
	}
	for _, v := range []value{p.reason, p.message} {
		if v.isString() {
			return &RootCause{Message: v.text()}
		}
	}
	return nil
}

func (v value) rootCause() *RootCause {
	cause := new(RootCause)
	m := v.members()
	for {
		key, v, ok := m.member()
		if !ok {
			return cause
		}
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
}

// stepPayload has the fields of all step events: they agree where they meet.
type stepPayload struct {
	startedAt, completedAt, attestedAt value
	artifacts, artifactRefs            value
	failure, reason, notes, outcome    value
}

func decodeStep(b []byte) (p stepPayload) {
	m := payload(b).members()
	for {
		key, v, ok := m.member()
		if !ok {
			return p
		}
		switch string(key) {
		case "startedAt":
			p.startedAt = v
		case "completedAt":
			p.completedAt = v
		case "attestedAt":
			p.attestedAt = v
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
		}
	}
}

func (p *stepPayload) endedAt(fallback time.Time) time.Time {
	return p.completedAt.timeOr(p.attestedAt.timeOr(fallback))
}

func (p *stepPayload) reasonText() string {
	if reason := p.reason.text(); reason != "" {
		return reason
	}
	return p.notes.text()
}

func (p *stepPayload) artifactList() []Artifact {
	list := p.artifacts
	if !list.isArray() {
		list = p.artifactRefs
	}
	var all []Artifact
	for e := list.elements(); ; {
		v, ok := e.element()
		if !ok {
			return all
		}
		if a := v.artifact(); a.URI != "" {
			all = append(all, a)
		}
	}
}

// artifact reads a reference; one without a uri when v is none.
func (v value) artifact() Artifact {
	var uri, kind, name, digest, size, bytes, expiresAt value
	m := v.members()
	for {
		key, v, ok := m.member()
		if !ok {
			break
		}
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
	if v.isString() {
		return &StepError{Message: v.text()}
	}
	if !v.isObject() {
		return nil
	}
	e := new(StepError)
	m := v.members()
	for {
		key, v, ok := m.member()
		if !ok {
			return e
		}
		switch string(key) {
		case "code":
			e.Code = v.text()
		case "message":
			e.Message = v.text()
		case "retryable":
			e.Retryable = v.isTrue()
		case "category":
			e.Category = v.text()
		}
	}
}

type signalPayload struct {
	signalID, signalType, decidedBy, reason string
	decidedAt                               value
}

func decodeSignal(b []byte) (p signalPayload) {
	var triggeredBy value
	m := payload(b).members()
	for {
		key, v, ok := m.member()
		if !ok {
			break
		}
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
			p.reason = v.text()
		case "decidedAt":
			p.decidedAt = v
		}
	}
	if p.decidedBy == "" {
		p.decidedBy = triggeredBy.text()
	}
	return p
}
