package run

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"runlog/proto/contract"
)

// retryTape adds events of one logical attempt, each written as "type engineAttempt".
func retryTape(t *tape, logical uint32, events ...string) *tape {
	for _, text := range events {
		var name string
		var engine uint32
		if _, err := fmt.Sscanf(text, "%s %d", &name, &engine); err != nil {
			panic(err)
		}
		r := t.add("Step"+name, "build", logical, fmt.Sprintf(`{"error":{"code":"E%d","message":"m"}}`, engine))
		r.EngineAttemptID = engine
	}
	return t
}

// shown is a step as "STATUS code; entries", each entry as "logical.engine STATUS code".
func shown(s *StepSnapshot) string {
	code := func(e *StepError) string {
		if e == nil || e.Code == "" {
			return ""
		}
		return " " + e.Code
	}
	out := []string{s.Status.String() + code(s.Error)}
	for a := range s.Attempts.All() {
		out = append(out, fmt.Sprintf("%d.%d %v%s", a.LogicalAttemptID, a.EngineAttemptID, a.Status, code(a.Error)))
	}
	return strings.Join(out, "; ")
}

// TestPlatformRetriesPRJ15: inside one logical attempt, a higher engine attempt replaces a failure,
// which is kept in attempts[]. failedSteps counts the failures that stand.
func TestPlatformRetriesPRJ15(t *testing.T) {
	for _, c := range []struct {
		events string
		want   string
		failed uint32
		wrong  uint32 // inconsistencies
	}{
		{"Started 1, Failed 1, Started 2, Failed 2, Started 3, Completed 3", "SUCCESS; 1.1 FAILED E1; 1.2 FAILED E2", 0, 0},
		{"Failed 1, Failed 2, Completed 3", "SUCCESS; 1.1 FAILED E1; 1.2 FAILED E2", 0, 0},
		{"Started 1, Failed 1, Started 2", "RUNNING; 1.1 FAILED E1", 0, 0},
		{"Started 1, Failed 1, Started 2, Failed 2", "FAILED E2; 1.1 FAILED E1", 1, 0},
		{"Failed 2, Failed 1", "FAILED E2", 1, 0},
		{"Failed 2, Completed 2", "FAILED E2", 1, 1},
		{"Failed 2, Completed 1", "FAILED E2", 1, 1},
		{"Started 1, Started 2, Failed 1, Completed 2", "SUCCESS; 1.1 FAILED E1", 0, 0},
		{"Started 1, Completed 1, Failed 2", "SUCCESS", 0, 1},
		{"Skipped 1, Completed 2", "SKIPPED", 0, 1},
		{"Failed 1, Delayed 2", "FAILED E1", 1, 1},
		{"Failed 1, Started 1", "FAILED E1", 1, 0}, // parked (PRJ-6)
	} {
		s := ReduceAll(nil, retryTape(runIn(Running), 1, strings.Split(c.events, ", ")...).records)
		if got := shown(s.Step("build")); got != c.want || s.FailedSteps != c.failed || s.InconsistencyCount != c.wrong {
			t.Errorf("%s: %s, failedSteps %d, %d inconsistencies; want %s, %d, %d", c.events, got, s.FailedSteps, s.InconsistencyCount, c.want, c.failed, c.wrong)
		}
	}
}

// TestRetriesOfEarlierAttemptsPRJ7PRJ15: an earlier logical attempt keeps its retries with its
// outcome, and what comes late amends it alone.
func TestRetriesOfEarlierAttemptsPRJ7PRJ15(t *testing.T) {
	tape := retryTape(runIn(Running), 1, "Failed 1", "Failed 2")
	retryTape(tape, 2, "Started 1", "Failed 1", "Completed 2")
	s := ReduceAll(nil, tape.records)
	if got, want := shown(s.Step("build")), "SUCCESS; 1.1 FAILED E1; 1.2 FAILED E2; 2.1 FAILED E1"; got != want || s.FailedSteps != 1 {
		t.Errorf("%s, failedSteps %d; want %s, 1", got, s.FailedSteps, want)
	}
	s = ReduceAll(s, retryTape(tape, 1, "Completed 3").records)
	if got, want := shown(s.Step("build")), "SUCCESS; 1.1 FAILED E1; 1.2 FAILED E2; 1.3 SUCCESS; 2.1 FAILED E1"; got != want || s.FailedSteps != 1 || s.InconsistencyCount != 0 {
		t.Errorf("%s, failedSteps %d; want %s, 1", got, s.FailedSteps, want)
	}
	back, err := UnmarshalStored(s.MarshalStored())
	if err != nil || !reflect.DeepEqual(asLists(back), asLists(s)) {
		t.Errorf("read back: %v", err)
	}
}

