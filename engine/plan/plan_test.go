package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

const smallPlan = `{"schemaVersion": "v1.2", "planId": "p", "planVersion": "1", "steps": [%s]}`

func planOf(steps string) []byte { return fmt.Appendf(nil, smallPlan, steps) }

// TestParsePLAN4: a plan with all members is read.
func TestParsePLAN4(t *testing.T) {
	t.Parallel()
	p, warnings, err := Parse(planOf(`
		{"stepId": "a", "type": "command", "class": "data", "dispatch": {"taskQueue": "q"}, "secretRefs": ["env:TOKEN"],
		 "inputs": {"argv": ["true"]}, "retry": {"maxAttempts": 3, "initial": "1s", "max": "1m"}, "timeout": "1.5h"},
		{"stepId": "b", "type": "compute", "dependsOn": ["a"], "computeContract": {"executor": "excel", "inputs": ["x"], "outputs": ["y"],
		 "verification": "operator_attest", "notes": "n", "timeout_minutes": 5}},
		{"stepId": "c", "type": "noop", "dependsOn": ["a", "b"], "when": [{"step": "a", "output": "/rows", "equals": 1}, {"step": "b", "status": "ANY"}]}`),
		Options{Capabilities: []string{"executor:command", "executor:noop", "compute"}})
	if err != nil || len(warnings) > 0 || len(p.Steps) != 3 {
		t.Fatal(p, warnings, err)
	}
	a, b := p.Step("a"), p.Step("b")
	if a.Retry != (Retry{3, time.Second, time.Minute}) || a.Timeout != 90*time.Minute || a.TaskQueue != "q" || string(a.Inputs) != `{"argv": ["true"]}` {
		t.Errorf("step %+v", a)
	}
	if b.Contract.Verification != OperatorAttest || b.Contract.TimeoutMinutes != 5 || p.Step("none") != nil {
		t.Errorf("contract %+v", b.Contract)
	}
}

// TestFaultsPLAN4: a plan is refused with everything that is wrong with it.
func TestFaultsPLAN4(t *testing.T) {
	t.Parallel()
	token := "ghp_" + strings.Repeat("a", 36)
	_, _, err := Parse(planOf(`
		{"stepId": "a", "type": "noop", "dependsOn": ["c", "nowhere"]},
		{"stepId": "b", "type": "noop", "dependsOn": ["a"]},
		{"stepId": "c", "type": "noop", "dependsOn": ["b"]},
		{"stepId": "c", "type": "llm", "tpye": "data", "timeout": "soon"},
		{"stepId": "d", "type": "compute"},
		{"stepId": "e", "type": "compute", "computeContract": {"executor": "", "inputs": [], "verification": "trust_me"}},
		{"stepId": "f", "type": "noop", "computeContract": {"executor": "x", "inputs": [], "outputs": [], "verification": "operator_attest"},
		 "secretRefs": ["`+token+`"], "when": [{"step": "a", "status": "DONE"}, {"step": "f"}]},
		{"stepId": "f|g", "type": "noop", "dependsOn": "a"}`), Options{Capabilities: []string{"executor:noop", "compute"}})
	e, ok := errors.AsType[*InvalidError](err)
	if !ok {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, f := range e.Faults {
		fmt.Fprintln(&got, f)
	}
	golden(t, "faults.txt", got.String())
	if strings.Contains(err.Error()+got.String(), token) {
		t.Error("an error repeats a secret")
	}
	if body, err := json.Marshal(err); err != nil || !strings.Contains(string(body), `"code":"PLAN_INVALID"`) || strings.Contains(string(body), token) {
		t.Errorf("%s, %v", body, err)
	}
}

// TestSecretsInPlansENG7: a plan with a secret anywhere is refused, with its place and without it.
func TestSecretsInPlansENG7(t *testing.T) {
	t.Parallel()
	token := "ghp_" + strings.Repeat("b", 36)
	for _, tt := range []struct{ step, path string }{
		{`{"stepId": "a", "type": "http", "inputs": {"headers": [{"Authorization": "` + token + `"}]}}`, "/steps/0/inputs/headers/0/Authorization"},
		{`{"stepId": "a", "type": "http", "inputs": "` + token + `"}`, "/steps/0/inputs"},
		{`{"stepId": "a", "type": "http", "inputs": {"` + token + `": 1}}`, "/steps/0/inputs"},
	} {
		_, _, err := Parse(planOf(tt.step), Options{})
		e, ok := errors.AsType[*InvalidError](err)
		if !ok || len(e.Faults) != 1 || e.Faults[0].Path != tt.path || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", tt.path, err)
		}
	}
}

