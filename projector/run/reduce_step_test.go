package run

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/storage"
)

var stepEventTypes = []string{
	contract.StepStarted, contract.StepDelayed, contract.StepWaitingForAttestation, contract.StepCompleted,
	contract.StepFailed, contract.StepSkipped, contract.StepAttested, contract.StepRetrying,
}

// stepPath leads attempt 1 of a step to a status.
var stepPath = map[StepStatus][]string{
	StepPending:               {contract.StepDelayed},
	StepRunning:               {contract.StepStarted},
	StepWaitingForAttestation: {contract.StepWaitingForAttestation},
	StepSuccess:               {contract.StepCompleted},
	StepFailed:                {contract.StepFailed},
	StepSkipped:               {contract.StepSkipped},
}

func stepIn(status StepStatus) *tape {
	t := runIn(Running)
	for _, eventType := range stepPath[status] {
		t.add(eventType, "build", 1, `{}`)
	}
	return t
}

// stepPayloads has a payload for each step event that shows in the snapshot.
var stepPayloads = map[string]string{
	contract.StepStarted:   `{"startedAt":"2026-02-11T11:00:00Z"}`,
	contract.StepDelayed:   `{"reason":"throttled"}`,
	contract.StepCompleted: `{"artifacts":[{"uri":"u","kind":"k"}],"completedAt":"2026-02-11T12:00:00Z"}`,
	contract.StepFailed:    `{"error":{"code":"E1","message":"boom","retryable":true,"category":"USER"}}`,
	contract.StepSkipped:   `{"reason":"upstream failed"}`,
	contract.StepAttested:  `{"outcome":"SUCCESS"}`,
	contract.StepRetrying:  `{"error":{"code":"E1","message":"boom"},"nextAttemptAt":"2026-02-11T12:00:00Z"}`,
}

// The table of doc.go.
func TestStepTransitionsPRJ5PRJ6PRJ8(t *testing.T) {
	const no = StepStatus(255)
	want := map[StepStatus][8]StepStatus{
		// In the order Started, Delayed, WaitingForAttestation, Completed, Failed, Skipped,
		// Attested, Retrying.
		StepPending:               {StepRunning, StepPending, StepWaitingForAttestation, StepSuccess, StepFailed, StepSkipped, no, StepPending},
		StepRunning:               {StepRunning, no, StepWaitingForAttestation, StepSuccess, StepFailed, no, no, StepRunning},
		StepWaitingForAttestation: {StepWaitingForAttestation, no, StepWaitingForAttestation, no, StepFailed, no, StepSuccess, StepWaitingForAttestation},
		StepSuccess:               {StepSuccess, no, no, StepSuccess, no, no, no, StepSuccess},
		StepFailed:                {StepFailed, no, no, no, StepFailed, no, no, StepFailed},
		StepSkipped:               {StepSkipped, no, no, no, no, StepSkipped, no, StepSkipped},
	}
	for from, row := range want {
		for i, eventType := range stepEventTypes {
			tape := stepIn(from)
			before := ReduceAll(nil, tape.records)
			if got := before.Step("build").Status; got != from {
				t.Fatalf("the tape for %v ends in %v", from, got)
			}
			r := tape.add(eventType, "build", 1, stepPayloads[eventType])
			r.EngineAttemptID = 4
			if from == StepFailed {
				r.EngineAttemptID = 1 // a higher one is a retry (PRJ-15)
			}
			after := Reduce(before, r)
			step := after.Step("build")
			if to := row[i]; to != no {
				if step.Status != to || after.InconsistencyCount != 0 || step.EngineAttemptID != r.EngineAttemptID {
					t.Errorf("%s on %v: %v, engine attempt %d, %d inconsistencies; want %v",
						eventType, from, step.Status, step.EngineAttemptID, after.InconsistencyCount, to)
				}
				continue
			}
			assertSameState(t, before, after)
			wantInc := []Inconsistency{{Kind: "INVALID_TRANSITION", EventID: r.EventID.String(), RunSeq: r.RunSeq,
				State: "build: " + from.String(), Attempted: eventType}}
			if !reflect.DeepEqual(after.Inconsistencies, wantInc) {
				t.Errorf("%s on %v: %+v, want %+v", eventType, from, after.Inconsistencies, wantInc)
			}
		}
	}
}