// TestRetriesEndAsTheHighestPRJ15: whatever the platform's attempts are, if each one starts and
// ends in turn, the step ends as the last of them, every failure before it is in attempts[], and
// failedSteps tells whether the last one failed.
func TestRetriesEndAsTheHighestPRJ15(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var events []string
		engine, failures := 0, 0
		for range rapid.IntRange(1, 6).Draw(t, "attempts") {
			engine += rapid.IntRange(1, 3).Draw(t, "step")
			if rapid.Bool().Draw(t, "started") {
				events = append(events, fmt.Sprint("Started ", engine))
			}
			events = append(events, fmt.Sprint("Failed ", engine))
			failures++
		}
		want, failed := fmt.Sprint("FAILED E", engine), uint32(1)
		if rapid.Bool().Draw(t, "succeeds") {
			events = append(events, fmt.Sprint("Completed ", engine+1))
			want, failed, failures = "SUCCESS", 0, failures+1
		}
		tape := retryTape(runIn(Running), 1, events...)
		s := ReduceAll(nil, tape.records)
		step := s.Step("build")
		if entries := slices.Collect(step.Attempts.All()); !strings.HasPrefix(shown(step), want) || len(entries) != failures-1 || s.FailedSteps != failed || s.InconsistencyCount != 0 {
			t.Fatalf("%v: %s, failedSteps %d, %+v", events, shown(step), s.FailedSteps, s.Inconsistencies)
		}
		if again := foldOneByOne(nil, tape.records); again.Digest() != s.Digest() {
			t.Fatal("another digest one by one")
		}
	})
}

// TestStepRetryingPRJ18: a StepRetrying changes no status, and says which try failed and why, until
// the next event of the attempt. One that was delayed says nothing of what follows.
func TestStepRetryingPRJ18(t *testing.T) {
	for _, c := range []struct {
		events string
		want   string
		retry  uint32 // 0: none
		engine uint32
		failed uint32
	}{
		{"Started 1, Retrying 1", "RUNNING", 1, 1, 0},
		{"Started 1, Retrying 1, Retrying 2", "RUNNING", 2, 2, 0},
		{"Started 1, Retrying 1, Started 2", "RUNNING", 0, 2, 0},
		{"Started 1, Retrying 1, WaitingForAttestation 2", "WAITING_FOR_ATTESTATION", 0, 2, 0},
		{"Started 1, Retrying 1, Retrying 2, Completed 3", "SUCCESS", 0, 3, 0},
		{"Started 1, Retrying 1, Completed 1", "SUCCESS", 0, 1, 0},
		{"Started 1, Retrying 1, Retrying 2, Failed 3", "FAILED E3", 0, 3, 1},
		{"Failed 1, Started 2, Retrying 2", "RUNNING; 1.1 FAILED E1", 2, 2, 0},
		{"Retrying 1", "PENDING", 1, 1, 0},
		// delayed
		{"Retrying 1, Started 1", "RUNNING", 1, 1, 0},
		{"Started 1, Retrying 2, Retrying 1", "RUNNING", 2, 2, 0},
		{"Started 2, Retrying 1", "RUNNING", 0, 2, 0},
		{"Started 1, Completed 2, Retrying 1", "SUCCESS", 0, 2, 0},
		{"Started 1, Completed 1, Retrying 2", "SUCCESS", 0, 2, 0},
		{"Failed 1, Retrying 2", "FAILED E1", 0, 2, 1},
		{"WaitingForAttestation 1, Retrying 1", "WAITING_FOR_ATTESTATION", 0, 1, 0},
	} {
		tape := retryTape(runIn(Running), 1, strings.Split(c.events, ", ")...)
		s := ReduceAll(nil, tape.records)
		step := s.Step("build")
		var want *StepRetry
		if c.retry != 0 {
			want = &StepRetry{EngineAttemptID: c.retry, Error: &StepError{Code: fmt.Sprint("E", c.retry), Message: "m"}}
		}
		if got := shown(step); got != c.want || !reflect.DeepEqual(step.Retry, want) || step.EngineAttemptID != c.engine ||
			s.FailedSteps != c.failed || s.InconsistencyCount != 0 {
			t.Errorf("%s: %s, retry %+v, engine attempt %d, failedSteps %d, %d inconsistencies; want %s, %+v, %d, %d, 0",
				c.events, got, step.Retry, step.EngineAttemptID, s.FailedSteps, s.InconsistencyCount, c.want, want, c.engine, c.failed)
		}
	}
	tape := runIn(Running)
	tape.add(contract.StepRetrying, "build", 1, `{"error":"boom","nextAttemptAt":"2026-02-11T11:30:00.25+01:00"}`)
	tape.add(contract.StepStarted, "build", 2, `{}`)
	retry := &StepRetry{1, &StepError{Message: "boom"}, time.Date(2026, 2, 11, 10, 30, 0, 25e7, time.UTC)}
	s := ReduceAll(nil, tape.records)
	if step := s.Step("build"); step.Retry != nil || !reflect.DeepEqual(attemptsOf(s, "build")[0].Retry, retry) {
		t.Errorf("the next logical attempt has %+v, the one before %+v", step.Retry, attemptsOf(s, "build")[0].Retry)
	}
}
