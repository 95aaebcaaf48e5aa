package temporal

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/testsuite"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// requestRerun stores a run that has failed, in which the step a has succeeded with an output, and
// requests a run that takes its place.
func requestRerun(t *testing.T, c *client.Client, of, run string, output json.RawMessage) {
	t.Helper()
	engineType, again := EngineType, of
	ref := plan.Ref{URI: "file:///p.json", SHA256: strings.Repeat("ab", 32), SchemaVersion: "v1.2", PlanID: "p", PlanVersion: "1"}
	meta := &runlogv1.Run{RunId: of, TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", PlanRef: ref.Proto()}
	named := events.Run{ID: of, Tenant: "acme", Project: "web", Environment: "prod", Plan: "p", PlanVersion: "1"}
	once := events.Attempt{Logical: 1, Engine: 1}
	var writes []*runlogv1.EventWrite
	write := func(e *runlogv1.EventWrite, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		writes = append(writes, e)
	}
	write(engine.Started(meta, "past/"+of))
	write(named.StepStarted("a", once, nil))
	write(named.StepCompleted("a", once, map[string]any{"output": output}))
	write(named.Failed(once, nil))
	if _, err := c.CreateRun(t.Context(), &runlogv1.CreateRunRequest{Run: meta, Events: writes}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{RunRequestId: run, RunId: run, TenantId: "acme", ProjectId: "web", EnvironmentId: "prod",
		EngineType: &engineType, PlanRef: ref.Proto(), RerunOf: &again}); err != nil {
		t.Fatal(err)
	}
}

// TestRerunWithTheBeginSIG7: the begin of a workflow takes over what its run reruns, also if the
// plan is too large to come with it, and once if its answer is lost. Conditions see the outputs.
// One that is too long for them in a workflow refuses the rerun, and one that none looks at does
// not.
func TestRerunWithTheBeginSIG7(t *testing.T) {
	t.Parallel()
	c := clienttest.Start(t).Client(client.Options{})
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"noop": executor.Noop{}})
	if err != nil {
		t.Fatal(err)
	}
	document := func(when string, more int) parsed {
		list := []string{`{"stepId":"a","type":"noop"}`, `{"stepId":"b","type":"noop","dependsOn":["a"]` + when + `}`}
		for _, id := range noise(more) {
			list = append(list, `{"stepId":"`+id+`","type":"noop"}`)
		}
		return parsed(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[` + strings.Join(list, ",") + `]}`)
	}
	text := func(size int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`) }
	const looks = `,"when":[{"step":"a","output":"","exists":true}]`
	for name, tt := range map[string]struct {
		plan   parsed
		output json.RawMessage
		sees   bool   // the workflow gets the output
		alone  bool   // the plan does not come along
		code   string // of the refusal; empty: there is none
	}{
		"looked-at":      {document(looks, 0), text(maxSeenOutput), true, false, ""},
		"not-looked-at":  {document("", 0), text(maxSeenOutput + 1), false, false, ""},
		"too-long":       {document(looks, 0), text(maxSeenOutput + 1), false, false, "RERUN_REFUSED"},
		"large":          {document(looks, 8000), text(maxSeenOutput), true, true, ""},
		"large-too-long": {document(looks, 8000), text(maxSeenOutput + 1), false, false, "RERUN_REFUSED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := name + "-again"
			requestRerun(t, c, name, run, tt.output)
			a := &activities{o: Options{Log: c, Plans: tt.plan, Registry: registry, Worker: "worker", Beat: time.Minute}}
			begin := func() (b begun) {
				var suite testsuite.WorkflowTestSuite
				env := suite.NewTestActivityEnvironment()
				env.RegisterActivity(a.beginRun)
				v, err := env.ExecuteActivity(a.beginRun, beginInput{Run: Scope{run, "acme", "web", "prod", "p", "1"}, Ref: "temporal://n/" + run, Plan: &plan.Ref{}})
				if err == nil {
					err = v.Get(&b)
				}
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			b := begin()
			if again := begin(); !reflect.DeepEqual(again, b) {
				t.Errorf("the begin is %+v, and again %+v", b, again)
			}
			want := []string{contract.RunQueued, contract.RunStarted}
			if tt.code == "" {
				want = append(want, contract.StepCompleted+" a")
			}
			var list []string
			for e, err := range c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: run}) {
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, strings.TrimSpace(fmt.Sprint(e.GetEventType(), " ", e.GetStepId())))
			}
			if !slices.Equal(list, want) {
				t.Errorf("the run has %q, want %q", list, want)
			}
			if (b.Plan == nil) != tt.alone || b.Plan != nil && !strings.Contains(string(b.Plan.Error), tt.code) || b.Plan != nil && (b.Plan.Error != nil) != (tt.code != "") {
				t.Errorf("the plan with the begin is %.300v", b.Plan)
			}
			step := b.Cursor.Steps["a"]
			if tt.code == "" && (step.Status != plan.Success || step.Seq != 3) || (len(step.Output) > 0) != tt.sees {
				t.Errorf("the workflow begins with %.100v", step)
			}
		})
	}
}