// The first event of a step is judged like one that meets a PENDING attempt.
func TestStepIsMadeByItsFirstEventPRJ5(t *testing.T) {
	for _, eventType := range stepEventTypes {
		tape := runIn(Running)
		r := tape.add(eventType, "build", 3, stepPayloads[eventType])
		s := ReduceAll(nil, tape.records)
		if eventType == contract.StepAttested {
			if s.Step("build") != nil || s.InconsistencyCount != 1 || s.Inconsistencies[0].State != "build: PENDING" {
				t.Errorf("an attestation that nobody waits for: %+v", s.Inconsistencies)
			}
			continue
		}
		step := s.Step("build")
		if step == nil || step.LogicalAttemptID != 3 || step.EngineAttemptID != r.EngineAttemptID ||
			step.Attempts.Len() != 0 || s.InconsistencyCount != 0 {
			t.Errorf("%s: %+v, %d inconsistencies", eventType, step, s.InconsistencyCount)
		}
	}
	tape := runIn(Running)
	tape.add(contract.SignalAccepted, "build", 1, `{}`)
	tape.add("StepTeleported", "build", 1, `{}`)
	if s := ReduceAll(nil, tape.records); s.Steps.Len() != 0 {
		t.Error("a signal or an unknown type made a step")
	}
}

