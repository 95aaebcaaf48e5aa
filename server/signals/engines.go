package signals

import (
	"slices"

	"runlog/proto/contract"
)

// obeyed has the signal types that the engines of this module obey, by the engineType of their
// runs: those of their adapterCapabilities.json. The log knows no more of an engine than the type.
var obeyed = map[string][]string{
	"conductor": steering,
	"mock":      steering,
	"runlog":    steering,
	"temporal":  append(slices.Clip(steering), contract.SignalUpdateParams),
}

var steering = []string{
	contract.SignalPause, contract.SignalResume, contract.SignalCancel, contract.SignalEmergencyStop, contract.SignalRetryStep,
	contract.SignalSkipStep,
}

// obeys reports whether an engine obeys signals of a type. One that is not known may obey any.
func obeys(engineType, signalType string) bool {
	types, known := obeyed[engineType]
	return !known || slices.Contains(types, signalType)
}
