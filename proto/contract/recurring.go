package contract

import (
	"runlog/proto/contract/jsontext"
)

// Cause names what caused an event of a type that recurs: causedBySignalId, or the signalId of the
// payload. It is empty if the event names none, and for every other type (IDM-10).
func (e *Event) Cause() string {
	if !Recurs(e.Type) {
		return ""
	}
	if e.CausedBySignalID != "" {
		return e.CausedBySignalID
	}
	signal, found := jsontext.Lookup(e.Payload, "signalId")
	if !found || signal[0] != '"' {
		return ""
	}
	return jsontext.Unquote(signal)
}

// SetAttempt sets an attempt that the authority assigns, and derives the key from it (IDM-10).
func (e *Event) SetAttempt(attempt uint32) {
	e.LogicalAttemptID = attempt
	e.IdempotencyKey = DeriveKey(e.Contract, e.RunID, e.StepID, attempt, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
}