func TestStepEffectsPRJ5PRJ10(t *testing.T) {
	second := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }
	noon := time.Date(2026, 2, 11, 12, 0, 0, 0, time.UTC)
	size := int64(1 << 40)
	yes, no := true, false
	for _, c := range []struct {
		name, eventType, payload string
		want                     StepAttempt
	}{
		{"started", contract.StepStarted, `{"startedAt":"2026-02-11T12:00:00Z"}`,
			StepAttempt{Status: StepRunning, StartedAt: noon}},
		{"started, no time", contract.StepStarted, `{"startedAt":false}`,
			StepAttempt{Status: StepRunning, StartedAt: second(3)}},
		{"delayed", contract.StepDelayed, `{"reason":"throttled"}`,
			StepAttempt{Status: StepPending, Reason: "throttled"}},
		{"completed", contract.StepCompleted, `{"completedAt":"2026-02-11T12:00:00Z","artifacts":[
			{"uri":"u1","kind":"log","sha256":"ff","sizeBytes":1099511627776,"expiresAt":"2027-01-01"},
			{"kind":"no uri"},7,{"uri":"u2"}]}`,
			StepAttempt{Status: StepSuccess, CompletedAt: noon, Artifacts: []Artifact{
				{URI: "u1", Kind: "log", SHA256: "ff", SizeBytes: &size, ExpiresAt: "2027-01-01"}, {URI: "u2"}}}},
		{"completed, references", contract.StepCompleted, `{"artifacts":{},"artifactRefs":[{"uri":"u1","kind":"log"}]}`,
			StepAttempt{Status: StepSuccess, CompletedAt: second(3), Artifacts: []Artifact{{URI: "u1", Kind: "log"}}}},
		{"failed", contract.StepFailed, `{"error":{"code":"E1","message":"boom","retryable":true,"category":"USER"},
			"artifacts":[{"uri":"u1","kind":"log"}],"completedAt":"2026-02-11T12:00:00Z"}`,
			StepAttempt{Status: StepFailed, CompletedAt: noon, Artifacts: []Artifact{{URI: "u1", Kind: "log"}},
				Error: &StepError{Code: "E1", Message: "boom", Retryable: &yes, Category: "USER"}}},
		{"failed, in a word", contract.StepFailed, `{"error":"boom"}`,
			StepAttempt{Status: StepFailed, CompletedAt: second(3), Error: &StepError{Message: "boom"}}},
		{"failed, half told", contract.StepFailed, `{"error":{"code":7,"message":"boom","retryable":"true"}}`,
			StepAttempt{Status: StepFailed, CompletedAt: second(3), Error: &StepError{Message: "boom"}}},
		{"failed, untold", contract.StepFailed, `{"error":null}`,
			StepAttempt{Status: StepFailed, CompletedAt: second(3)}},
		{"failed, nothing said", contract.StepFailed, `{"error":{"details":1},"errorCode":"","errorMessage":7}`,
			StepAttempt{Status: StepFailed, CompletedAt: second(3)}},
		{"failed, not to be retried", contract.StepFailed, `{"error":{"retryable":false},"failedAt":"2026-02-11T12:00:00Z"}`,
			StepAttempt{Status: StepFailed, CompletedAt: noon, Error: &StepError{Retryable: &no}}},
		{"failed, flat", contract.StepFailed, `{"error":null,"errorCode":"E1","errorMessage":"boom","reasonCode":"R"}`,
			StepAttempt{Status: StepFailed, CompletedAt: second(3), Error: &StepError{Code: "E1", Message: "boom"}}},
		{"failed, by its reason", contract.StepFailed, `{"reasonCode":"R","reason":{"message":"gone","at":7}}`,
			StepAttempt{Status: StepFailed, CompletedAt: second(3), Error: &StepError{Code: "R"}, Reason: "gone"}},
		{"failed, its error first", contract.StepFailed, `{"errorCode":"E1","error":{"message":"boom"}}`,
			StepAttempt{Status: StepFailed, CompletedAt: second(3), Error: &StepError{Message: "boom"}}},
		{"failed, two ends", contract.StepFailed, `{"failedAt":"2020-01-01T00:00:00Z","completedAt":"2026-02-11T12:00:00Z"}`,
			StepAttempt{Status: StepFailed, CompletedAt: noon}},
		{"completed, with its start", contract.StepCompleted, `{"startedAt":"2026-02-11T12:00:00Z","completedAt":"2026-02-11T12:00:00Z"}`,
			StepAttempt{Status: StepSuccess, StartedAt: noon, CompletedAt: noon}},
		{"skipped, with an object", contract.StepSkipped, `{"reason":{"code":"UPSTREAM"}}`,
			StepAttempt{Status: StepSkipped, Reason: "UPSTREAM"}},
		{"delayed, with an object", contract.StepDelayed, `{"reason":{"code":"SLOTS","message":"no slot"}}`,
			StepAttempt{Status: StepPending, Reason: "no slot"}},
		{"skipped", contract.StepSkipped, `{"reason":"upstream","completedAt":"2026-02-11T12:00:00Z"}`,
			StepAttempt{Status: StepSkipped, Reason: "upstream"}},
		{"waiting", contract.StepWaitingForAttestation, `{"reason":"x"}`,
			StepAttempt{Status: StepWaitingForAttestation}},
	} {
		tape := runIn(Running)
		tape.add(c.eventType, "build", 1, c.payload)
		c.want.LogicalAttemptID, c.want.EngineAttemptID = 1, 1
		if c.want.Status == StepFailed {
			c.want.OutcomeEngineAttemptID = 1
		}
		got := ReduceAll(nil, tape.records).Step("build").StepAttempt
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestAttestationPRJ5(t *testing.T) {
	waiting := runIn(Running)
	waiting.add(contract.StepStarted, "gate", 1, `{}`)
	waiting.add(contract.StepWaitingForAttestation, "gate", 1, `{}`)
	before := ReduceAll(nil, waiting.records)
	if before.Status != Waiting || before.Step("gate").Status != StepWaitingForAttestation {
		t.Fatalf("run %v, step %v", before.Status, before.Step("gate").Status)
	}
	seq := before.LastEventSeq + 1

	r := record(seq, contract.StepAttested, "gate", 1, `{"outcome":"SUCCESS","notes":"uploaded","attestedBy":"jed",
		"attestedAt":"2026-02-11T12:00:00Z","artifacts":[{"name":"out.xlsx","uri":"s3://o","sha256":"ff","bytes":12}]}`)
	after := Reduce(before, &r)
	size := int64(12)
	want := before.Step("gate").StepAttempt
	want.Status = StepSuccess
	want.CompletedAt = time.Date(2026, 2, 11, 12, 0, 0, 0, time.UTC)
	want.Reason = "uploaded"
	want.Artifacts = []Artifact{{URI: "s3://o", Kind: "out.xlsx", SHA256: "ff", SizeBytes: &size}}
	if got := after.Step("gate").StepAttempt; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if after.Status != Waiting {
		t.Errorf("the run is %v: an attestation does not resume it", after.Status)
	}

	for _, outcome := range []string{"FAIL", "FAILED"} {
		r := record(seq, contract.StepAttested, "gate", 1, `{"outcome":"`+outcome+`","error":"wrong numbers"}`)
		after := Reduce(before, &r)
		step := after.Step("gate")
		if step.Status != StepFailed || step.Error == nil || step.Error.Message != "wrong numbers" || after.FailedSteps != 1 {
			t.Errorf("%s: %+v, failedSteps %d", outcome, step, after.FailedSteps)
		}
	}
	for _, payload := range []string{`{"outcome":"MAYBE"}`, `{"outcome":"success"}`, `{"outcome":true}`, `{}`} {
		r := record(seq, contract.StepAttested, "gate", 1, payload)
		after := Reduce(before, &r)
		assertSameState(t, before, after)
		if after.InconsistencyCount != 1 {
			t.Errorf("%s is no outcome, and no inconsistency either", payload)
		}
	}
}

func TestWaitingStepPutsOnlyARunningRunToWaitingPRJ5(t *testing.T) {
	for status := Pending; status <= Cancelled; status++ {
		tape := runIn(status)
		tape.add(contract.StepWaitingForAttestation, "other", 1, `{}`)
		want := status
		if status == Running {
			want = Waiting
		}
		if got := ReduceAll(nil, tape.records).Status; got != want {
			t.Errorf("a %v run becomes %v", status, got)
		}
	}

	tape := runIn(Waiting)
	tape.add(contract.RunResumed, "", 1, `{}`)
	tape.add(contract.StepWaitingForAttestation, "gate", 1, `{}`)
	if s := ReduceAll(nil, tape.records); s.Status != Waiting || s.InconsistencyCount != 0 {
		t.Errorf("resumed, and waiting again: %v, %+v", s.Status, s.Inconsistencies)
	}
}

func TestLateStepStartedPRJ6(t *testing.T) {
	late := `{"startedAt":"2026-02-11T09:59:00Z","reason":"x","artifacts":[{"uri":"x"}],"error":"x"}`
	for _, status := range []StepStatus{StepWaitingForAttestation, StepSuccess, StepFailed, StepSkipped} {
		tape := stepIn(status)
		want := ReduceAll(nil, tape.records).Step("build").StepAttempt
		want.StartedAt = time.Date(2026, 2, 11, 9, 59, 0, 0, time.UTC)
		tape.add(contract.StepStarted, "build", 1, late)
		s := ReduceAll(nil, tape.records)
		if got := s.Step("build").StepAttempt; !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v\nwant %+v", status, got, want)
		}
		// It fills, it does not correct.
		tape.add(contract.StepStarted, "build", 1, `{"startedAt":"2026-02-11T08:00:00Z"}`)
		s = ReduceAll(s, tape.records)
		if got := s.Step("build").StepAttempt; !reflect.DeepEqual(got, want) || s.InconsistencyCount != 0 {
			t.Errorf("%v, started twice: %+v\nwant %+v", status, got, want)
		}
	}
}

