package run

import (
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
)

// TestNoticesAgreeQUE10: the log takes a run for cancelled by the same payloads as the reducer.
func TestNoticesAgreeQUE10(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"signalType":"CANCEL"}`, `{"signalType":"EMERGENCY_STOP"}`, `{"signalType":"PAUSE"}`, " \t\r\n{\"signalType\":\"CANCEL\"}",
		`{"signalType":"PAUSE","signalType":"CANCEL"}`, `{"signalType":"CANCEL","signalType":"PAUSE"}`, `{"SignalType":"CANCEL"}`,
		`{"signalType":"C\u0041NCEL"}`, `{"signalType":["CANCEL"]}`, `{"signalType":"cancel"}`, `{"x":{"signalType":"CANCEL"}}`, `{}`,
		`{"signal\u0054ype":"CANCEL"}`,
	} {
		e := contract.Event{Type: contract.SignalAccepted, Payload: []byte(payload)}
		f := newFold(&Snapshot{Status: Running})
		f.signal(&storage.Record{Event: e})
		if pending, noticed := len(f.next.Pending) > 0 && f.next.Pending[0].SignalType != contract.SignalPause, contract.NoticeOf(&e) == contract.NoticeCancelling; pending != noticed {
			t.Errorf("%s: pending %t, noticed %t", payload, pending, noticed)
		}
	}
}
