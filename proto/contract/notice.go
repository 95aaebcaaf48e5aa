package contract

import (
	"bytes"

	"runlog/proto/contract/jsontext"
)

// Notice is what the machines of the log learn of an event when it is stored. Its numbers lie in
// the log.
type Notice uint8

const (
	// NoticeStarted is that of a RunStarted: the worker of the run's lease executes it (QUE-12).
	NoticeStarted Notice = 1
	// NoticeCancelling is that of an accepted CANCEL or EMERGENCY_STOP, which is pending until the
	// run ends: no worker gets the run any more (QUE-10).
	NoticeCancelling Notice = 2
)

// NoticeOf returns what machines learn of an event; 0: nothing. It reads the payload as the reducer
// does.
func NoticeOf(e *Event) Notice {
	switch e.Type {
	case RunStarted:
		return NoticeStarted
	case SignalAccepted:
		signalType, _ := jsontext.Lookup(bytes.TrimLeft(e.Payload, " \t\r\n"), "signalType")
		if t := jsontext.Text(signalType); t == SignalCancel || t == SignalEmergencyStop {
			return NoticeCancelling
		}
	}
	return 0
}