func TestStepEventsAfterTheRunsEndPRJ6(t *testing.T) {
	for _, status := range []Status{Completed, Failed, Cancelled} {
		tape := runIn(status)
		tape.add(contract.StepStarted, "build", 1, `{}`)
		tape.add(contract.StepFailed, "build", 1, `{}`)
		tape.add(contract.StepWaitingForAttestation, "gate", 1, `{}`)
		s := ReduceAll(nil, tape.records)
		if s.Status != status || s.Step("build").Status != StepFailed || s.FailedSteps != 1 ||
			s.Step("gate").Status != StepWaitingForAttestation || s.InconsistencyCount != 0 {
			t.Errorf("%v: %s", status, s.CanonicalJSON())
		}
	}
}

func TestFirstTerminalEventWinsPRJ6PRJ7(t *testing.T) {
	tape := runIn(Running)
	tape.add(contract.StepFailed, "build", 1, `{"error":"first"}`)
	tape.add(contract.StepFailed, "build", 1, `{"error":"second"}`)
	s := ReduceAll(nil, tape.records)
	if step := s.Step("build"); s.FailedSteps != 1 || step.Error.Message != "first" || s.InconsistencyCount != 0 {
		t.Errorf("failedSteps %d, %+v", s.FailedSteps, step.Error)
	}
}

