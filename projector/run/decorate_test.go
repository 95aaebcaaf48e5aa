package run

import (
	"testing"
	"time"

	"runlog/proto/contract"
)

func TestSubstatusPRJ9(t *testing.T) {
	tape := runIn(Running)
	for _, step := range []string{"a", "b", "c"} {
		tape.add(contract.StepStarted, step, 1, `{}`)
	}
	tape.add(contract.StepDelayed, "d", 1, `{}`)
	running := ReduceAll(nil, tape.records)
	seq := running.LastEventSeq

	pause := func(s *Snapshot, payload string) *Snapshot {
		r := record(s.LastEventSeq+1, contract.RunPaused, "", 1, payload)
		return Reduce(s, &r)
	}
	step := func(s *Snapshot, eventType, id string) *Snapshot {
		r := record(s.LastEventSeq+1, eventType, id, 1, `{}`)
		return Reduce(s, &r)
	}
	draining := pause(running, `{"draining":true}`)
	// persistedAt, not emittedAt
	pausedAt := epoch.Add(time.Duration(seq+1)*time.Second + 5*time.Millisecond)
	if !draining.Draining || draining.PausedAt != pausedAt {
		t.Fatalf("draining %v since %v, want since %v", draining.Draining, draining.PausedAt, pausedAt)
	}
	one := step(step(draining, contract.StepCompleted, "a"), contract.StepFailed, "b")
	resumed := step(draining, contract.RunResumed, "")
	again := pause(resumed, `{}`)

	const three = "Workflow paused. Waiting for 3 in-flight tasks to complete."
	for _, c := range []struct {
		name    string
		s       *Snapshot
		after   time.Duration
		message string
	}{
		{"before the pause", running, 0, ""},
		{"paused and draining", draining, 0, three},
		{"asked by a clock that is behind", draining, -time.Hour, three},
		{"just before the timeout", draining, 5*time.Minute - 1, three},
		{"at the timeout", draining, 5 * time.Minute, ""},
		{"one in flight", one, 0, "Workflow paused. Waiting for 1 in-flight task to complete."},
		{"drained", step(one, contract.StepCompleted, "c"), 0, ""},
		{"resumed", resumed, 0, ""},
		{"paused anew, without draining", again, 0, ""},
		{"cancelled", step(draining, contract.RunCancelled, ""), 0, ""},
		{"draining: false", pause(running, `{"draining":false}`), 0, ""},
		{"draining of the wrong type", pause(running, `{"draining":"true"}`), 0, ""},
		// the second is invalid (PRJ-8)
		{"paused twice", pause(draining, `{"draining":false}`), 0, three},
	} {
		substatus, message := c.s.Drain().Substatus(pausedAt.Add(c.after), DefaultDrainTimeout)
		want := ""
		if c.message != "" {
			want = "DRAINING"
		}
		if substatus != want || message != c.message {
			t.Errorf("%s: %q %q, want %q %q", c.name, substatus, message, want, c.message)
		}
	}
	if resumed.Draining || !resumed.PausedAt.IsZero() {
		t.Error("what the pause said outlives it")
	}
}
