package contract

import "slices"

// The signal types that the contract knows (SIG-1). Others are a policy of the server.
const (
	SignalPause          = "PAUSE"
	SignalResume         = "RESUME"
	SignalCancel         = "CANCEL"
	SignalRetryStep      = "RETRY_STEP"
	SignalSkipStep       = "SKIP_STEP"
	SignalUpdateParams   = "UPDATE_PARAMS"
	SignalUpdateTarget   = "UPDATE_TARGET"
	SignalEscalateAlert  = "ESCALATE_ALERT"
	SignalInjectOverride = "INJECT_OVERRIDE"
	SignalEmergencyStop  = "EMERGENCY_STOP"
)

// signalTypes are in the order of SIG-1.
var signalTypes = []string{
	SignalPause, SignalResume, SignalCancel, SignalRetryStep, SignalSkipStep, SignalUpdateParams,
	SignalUpdateTarget, SignalEscalateAlert, SignalInjectOverride, SignalEmergencyStop,
}

// SignalTypes returns the known signal types, in the order of SIG-1.
func SignalTypes() []string { return slices.Clone(signalTypes) }

// KnownSignal reports whether the contract knows a signal type.
func KnownSignal(signalType string) bool { return slices.Contains(signalTypes, signalType) }