func TestHigherAttemptPRJ7(t *testing.T) {
	tape := runIn(Running)
	tape.add(contract.StepStarted, "build", 1, `{}`)
	failed := tape.add(contract.StepFailed, "build", 1, `{"error":"boom","artifacts":[{"uri":"u"}]}`)
	failed.EngineAttemptID = 3
	first := ReduceAll(nil, tape.records)
	tape.add(contract.StepDelayed, "build", 2, `{"reason":"backoff"}`).EngineAttemptID = 2
	s := ReduceAll(first, tape.records)

	want := &StepSnapshot{
		StepID:      "build",
		StepAttempt: StepAttempt{LogicalAttemptID: 2, EngineAttemptID: 2, Status: StepPending, Reason: "backoff"},
	}
	earlier := first.Step("build").StepAttempt
	want.Attempts.setStanding(new(edit), &earlier)
	got := s.Step("build")
	want.made = got.made
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if a := attemptsOf(s, "build")[0]; a.EngineAttemptID != 3 || a.Error.Message != "boom" {
		t.Errorf("the first attempt has become %+v", a)
	}

	tape.add(contract.StepStarted, "build", 2, `{}`).EngineAttemptID = 1
	s = ReduceAll(s, tape.records)
	if step := s.Step("build"); step.Status != StepRunning || step.Reason != "" || step.EngineAttemptID != 2 {
		t.Errorf("%+v", step)
	}
	tape.add(contract.StepFailed, "build", 2, `{}`)
	tape.add(contract.StepCompleted, "build", 5, `{}`)
	s = ReduceAll(s, tape.records)
	if step := s.Step("build"); s.FailedSteps != 2 || step.Status != StepSuccess || step.Attempts.Len() != 2 || s.Steps.Len() != 1 {
		t.Errorf("failedSteps %d, %+v", s.FailedSteps, step)
	}
}

// An event that the attempt it would open does not allow opens none.
func TestInvalidEventOpensNoAttemptPRJ7PRJ8(t *testing.T) {
	tape := stepIn(StepWaitingForAttestation)
	before := ReduceAll(nil, tape.records)
	r := tape.add(contract.StepAttested, "build", 2, `{"outcome":"SUCCESS"}`)
	after := Reduce(before, r)
	assertSameState(t, before, after)
	if after.InconsistencyCount != 1 || after.Inconsistencies[0].State != "build: PENDING" {
		t.Errorf("%+v", after.Inconsistencies)
	}
}

