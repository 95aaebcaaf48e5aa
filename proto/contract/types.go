package contract

// The event types that the contract knows (ENV-2, PRJ-3, PRJ-5). Others are accepted and kept
// (ENV-6).
const (
	RunQueued                 = "RunQueued"
	RunApproved               = "RunApproved"
	RunStarted                = "RunStarted"
	RunPaused                 = "RunPaused"
	RunResumed                = "RunResumed"
	RunCompleted              = "RunCompleted"
	RunFailed                 = "RunFailed"
	RunCancelled              = "RunCancelled"
	StepStarted               = "StepStarted"
	StepCompleted             = "StepCompleted"
	StepFailed                = "StepFailed"
	StepRetrying              = "StepRetrying"
	StepSkipped               = "StepSkipped"
	StepDelayed               = "StepDelayed"
	StepWaitingForAttestation = "StepWaitingForAttestation"
	StepAttested              = "StepAttested"
	SignalAccepted            = "SignalAccepted"
	SignalRejected            = "SignalRejected"
)

// StepAttestationApproved is an approval of a step that waits for several attesters (SEC-10). It is
// a decision, and changes no status. So it is stored and folded as unknown types are, and has no
// code.
const StepAttestationApproved = "StepAttestationApproved"

// typeNames maps a code to its name. The codes lie on disk: append only. Code 0 is "unknown", and a
// type so stored carries its name.
var typeNames = [...]string{
	1:  RunQueued,
	2:  RunApproved,
	3:  RunStarted,
	4:  RunPaused,
	5:  RunResumed,
	6:  RunCompleted,
	7:  RunFailed,
	8:  RunCancelled,
	9:  StepStarted,
	10: StepCompleted,
	11: StepFailed,
	12: StepSkipped,
	13: StepDelayed,
	14: StepWaitingForAttestation,
	15: StepAttested,
	16: SignalAccepted,
	17: SignalRejected,
	18: StepRetrying,
}

// TypeCode returns the persisted code of a known event type, 1 to 18, and 0 for every other name.
func TypeCode(name string) uint32 {
	switch name {
	case RunQueued:
		return 1
	case RunApproved:
		return 2
	case RunStarted:
		return 3
	case RunPaused:
		return 4
	case RunResumed:
		return 5
	case RunCompleted:
		return 6
	case RunFailed:
		return 7
	case RunCancelled:
		return 8
	case StepStarted:
		return 9
	case StepCompleted:
		return 10
	case StepFailed:
		return 11
	case StepSkipped:
		return 12
	case StepDelayed:
		return 13
	case StepWaitingForAttestation:
		return 14
	case StepAttested:
		return 15
	case SignalAccepted:
		return 16
	case SignalRejected:
		return 17
	case StepRetrying:
		return 18
	}
	return 0
}

// TypeName returns the name of a known event type. It is false for 0 and for codes of a newer
// release.
func TypeName(code uint32) (string, bool) {
	if code == 0 || code >= uint32(len(typeNames)) {
		return "", false
	}
	return typeNames[code], true
}

// DecidedBy returns the call that alone stores events of a type, because they are decisions
// (SEC-9); empty: producers append them.
func DecidedBy(name string) string {
	switch name {
	case SignalAccepted, SignalRejected:
		return "SendSignal"
	case StepAttested, StepAttestationApproved:
		return "AttestStep"
	case RunQueued:
		return "RequestRun"
	}
	return ""
}

// Scope tells what an event type is about, and so whether its events carry a stepId (ENV-2).
type Scope uint8

const (
	// ScopeAny may carry a stepId: signals and unknown types.
	ScopeAny Scope = iota
	// ScopeRun must not carry a stepId.
	ScopeRun
	// ScopeStep requires a stepId.
	ScopeStep
)

// ScopeOf returns the scope of an event type (ENV-2).
func ScopeOf(name string) Scope {
	switch name {
	case RunQueued, RunApproved, RunStarted, RunPaused, RunResumed, RunCompleted, RunFailed, RunCancelled:
		return ScopeRun
	case StepStarted, StepCompleted, StepFailed, StepRetrying, StepSkipped, StepDelayed, StepWaitingForAttestation, StepAttested:
		return ScopeStep
	}
	return ScopeAny
}

// Recurs reports whether events of a type come again and again in one run, each with a cause, so
// that the authority can assign their attempts (IDM-9, IDM-10).
func Recurs(name string) bool {
	switch name {
	case RunPaused, RunResumed, SignalAccepted, SignalRejected:
		return true
	}
	return false
}

// OfOneTry reports whether an event of a type is about one try of the platform, so that each
// engineAttemptId has an event of its own (IDM-11). Every other event is one for all tries of a
// logical attempt (IDM-4).
func OfOneTry(name string) bool { return name == StepRetrying }

// LikelyType returns the known event type within two edits of an unknown one, whatever the case of
// its letters. An unknown type is legal, but no snapshot follows from it, so the answer says so
// (ENV-6).
func LikelyType(name string) (string, bool) {
	if TypeCode(name) != 0 {
		return "", false
	}
	found := Nearest(name, typeNames[1:])
	return found, found != ""
}
