package run

import (
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
)

// TestNoticesAgreeQUE10PRJ9: the log takes a run for cancelled, and a pause for one that drains, by
// the same payloads as the reducer.
func TestNoticesAgreeQUE10PRJ9(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"signalType":"CANCEL"}`, `{"signalType":"EMERGENCY_STOP"}`, `{"signalType":"PAUSE"}`, " \t\r\n{\"signalType\":\"CANCEL\"}",
		`{"signalType":"PAUSE","signalType":"CANCEL"}`, `{"signalType":"CANCEL","signalType":"PAUSE"}`, `{"SignalType":"CANCEL"}`,
		`{"signalType":"C\u0041NCEL"}`, `{"signalType":["CANCEL"]}`, `{"signalType":"cancel"}`, `{"x":{"signalType":"CANCEL"}}`, `{}`,
		`{"signal\u0054ype":"CANCEL"}`,
	} {
		e := contract.Event{Type: contract.SignalAccepted, Payload: []byte(payload)}
		f := newFold(&Snapshot{Status: Running})
		f.signal(&storage.Record{Recorded: contract.Recorded{Event: e}})
		if pending, noticed := len(f.next.Pending) > 0 && f.next.Pending[0].SignalType != contract.SignalPause, contract.NoticeOf(&e) == contract.NoticeCancelling; pending != noticed {
			t.Errorf("%s: pending %t, noticed %t", payload, pending, noticed)
		}
	}
	for _, payload := range []string{
		`{"draining":true}`, " \n{\"draining\":true}", `{"draining":false,"draining":true}`, `{"draining":true,"draining":false}`, `{"draining":"true"}`,
		`{"Draining":true}`, `{"x":{"draining":true}}`, `{}`, `{"drainin\u0067":true}`,
	} {
		e := contract.Event{Type: contract.RunPaused, Payload: []byte(payload)}
		if drains, noticed := decodeDraining(e.Payload), contract.NoticeOf(&e) == contract.NoticeDraining; drains != noticed {
			t.Errorf("%s: draining %t, noticed %t", payload, drains, noticed)
		}
	}
}
