package run

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
)

// act appends what a word of a test says: a type of event, or of an accepted signal, and the step
// behind a colon, and the attempt behind another.
func (t *tape) act(word string) {
	parts := strings.Split(word+"::", ":")
	attempt := uint32(1)
	if parts[2] != "" {
		attempt = uint32(parts[2][0] - '0')
	}
	if contract.KnownSignal(parts[0]) {
		t.add(contract.SignalAccepted, parts[1], attempt, `{"signalType":"`+parts[0]+`"}`)
		return
	}
	t.add(parts[0], parts[1], attempt, `{}`)
}

// TestPendingSignalsSIG2: an accepted signal is pending until an event shows its effect, or the run
// ends.
func TestPendingSignalsSIG2(t *testing.T) {
	for _, c := range [...]struct{ events, want string }{
		{"RunStarted PAUSE", "PAUSE"},
		{"RunStarted PAUSE PAUSE", "PAUSE"},
		{"RunStarted PAUSE RunPaused", ""},
		{"RunStarted PAUSE StepStarted:a", "PAUSE"},
		{"RunStarted PAUSE RESUME", ""},
		{"RunStarted RESUME", ""},
		{"RunStarted RunPaused RESUME", "RESUME"},
		{"RunStarted RunPaused RESUME PAUSE", "PAUSE"},
		{"RunStarted RunPaused RESUME RunResumed", ""},
		{"RunStarted RunPaused RESUME PAUSE RunResumed", ""},
		{"RunStarted RunPaused RESUME PAUSE RunPaused", ""},
		{"RunStarted StepWaitingForAttestation:a PAUSE RESUME RunPaused", "RESUME"},
		{"RunStarted CANCEL EMERGENCY_STOP PAUSE", "CANCEL EMERGENCY_STOP PAUSE"},
		{"RunStarted CANCEL EMERGENCY_STOP PAUSE RunCancelled", ""},
		{"RunStarted CANCEL SKIP_STEP:a RunFailed", ""},
		{"RunStarted RunCompleted PAUSE CANCEL", ""},
		{"RunStarted RETRY_STEP:a", ""},
		{"RunStarted StepStarted:a RETRY_STEP:a", ""},
		{"RunStarted StepFailed:a RETRY_STEP:a", "RETRY_STEP:a:2"},
		{"RunStarted StepFailed:a:3 RETRY_STEP:a RETRY_STEP:a", "RETRY_STEP:a:4"},
		{"RunStarted StepFailed:a RETRY_STEP:a StepStarted:b", "RETRY_STEP:a:2"},
		{"RunStarted StepFailed:a RETRY_STEP:a StepStarted:a:2", ""},
		{"RunStarted StepFailed:a RETRY_STEP:a StepFailed:a:2", ""},
		{"RunStarted SKIP_STEP:a StepDelayed:a", "SKIP_STEP:a"},
		{"RunStarted SKIP_STEP:a StepDelayed:a StepSkipped:a", ""},
		{"RunStarted StepStarted:a SKIP_STEP:a SKIP_STEP:b StepCompleted:a", "SKIP_STEP:b"},
		{"RunStarted StepCompleted:a SKIP_STEP:a", ""},
		{"RunStarted SKIP_STEP", ""},
		{"UPDATE_PARAMS ESCALATE_ALERT INJECT_OVERRIDE UPDATE_TARGET", ""},
	} {
		tape := newTape()
		for word := range strings.FieldsSeq(c.events) {
			tape.act(word)
		}
		s := ReduceAll(nil, tape.records)
		var got []string
		for _, p := range s.Pending {
			word := p.SignalType
			if p.StepID != "" {
				word += ":" + p.StepID
			}
			if p.Attempt != 0 {
				word += fmt.Sprint(":", p.Attempt)
			}
			got = append(got, word)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: pending %q, want %q", c.events, text, c.want)
		}
	}
}

// TestPendingSignalsStaySIG2: the pending signals are known also when the list of decisions has
// many others since, and however many signals a producer has written.
func TestPendingSignalsStaySIG2(t *testing.T) {
	tape := newTape()
	tape.act("RunStarted")
	tape.act("PAUSE")
	for i := range 3 * maxPending {
		tape.act("UPDATE_PARAMS")
		tape.act(fmt.Sprint("SKIP_STEP:step-", i))
	}
	s := ReduceAll(nil, tape.records)
	if s.PendingOf(contract.SignalPause, "") == nil || !s.PendingIsFull() || len(s.Pending) != maxPending {
		t.Errorf("%d signals are pending, PAUSE is %v", len(s.Pending), s.PendingOf(contract.SignalPause, ""))
	}
	for _, signal := range []string{contract.SignalCancel, contract.SignalEmergencyStop} {
		tape.act(signal)
		if s = ReduceAll(nil, tape.records); s.PendingOf(signal, "") == nil {
			t.Errorf("%s is not pending after many other signals", signal)
		}
	}
	back, err := UnmarshalStored(s.MarshalStored())
	if err != nil || !slices.Equal(back.Pending, s.Pending) {
		t.Errorf("read back %v, error %v", back, err)
	}
}

// TestPendingSignalsOfImports: a record without a payload, as a foreign producer may write it,
// leaves nothing pending.
func TestPendingSignalsOfImports(t *testing.T) {
	s := ReduceAll(nil, []storage.Record{record(1, contract.RunStarted, "", 1, `{}`), record(2, contract.SignalAccepted, "", 1, `[]`)})
	if len(s.Pending) != 0 {
		t.Errorf("pending %v", s.Pending)
	}
}

// TestPendingSignalsSayWhichPRJ19: a pending signal has the id of the one that was accepted first,
// and its place; that of another type or step is another one.
func TestPendingSignalsSayWhichPRJ19(t *testing.T) {
	tape := newTape()
	tape.add(contract.RunStarted, "", 1, `{}`)
	tape.add(contract.StepFailed, "a", 3, `{}`)
	tape.add(contract.SignalAccepted, "", 1, `{"signalId":"pause-1","signalType":"PAUSE"}`)
	tape.add(contract.SignalAccepted, "", 2, `{"signalId":"pause-2","signalType":"PAUSE"}`)
	tape.add(contract.SignalRejected, "", 1, `{"signalId":"resume-1","signalType":"RESUME"}`)
	tape.add(contract.SignalAccepted, "a", 3, `{"signalId":"retry-1","signalType":"RETRY_STEP"}`)
	s := ReduceAll(nil, tape.records)
	want := []PendingSignal{
		{SignalID: "pause-1", SignalType: "PAUSE", RunSeq: tape.records[2].RunSeq},
		{SignalID: "retry-1", SignalType: "RETRY_STEP", StepID: "a", Attempt: 4, RunSeq: tape.records[5].RunSeq},
	}
	if !slices.Equal(s.Pending, want) {
		t.Errorf("pending %+v, want %+v", s.Pending, want)
	}
	other := *s
	if other.Pending = nil; other.Digest() == s.Digest() {
		t.Error("the digest does not depend on what is pending")
	}
}