// TestVersionsPLAN3: what is older than three minors, newer, or of another major is refused. What
// lies between is migrated along the path, and a deprecated version warns.
func TestVersionsPLAN3(t *testing.T) {
	t.Parallel()
	v := NewVersions(Version{1, 5})
	rename := func(from, to string) Migration {
		return func(doc map[string]json.RawMessage) (map[string]json.RawMessage, error) {
			doc[to] = doc[from]
			delete(doc, from)
			return doc, nil
		}
	}
	same := func(doc map[string]json.RawMessage) (map[string]json.RawMessage, error) { return doc, nil }
	for _, hop := range []struct {
		from, to Version
		do       Migration
	}{
		{Version{1, 2}, Version{1, 3}, rename("nodes", "tasks")}, {Version{1, 3}, Version{1, 4}, rename("tasks", "steps")},
		{Version{1, 4}, Version{1, 5}, same}, {Version{1, 2}, Version{1, 4}, rename("nodes", "steps")},
	} {
		if err := v.Register(hop.from, hop.to, hop.do); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Register(Version{1, 2}, Version{1, 3}, same); err == nil {
		t.Error("a migration is registered twice")
	}
	if err := v.Register(Version{1, 5}, Version{1, 6}, same); err == nil {
		t.Error("a migration beyond the current version is registered")
	}
	v.Deprecate(Version{1, 2}, time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC))
	for _, tt := range []struct{ version, steps, path, want string }{
		{"v1.5", "steps", "", ""}, {"1.4", "steps", "", ""}, {"v1.3", "tasks", "", ""}, {"v1.2", "nodes", "", ""},
		{"v1.2", "nodes", "v1.2 → v1.4 → v1.5", ""}, {"v1.2", "nodes", "v1.0 -> v1.2 -> v1.4", ""},
		{"v1.3", "tasks", "v1.2 → v1.4", "does not contain v1.3"}, {"v1.2", "nodes", "v1.2 → v1.5", "no migration from v1.2 to v1.5"},
		{"v1.1", "nodes", "", "more than 3 minor versions old"}, {"v1.6", "steps", "", "newer than this engine"},
		{"v2.0", "steps", "", "another major version"}, {"v0.5", "steps", "", "another major version"}, {"latest", "steps", "", "no schema version"},
		{"v1.2", "nodes", "v1.4 → v1.2", "each version must be a later minor"},
	} {
		body := fmt.Sprintf(`{"schemaVersion": %q, "planId": "p", "planVersion": "1", %q: [{"stepId": "a", "type": "noop"}]}`, tt.version, tt.steps)
		p, warnings, err := Parse([]byte(body), Options{Versions: v, Path: tt.path})
		if tt.want == "" {
			if err != nil || len(p.Steps) != 1 || (tt.version == "v1.2") != (len(warnings) == 1) {
				t.Errorf("%s along %q: %v, %q", tt.version, tt.path, err, warnings)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s along %q: %v, want %q", tt.version, tt.path, err, tt.want)
		}
	}
	_, _, err := Parse([]byte(`{"schemaVersion": "v3.0"}`), Options{})
	if e, ok := errors.AsType[*VersionError](err); !ok || e.Code() != CodeVersionMismatch || e.Retryable() {
		t.Errorf("another major: %v", err)
	}
	if _, _, err := Parse([]byte(`{"planId": "p"}`), Options{}); err == nil || !strings.Contains(err.Error(), "/schemaVersion is required") {
		t.Errorf("no version: %v", err)
	}
}

// TestLimitsPLAN4: what is too large, too deep or no JSON is refused.
func TestLimitsPLAN4(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`{"stepId":"a","type":"noop"},`, MaxSteps) + `{"stepId":"b","type":"noop"}`
	for name, tt := range map[string]struct {
		body []byte
		want string
	}{
		"size":      {make([]byte, MaxBytes+1), "at most 16777216"},
		"depth":     {planOf(`{"stepId":"a","type":"noop","inputs":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`), "is no JSON object"},
		"steps":     {planOf(many), "at most 10000"},
		"no steps":  {planOf(``), "at least 1"},
		"twice":     {[]byte(`{"schemaVersion":"v1.2","schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"a","type":"noop"}]}`), "appears twice"},
		"truncated": {planOf(`{"stepId":"a"`)[:60], "is no JSON object"},
		"not UTF-8": {planOf("{\"stepId\":\"\xff\",\"type\":\"noop\"}"), "is no JSON object"},
		"a list":    {[]byte(`[]`), "is no JSON object"},
		"empty":     {nil, "is no JSON object"},
	} {
		if _, _, err := Parse(tt.body, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// TestConditionsPLAN4 shows what conditions say of the end of a step.
func TestConditionsPLAN4(t *testing.T) {
	t.Parallel()
	const output = `{"n": 1.0, "s": "é", "l": [1, {"a~b/c": null}], "o": {"x": 1, "y": 2}, "big": 9007199254740993}`
	for _, tt := range []struct {
		when   string
		status Status
		holds  bool
	}{
		{`{"status": "SUCCESS"}`, Success, true}, {`{"status": "FAILED"}`, Success, false}, {`{"status": "ANY"}`, Skipped, true},
		{`{"output": "/n", "equals": 1}`, Success, true}, {`{"output": "/n", "equals": 1}`, Failed, false},
		{`{"status": "FAILED", "output": "/n", "equals": 1}`, Failed, true}, {`{"output": "/n", "equals": "1"}`, Success, false},
		{`{"output": "/s", "equals": "\u00e9"}`, Success, true}, {`{"output": "/o", "equals": {"y": 2.0, "x": 1}}`, Success, true},
		{`{"output": "/o", "equals": {"x": 1}}`, Success, false}, {`{"output": "/l/1/a~0b~1c", "equals": null}`, Success, true},
		{`{"output": "/l/01", "exists": true}`, Success, false}, {`{"output": "/l/2", "exists": false}`, Success, true},
		{`{"output": "/l/0", "in": [3, 2, 1]}`, Success, true}, {`{"output": "/none", "in": [null]}`, Success, false},
		{`{"output": "", "exists": true}`, Success, true}, {`{"output": "/l", "equals": [1, {"a~b/c": null}]}`, Success, true},
		{`{"output": "/l", "equals": [1]}`, Success, false}, {`{"output": "/big", "equals": 9007199254740993}`, Success, true},
	} {
		body := planOf(`{"stepId": "a", "type": "noop"}, {"stepId": "b", "type": "noop", "dependsOn": ["a"], "when": [{"step": "a", ` + tt.when[1:] + `]}`)
		p, _, err := Parse(body, Options{})
		if err != nil {
			t.Fatal(tt.when, err)
		}
		if got := p.Steps[1].When[0].holds(&Result{tt.status, json.RawMessage(output)}); got != tt.holds {
			t.Errorf("%s of %s: %t", tt.when, tt.status, got)
		}
	}
}