func TestLowerAttemptPRJ7(t *testing.T) {
	for _, eventType := range stepEventTypes {
		for status := range stepPath {
			tape := runIn(Running)
			for _, path := range stepPath[status] {
				tape.add(path, "build", 4, `{}`)
			}
			tape.add(contract.RunPaused, "", 1, `{}`)
			tape.add(contract.RunResumed, "", 1, `{}`)
			before := ReduceAll(nil, tape.records)
			r := tape.add(eventType, "build", 2, stepPayloads[eventType])
			r.EngineAttemptID = 9
			after := Reduce(before, r)

			step := after.Step("build")
			if !reflect.DeepEqual(step.StepAttempt, before.Step("build").StepAttempt) {
				t.Errorf("%s changed the current attempt to %+v", eventType, step.StepAttempt)
			}
			if after.Status != before.Status || after.FailedSteps != before.FailedSteps || after.InconsistencyCount != 0 {
				t.Errorf("%s: run %v, failedSteps %d, %+v", eventType, after.Status, after.FailedSteps, after.Inconsistencies)
			}
			want := StepAttempt{LogicalAttemptID: 2, Status: StepPending}
			want.advance(r)
			if step.Attempts.Len() != 1 || !reflect.DeepEqual(*slices.Collect(step.Attempts.All())[0], want) {
				t.Errorf("%s: %+v, want %+v", eventType, slices.Collect(step.Attempts.All()), want)
			}
		}
	}
}

func TestLowerAttemptsAmendTheirEntriesPRJ7(t *testing.T) {
	tape := runIn(Running)
	tape.add(contract.StepStarted, "build", 3, `{}`)
	tape.add(contract.StepStarted, "build", 5, `{}`)
	tape.add(contract.StepCompleted, "build", 1, `{}`)
	tape.add(contract.StepCompleted, "build", 4, `{}`)
	tape.add(contract.StepFailed, "build", 3, `{"error":"boom"}`)
	tape.add(contract.StepCompleted, "build", 3, `{}`) // passed over: the attempt has failed
	tape.add(contract.StepStarted, "build", 4, `{"startedAt":"2026-02-11T09:00:00Z"}`)
	s := ReduceAll(nil, tape.records)
	var got []uint32
	var status []StepStatus
	for _, a := range attemptsOf(s, "build") {
		got, status = append(got, a.LogicalAttemptID), append(status, a.Status)
	}
	if !reflect.DeepEqual(got, []uint32{1, 3, 4}) || !reflect.DeepEqual(status, []StepStatus{StepSuccess, StepFailed, StepSuccess}) {
		t.Errorf("attempts %v %v", got, status)
	}
	if a := attemptsOf(s, "build")[2]; a.StartedAt.Hour() != 9 {
		t.Errorf("a late start of an earlier attempt is lost: %+v", a)
	}
	if s.FailedSteps != 0 || s.InconsistencyCount != 0 || s.Step("build").Status != StepRunning {
		t.Errorf("failedSteps %d, %+v", s.FailedSteps, s.Inconsistencies)
	}
}

func TestStepsKeepTheirOrder(t *testing.T) {
	tape := newTape()
	names := []string{"m", "z", "a", "q", "b", "", "é", "zz"}
	for _, name := range names {
		tape.add(contract.StepStarted, name, 1, `{}`)
	}
	check := func(s *Snapshot) {
		t.Helper()
		steps := slices.Collect(s.Steps.All())
		for i, name := range names {
			if steps[i].StepID != name || s.Step(name) != steps[i] {
				t.Errorf("step %d is %q, and %q is found as %v", i, steps[i].StepID, name, s.Step(name))
			}
		}
		if s.Step("nobody") != nil {
			t.Error("an unknown step is found")
		}
	}
	s := ReduceAll(nil, tape.records)
	check(s)
	parsed, err := ParseSnapshot(s.CanonicalJSON())
	if err != nil {
		t.Fatal(err)
	}
	check(parsed)
	check(foldOneByOne(nil, tape.records))
}

func foldOneByOne(s *Snapshot, rs []storage.Record) *Snapshot {
	for i := range rs {
		s = Reduce(s, &rs[i])
	}
	return s
}

func attemptsOf(s *Snapshot, stepID string) []*StepAttempt {
	return slices.Collect(s.Step(stepID).Attempts.All())
}
