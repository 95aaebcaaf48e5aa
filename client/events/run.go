// Package events makes the events of a run: keys, attempts, ids and the rules of the contract are
// right before anything is sent.
//
//	run := events.Run{ID: "run-7", Tenant: "acme", Project: "web", Environment: "prod",
//		Plan: "build", PlanVersion: "3"}
//	done, err := run.StepCompleted("extract", events.Attempt{Logical: 1, Engine: 3}, nil)
//
// An error is a *contract.Error, which has every fault of the event.
package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Run names a run and its scope, which each of its events repeats (ENV-1). All but EmittedBy, Clock
// and IDs is required. Its methods return events that satisfy the contract, with their keys.
//
// A payload is nil or a value of any type that is (an empty object), JSON text ([]byte or
// json.RawMessage, kept byte for byte), or a value that encoding/json turns into an object.
type Run struct {
	ID, Tenant, Project, Environment, Plan, PlanVersion string
	// EmittedBy names the producer; empty: none.
	EmittedBy string
	// Clock stamps emittedAt. nil: time.Now.
	Clock func() time.Time
	// IDs names the events. nil: the client gives each an id when it is appended.
	IDs *IDs
}

// Attempt numbers what is repeated, from 1. Both are required.
type Attempt struct {
	// Logical is the attempt of the workflow: a step that the plan or a person lets run again has
	// another one. It is part of the event's key (IDM-1).
	Logical uint32
	// Engine is the platform's own retry of the same work. It is no part of the key: a retry finds
	// the event that an earlier one has stored (IDM-4). Only a StepRetrying is one for each
	// (IDM-11). A platform that does not number its retries sends 1.
	Engine uint32
}

// Queued says that the run waits for its turn.
func (r *Run) Queued(a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.RunQueued, "", a, payload)
}

// Approved says that the run may start.
func (r *Run) Approved(a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.RunApproved, "", a, payload)
}

// Started says that the run has started.
func (r *Run) Started(a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.RunStarted, "", a, payload)
}

// Completed says that the run has ended well.
func (r *Run) Completed(a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.RunCompleted, "", a, payload)
}

// Failed says that the run has failed.
func (r *Run) Failed(a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.RunFailed, "", a, payload)
}

// Cancelled says that the run was cancelled.
func (r *Run) Cancelled(a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.RunCancelled, "", a, payload)
}

// Paused says that the run was paused by a signal. A run can be paused again, so the log assigns
// the logical attempt: one for each signal (IDM-10).
func (r *Run) Paused(c Cause, payload any) (*runlogv1.EventWrite, error) {
	return r.recurring(contract.RunPaused, "", c, payload)
}

// Resumed says that the run was resumed by a signal (IDM-10).
func (r *Run) Resumed(c Cause, payload any) (*runlogv1.EventWrite, error) {
	return r.recurring(contract.RunResumed, "", c, payload)
}

// SignalAccepted says that a signal to the run, or to one of its steps, was accepted (IDM-10).
func (r *Run) SignalAccepted(stepID string, c Cause, payload any) (*runlogv1.EventWrite, error) {
	return r.recurring(contract.SignalAccepted, stepID, c, payload)
}

// SignalRejected says that a signal to the run, or to one of its steps, was refused (IDM-10).
func (r *Run) SignalRejected(stepID string, c Cause, payload any) (*runlogv1.EventWrite, error) {
	return r.recurring(contract.SignalRejected, stepID, c, payload)
}

// StepStarted says that an attempt of a step has started.
func (r *Run) StepStarted(stepID string, a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.StepStarted, stepID, a, payload)
}

// StepCompleted says that an attempt of a step has ended well.
func (r *Run) StepCompleted(stepID string, a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.StepCompleted, stepID, a, payload)
}

// StepFailed says that an attempt of a step has failed.
func (r *Run) StepFailed(stepID string, a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.StepFailed, stepID, a, payload)
}

// StepRetrying says that a try of the platform failed, and that the platform tries the same attempt
// again; a.Engine is the try that failed. Its payload needs the error. StepFailed is for the end.
func (r *Run) StepRetrying(stepID string, a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.StepRetrying, stepID, a, payload)
}

// StepSkipped says that a step is left out.
func (r *Run) StepSkipped(stepID string, a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.StepSkipped, stepID, a, payload)
}

// StepDelayed says that a step starts later.
func (r *Run) StepDelayed(stepID string, a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.StepDelayed, stepID, a, payload)
}

// StepWaitingForAttestation says that a step waits for a person's statement.
func (r *Run) StepWaitingForAttestation(stepID string, a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.StepWaitingForAttestation, stepID, a, payload)
}

