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
	// NoticeDraining is that of a RunPaused with draining: the pause has a timeout (PRJ-9).
	NoticeDraining Notice = 3
)

// NoticeOf returns what machines learn of an event; 0: nothing. It reads the payload as the reducer
// does.
func NoticeOf(e *Event) Notice {
	switch e.Type {
	case RunStarted:
		return NoticeStarted
	case SignalAccepted:
		if t := jsontext.Text(e.member("signalType")); t == SignalCancel || t == SignalEmergencyStop {
			return NoticeCancelling
		}
	case RunPaused:
		if string(e.member("draining")) == "true" {
			return NoticeDraining
		}
	}
	return 0
}

// member returns the value of a member of the payload; empty: it has none.
func (e *Event) member(name string) []byte {
	value, _ := jsontext.Lookup(bytes.TrimLeft(e.Payload, " \t\r\n"), name)
	return value
}
