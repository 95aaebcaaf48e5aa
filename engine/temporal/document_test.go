package temporal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// versioned is the text of a plan that is read by some versions.
type versioned struct {
	text     string
	versions *plan.Versions
}

func (v versioned) Fetch(_ context.Context, ref plan.Ref) (*plan.Plan, error) {
	p, _, err := plan.Parse([]byte(v.text), plan.Options{Versions: v.versions, SchemaVersion: ref.SchemaVersion, Path: ref.SchemaEvolutionPath})
	return p, err
}

// renaming are versions up to v1.5, whose steps of the type OLD are of the type DBT_RUN since v1.3.
func renaming(t *testing.T) *plan.Versions {
	t.Helper()
	v := plan.NewVersions(plan.Version{Major: 1, Minor: 5})
	for minor := 2; minor < 5; minor++ {
		err := v.Register(plan.Version{Major: 1, Minor: minor}, plan.Version{Major: 1, Minor: minor + 1}, func(doc map[string]json.RawMessage) (map[string]json.RawMessage, error) {
			doc["steps"] = bytes.ReplaceAll(doc["steps"], []byte(`"OLD"`), []byte(`"DBT_RUN"`))
			return doc, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// TestSkeletonOfAnyVersionPLAN3: a workflow can read the skeleton of each plan that its worker can
// read, also if a program has registered versions of its own.
func TestSkeletonOfAnyVersionPLAN3(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version, kind string
		versions      *plan.Versions
	}{
		{"v1.0", "DBT_RUN", nil}, {"v1.2", "OLD", renaming(t)}, {"v1.4", "DBT_RUN", renaming(t)}, {"v1.5", "DBT_RUN", renaming(t)},
		{"v2.0", "DBT_RUN", plan.NewVersions(plan.Version{Major: 2})},
	} {
		text := fmt.Sprintf(`{"schemaVersion":%q,"planId":"p","planVersion":"1","steps":[{"stepId":"a","type":%q}]}`, tt.version, tt.kind)
		p, err := versioned{text, tt.versions}.Fetch(t.Context(), plan.Ref{})
		if err != nil {
			t.Fatal(err)
		}
		bones, err := bonesOf(p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := bones.plan(); err != nil || got.Step("a").Type != "DBT_RUN" {
			t.Errorf("%s: %v, %v", tt.version, got, err)
		}
	}
}

// staged runs a workflow in the environment of the SDK, with the activities of a worker. The log
// takes all that it is told. ran are the steps that are executed, and then the events of the run.
func staged(t *testing.T, a *activities, in Input) (ran []string, next *Input) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflowWithOptions(interpret, workflow.RegisterOptions{Name: WorkflowType})
	seq, ends := uint64(1), []string(nil)
	for name, do := range map[string]any{
		beginRunName: func(context.Context, beginInput) (begun, error) {
			return begun{Cursor: Cursor{Begun: true, Seen: 1, Status: "RUNNING"}}, nil
		},
		fetchPlanName: a.fetchPlan, validatePlanName: a.validatePlan,
		executeStepName: func(_ context.Context, in stepInput) (stepEnd, error) {
			ran = append(ran, in.StepID)
			seq++
			return stepEnd{Status: plan.Success, Seq: seq}, nil
		},
		tellRunName: func(_ context.Context, in tellInput) (told, error) {
			t := told{Seen: seq, Status: "RUNNING", Stored: true}
			for _, e := range in.Events {
				if ends = append(ends, e.Type+string(e.Payload)); e.Type == contract.RunCompleted || e.Type == contract.RunFailed {
					t.Ended, t.Summary = engine.RunCompleted, &summary{}
				}
			}
			return t, nil
		},
	} {
		env.RegisterActivityWithOptions(do, activity.RegisterOptions{Name: name})
	}
	env.ExecuteWorkflow(WorkflowType, in)
	err := env.GetWorkflowError()
	if again, ok := errors.AsType[*workflow.ContinueAsNewError](err); ok {
		next = &Input{}
		err = converter.GetDefaultDataConverter().FromPayloads(again.Input, next)
	}
	if err != nil || !env.IsWorkflowCompleted() {
		t.Fatal(err)
	}
	return append(ran, ends...), next
}

// TestSchemaMigrationENG3: a run that has begun under an old schema version continues as a new
// workflow at a worker of a later one, which migrates the plan. What goes along is small: the
// reference of the plan, and how each step has ended, without inputs and outputs.
func TestSchemaMigrationENG3(t *testing.T) {
	t.Parallel()
	const steps = DefaultContinueSteps + 5
	var list []string
	for i := range steps {
		on := ""
		if i > 0 {
			on = fmt.Sprintf(`,"dependsOn":["step-%d"]`, i-1)
		}
		list = append(list, fmt.Sprintf(`{"stepId":"step-%d","type":"OLD","inputs":{"large":%q}%s}`, i, strings.Repeat("x", 1000), on))
	}
	text := `{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[` + strings.Join(list, ",") + `]}`
	worker := func(kind string, versions *plan.Versions) *activities {
		registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{kind: executor.Noop{}})
		if err != nil {
			t.Fatal(err)
		}
		return &activities{o: Options{Plans: versioned{text, versions}, Registry: registry, Beat: DefaultBeat}}
	}
	in := Input{Plan: plan.Ref{URI: "s3://plans/p.json", SchemaVersion: "v1.2", PlanID: "p", PlanVersion: "1", SchemaEvolutionPath: "v1.2 → v1.3 → v1.4 → v1.5"},
		Run: Scope{RunID: "run", EnvironmentID: "prod"}, Ref: "ref", Settings: Options{}.EnsureDefaults().Settings}
	// The earlier worker has the versions of the build, and does not know the path.
	first := in
	first.Plan.SchemaEvolutionPath = ""
	ran, next := staged(t, worker("OLD", nil), first)
	if len(ran) != DefaultContinueSteps || next == nil {
		t.Fatalf("%d steps have ended, and then %v", len(ran), next)
	}
	along, err := json.Marshal(next)
	if err != nil || len(next.Cursor.Steps) != DefaultContinueSteps || len(along) > 4<<10 || bytes.Contains(along, []byte("xxx")) {
		t.Errorf("%d bytes go along, %v: %s", len(along), err, along)
	}
	next.Plan = in.Plan
	rest, last := staged(t, worker("DBT_RUN", renaming(t)), *next)
	if want := []string{"step-50", "step-51", "step-52", "step-53", "step-54", "RunCompleted"}; !slices.Equal(rest, want) || last != nil {
		t.Errorf("the new workflow executes %q, want %q; then %v", rest, want, last)
	}
}

// TestDefaultsENG3: without settings of their own, runs have the limits of the specification of the
// adapter: 50 steps or 1 MiB until a continuation, three tries of a step, and of signals 64 KiB
// each and 60 in a minute.
func TestDefaultsENG3(t *testing.T) {
	t.Parallel()
	s := Options{}.EnsureDefaults().Settings
	if s.ContinueSteps != 50 || s.ContinueBytes != 1<<20 || s.Attempts != 3 || s.CancelOnPause || maxSignalBytes != 64<<10 || maxBells != 60 {
		t.Errorf("the settings %+v; signals of %d bytes, %d in a minute", s, maxSignalBytes, maxBells)
	}
}

// TestSearchAttributesENG3: a workflow has the attributes of the specification of the adapter. The
// regulatory tier is a label of the run, and a run without one has none.
func TestSearchAttributesENG3(t *testing.T) {
	t.Parallel()
	for tier, want := range map[string][]string{
		"HIPAA": {"environmentId=prod", "planId=p", "projectId=web", "regulatoryTier=HIPAA", "runStatus=RUNNING", "tenantId=acme"},
		"":      {"environmentId=prod", "planId=p", "projectId=web", "runStatus=RUNNING", "tenantId=acme"},
	} {
		run := &runlogv1.Run{TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", PlanRef: &runlogv1.PlanRef{PlanId: "p"}}
		if tier != "" {
			run.Labels = map[string]string{"regulatoryTier": tier}
		}
		var got []string
		for key, value := range attributesOf(run).GetUntypedValues() {
			got = append(got, fmt.Sprint(key.GetName(), "=", value))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("tier %q: %q, want %q", tier, got, want)
		}
	}
}
