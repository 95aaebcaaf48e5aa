package signals

import (
	"encoding/json"
	"fmt"
	"regexp"
	"unicode/utf8"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
)

const (
	// maxSignalBytes bounds a signal: its texts and its parameters as JSON (SIG-5).
	maxSignalBytes = 64 << 10
	// maxReasonBytes bounds the reason of a signal.
	maxReasonBytes = 4 << 10
)

// signal is a request that was checked, and what is known of its caller.
type signal struct {
	runID, id, signalType, stepID, reason string
	parameters                            json.RawMessage // nil: none
	tenantID                              string

	caller     *auth.Identity
	callerName string
	permitted  bool     // the caller has a role for the type
	verdict    *verdict // of the policy; nil: it was not asked
}

// from sets the caller.
func (s *signal) from(i *auth.Identity) {
	s.caller = i
	if i != nil {
		s.callerName = i.Name
	}
}

// typeForm is the form of a signal type.
var typeForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// check validates a request, and returns all of its violations.
func check(req *runlogv1.SendSignalRequest) (*signal, error) {
	s := &signal{runID: req.RunId, id: req.SignalId, signalType: req.SignalType, stepID: req.StepId, reason: req.Reason}
	var bad []contract.Violation
	fail := func(field, fault string) {
		if fault != "" {
			bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: fault})
		}
	}
	fail("runId", contract.NameFault(req.RunId))
	fail("signalId", idFault(req.SignalId))
	fail("signalType", typeFault(req.SignalType))
	fail("stepId", stepFault(req))
	fail("reason", textFault(req.Reason, maxReasonBytes))
	if req.Parameters != nil {
		text, path, fault := contract.EncodeStruct(req.Parameters)
		fail("parameters"+path, fault)
		s.parameters = text
	}
	if size := len(req.SignalId) + len(req.SignalType) + len(req.StepId) + len(req.Reason) + len(s.parameters); size > maxSignalBytes {
		bad = append(bad, contract.Violation{Field: "parameters", Reason: contract.ReasonSignalTooLarge,
			Description: fmt.Sprintf("make the signal %d bytes long, at most %d: store the parameters elsewhere, and send a reference to them", size, maxSignalBytes)})
	}
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	return s, nil
}

// idFault says why a text cannot be a signalId; empty: it can.
func idFault(id string) string {
	if id == "" {
		return "is required: choose one for each signal, and keep it for retries"
	}
	return contract.TextFault(id)
}

func typeFault(signalType string) string {
	switch {
	case signalType == "":
		return "is required: name what to do, such as PAUSE"
	case !typeForm.MatchString(signalType):
		fault := "is " + contract.Quote(signalType) + ": send 1 to 64 upper-case letters, digits and underscores, such as RETRY_STEP"
		if near := contract.Nearest(signalType, contract.SignalTypes()); near != "" {
			fault += fmt.Sprintf("; did you mean %s?", near)
		}
		return fault
	default:
		return ""
	}
}

func stepFault(req *runlogv1.SendSignalRequest) string {
	_, required := stepTable[req.SignalType]
	switch {
	case req.StepId != "":
		return contract.StepFault(req.StepId)
	case required:
		return "is required on " + req.SignalType + ": name the step"
	default:
		return ""
	}
}

// textFault says what is wrong with a text for people of at most so many bytes; empty: nothing.
func textFault(text string, most int) string {
	switch {
	case len(text) > most:
		return fmt.Sprintf("is %d bytes long: send at most %d", len(text), most)
	case !utf8.ValidString(text):
		return contract.NotUTF8
	default:
		return ""
	}
}
