package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// claims are what the demo asserts of its run, in the log and in Temporal.
var claims = []string{"killed:hold", "waited:hold:load", "paused:load", "retried:load", "skipped:refund"}

// TestDemo: make demo-temporal shows what it says, with a worker that is killed. It fails if the
// log and Temporal do not have the same ends of steps, or if a claim does not hold on both sides.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "-C", "../../../..", "demo-temporal")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "KEEP="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "12 steps: each attempt has one end, and Temporal has the same ends as the log.") ||
		!strings.Contains(string(out), "On both sides: "+strings.Join(claims, ", ")+".") {
		t.Fatalf("%v\n%s", err, out)
	}
	var history struct {
		Events []object `json:"events"`
	}
	if err := json.Unmarshal(read(t, filepath.Join(dir, "history.json")), &history); err != nil {
		t.Fatal(err)
	}
	var events []object
	for lines := bufio.NewScanner(bytes.NewReader(read(t, filepath.Join(dir, "events.jsonl")))); lines.Scan(); {
		events = append(events, parsed(t, lines.Bytes()))
	}
	const scheduled, started, ended = "activityTaskScheduledEventAttributes", "activityTaskStartedEventAttributes", "activityTaskCompletedEventAttributes"
	// activity returns the number of the first event that schedules an activity, by its id.
	activity := func(id string) any {
		for _, e := range history.Events {
			if a, ok := e[scheduled].(object); ok && strings.HasPrefix(a["activityId"].(string), id) {
				return e["eventId"]
			}
		}
		t.Fatalf("Temporal has no activity %s", id)
		return nil
	}
	of := func(id string, e object, what string) object {
		if a, ok := e[what].(object); ok && a["scheduledEventId"] == activity(id) {
			return a
		}
		return nil
	}
	// Each of these spoils one side of a run that was fine.
	for want, spoil := range map[string]struct{ log, temporal func(object) }{
		"killed:hold: not so in the log": {log: func(e object) {
			if e["stepId"] == "hold" {
				e["engineAttemptId"] = 1
			}
		}},
		"killed:hold: not so in Temporal": {temporal: func(e object) {
			if a := of("hold/1/", e, started); a != nil {
				a["attempt"] = 1
			}
		}},
		"waited:hold:load: not so in the log": {log: func(e object) {
			if e["stepId"] == "hold" && e["eventType"] == "StepCompleted" {
				e["runSeq"] = "3"
			}
		}},
		"waited:hold:load: not so in Temporal": {temporal: func(e object) {
			if of("hold/1/", e, ended) != nil {
				e["eventId"] = "30"
			}
		}},
		"paused:load: not so in the log": {log: func(e object) {
			if e["eventType"] == "RunResumed" {
				e["runSeq"] = "1000"
			}
		}},
		"paused:load: not so in Temporal": {temporal: func(e object) {
			if a, ok := e[scheduled].(object); ok && a["activityType"].(object)["name"] == "tellRun" {
				e["eventId"] = "1" + e["eventId"].(string) + "0"
			}
		}},
		"retried:load: not so in the log": {log: func(e object) {
			if e["stepId"] == "load" {
				e["logicalAttemptId"] = 1
			}
		}},
		"retried:load: not so in Temporal": {temporal: func(e object) {
			if a, ok := e[scheduled].(object); ok {
				a["activityId"] = strings.Replace(a["activityId"].(string), "load/2/", "load/1/", 1)
			}
		}},
		"skipped:refund: not so in the log": {log: func(e object) {
			if e["eventType"] == "StepSkipped" {
				e["eventType"] = "StepCompleted"
			}
		}},
		"skipped:refund: not so in Temporal": {temporal: func(e object) {
			if a, ok := e[scheduled].(object); ok {
				a["activityId"] = strings.Replace(a["activityId"].(string), "mail/", "refund/", 1)
			}
		}},
		"step mail ends at runSeq": {temporal: func(e object) {
			if of("mail/1/", e, ended) != nil {
				delete(e, ended)
			}
		}},
	} {
		text := spoiled(t, events, spoil.log, "\n")
		other := `{"events":[` + spoiled(t, history.Events, spoil.temporal, ",") + `]}`
		if got := compare(t, other, text); !strings.Contains(got, want) {
			t.Errorf("the comparison says %q, want %q", got, want)
		}
	}
}

type object = map[string]any

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func parsed(t *testing.T, text []byte) (o object) {
	t.Helper()
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// spoiled returns copies of events that were changed, as JSON.
func spoiled(t *testing.T, events []object, spoil func(object), between string) string {
	t.Helper()
	var list []string
	for _, e := range events {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if spoil != nil {
			other := parsed(t, text)
			spoil(other)
			if text, err = json.Marshal(other); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, string(text))
	}
	return strings.Join(list, between)
}

// compare returns what the comparison says of a history and of events that do not agree.
func compare(t *testing.T, history, events string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"history.json": history, "events.jsonl": events} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"../../../../tools/compare-temporal.py", filepath.Join(dir, "history.json"), filepath.Join(dir, "events.jsonl")}, claims...)
	out, err := exec.CommandContext(t.Context(), "python3", args...).CombinedOutput()
	if err == nil {
		t.Errorf("the comparison takes a run that is not as it says:\n%s", out)
	}
	return string(out)
}