// StepAttested has a person's statement about a step. Its payload needs the outcome.
func (r *Run) StepAttested(stepID string, a Attempt, payload any) (*runlogv1.EventWrite, error) {
	return r.Event(contract.StepAttested, stepID, a, payload)
}

// Cause names the signal that caused an event which may come again (IDM-10).
type Cause struct {
	// SignalID is required.
	SignalID string
	// Engine is the platform's own retry, as in Attempt.
	Engine uint32
}

// recurring makes an event whose logical attempt, and with it its key, the log assigns.
func (r *Run) recurring(eventType, stepID string, c Cause, payload any) (*runlogv1.EventWrite, error) {
	w, err := r.envelope(eventType, stepID, payload)
	if err != nil {
		return nil, err
	}
	w.EngineAttemptId, w.CausedBySignalId = c.Engine, c.SignalID
	return r.finished(w)
}

// Event makes an event of any type, also of one that the contract does not know (ENV-6). stepID is
// empty for an event about the run.
func (r *Run) Event(eventType, stepID string, a Attempt, payload any) (*runlogv1.EventWrite, error) {
	w, err := r.envelope(eventType, stepID, payload)
	if err != nil {
		return nil, err
	}
	w.LogicalAttemptId, w.EngineAttemptId = a.Logical, a.Engine
	return r.finished(w)
}

// envelope fills in what all events of the run share.
func (r *Run) envelope(eventType, stepID string, payload any) (*runlogv1.EventWrite, error) {
	now := time.Now
	if r.Clock != nil {
		now = r.Clock
	}
	w := &runlogv1.EventWrite{
		EventType: eventType, RunId: r.ID, TenantId: r.Tenant, ProjectId: r.Project, EnvironmentId: r.Environment,
		PlanId: r.Plan, PlanVersion: r.PlanVersion, StepId: stepID, EmittedBy: r.EmittedBy, EmittedAt: timestamppb.New(now()),
	}
	text, fault := payloadText(payload)
	if fault != "" {
		return nil, about(w, refused("payload", fault))
	}
	w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: text}
	return w, nil
}

// payloadText returns the JSON text of a payload, or what is wrong with it.
func payloadText(payload any) (text []byte, fault string) {
	switch p := payload.(type) {
	case []byte:
		text = p
	case json.RawMessage:
		text = p
	default:
		// The escapes for HTML would make a text up to six times as long, and too large.
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(p); err != nil {
			return nil, "has no JSON form: " + err.Error()
		}
		text = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
		if string(text) == "null" {
			return []byte("{}"), ""
		}
		if text[0] != '{' {
			return nil, fmt.Sprintf("is a Go %T, whose JSON form is no object: pass a struct, a map, JSON text or nil", p)
		}
	}
	if len(text) == 0 {
		return []byte("{}"), ""
	}
	return text, ""
}

// finished validates an event, and gives it its key and its id.
func (r *Run) finished(w *runlogv1.EventWrite) (*runlogv1.EventWrite, error) {
	for _, part := range []struct{ field, text string }{{"runId", r.ID}, {"tenantId", r.Tenant}, {"projectId", r.Project},
		{"environmentId", r.Environment}, {"planId", r.Plan}, {"planVersion", r.PlanVersion}} {
		if part.text == "" {
			return nil, about(w, refused(part.field, "is required: set it in the Run"))
		}
	}
	valid, err := contract.ValidateAll([]*runlogv1.EventWrite{w}, contract.Options{RunID: r.ID})
	if e, ok := errors.AsType[*contract.Error](err); ok {
		err = about(w, alone(e))
	}
	if err != nil {
		return nil, err
	}
	if !valid[0].AttemptAssigned {
		w.IdempotencyKey = valid[0].IdempotencyKey
	}
	if r.IDs != nil {
		w.EventId = r.IDs.Of(w)
	}
	return w, nil
}

// alone names the fields of the only event of a request without the request.
func alone(e *contract.Error) *contract.Error {
	const event = "events[0]."
	e.Message = strings.TrimPrefix(e.Message, event)
	for i, v := range e.Violations {
		e.Violations[i].Field = strings.TrimPrefix(v.Field, event)
	}
	return e
}

// about says which event an error is about.
func about(w *runlogv1.EventWrite, e *contract.Error) *contract.Error {
	if contract.NameFault(w.EventType) != "" {
		return e // It is about the type.
	}
	name := w.EventType
	if w.StepId != "" && contract.StepFault(w.StepId) == "" {
		name += " of step " + w.StepId
	}
	e.Message = name + ": " + e.Message
	return e
}

func refused(field, description string) *contract.Error {
	return &contract.Error{Reason: contract.ReasonInvalidArgumentField, Message: field + " " + description,
		Violations: []contract.Violation{{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: description}}}
}
