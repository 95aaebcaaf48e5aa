package temporal

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"runlog/engine/plan"
	"runlog/engine/route"
)

// Limits of plans on Temporal, whose payloads have at most 2 MiB.
const (
	maxSkeleton   = 1 << 20
	maxAlong      = 256 << 10 // of a packed skeleton in an answer with more
	maxOutput     = 48 << 10  // leaves room in the payload of an event
	maxSeenOutput = 16 << 10  // of an output that conditions look at
	maxSeenSteps  = 50
)

// skeleton is a plan without what only workers need, such as inputs. It is in histories, in the
// form of plans.
type skeleton struct {
	SchemaVersion string         `json:"schemaVersion"`
	PlanID        string         `json:"planId"`
	PlanVersion   string         `json:"planVersion"`
	OnFailure     string         `json:"onFailure,omitempty"`
	Steps         []skeletonStep `json:"steps"`
}

type skeletonStep struct {
	ID        string         `json:"stepId"`
	Type      string         `json:"type"`
	DependsOn []string       `json:"dependsOn,omitempty"`
	Class     string         `json:"class,omitempty"`
	Dispatch  *skeletonQueue `json:"dispatch,omitempty"`
	Timeout   string         `json:"timeout,omitempty"`
	When      []skeletonWhen `json:"when,omitempty"`
}

type skeletonQueue struct {
	TaskQueue string `json:"taskQueue"`
}

type skeletonWhen struct {
	Step   string            `json:"step"`
	Status plan.Status       `json:"status,omitempty"`
	Output string            `json:"output,omitempty"`
	Equals json.RawMessage   `json:"equals,omitempty"`
	In     []json.RawMessage `json:"in,omitempty"`
	Exists *bool             `json:"exists,omitempty"`
}

// packed is the skeleton of a plan as JSON, compressed by gzip.
type packed []byte

func pack(text []byte) (packed, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(text)
	if err := errors.Join(err, z.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// plan returns a plan for a walk.
func (b packed) plan() (*plan.Plan, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxSkeleton+1))
	if err != nil {
		return nil, err
	}
	p, _, err := plan.Parse(text, plan.Options{})
	return p, err
}

// skeletonOf returns the JSON of the skeleton of a plan.
func skeletonOf(p *plan.Plan) ([]byte, error) {
	// A worker may read versions that the workflow does not know. The steps are migrated already.
	s := skeleton{SchemaVersion: plan.Current().String(), PlanID: p.PlanID, PlanVersion: p.PlanVersion}
	if p.Waits {
		s.OnFailure = plan.OnFailureWait
	}
	for i := range p.Steps {
		step := &p.Steps[i]
		bone := skeletonStep{ID: step.ID, Type: step.Type, DependsOn: step.DependsOn, Class: step.Class}
		if step.TaskQueue != "" {
			bone.Dispatch = &skeletonQueue{step.TaskQueue}
		}
		if step.Timeout > 0 {
			bone.Timeout = step.Timeout.String()
		}
		for _, c := range step.When {
			bone.When = append(bone.When, skeletonWhen{c.Step, c.Status, c.Output, c.Equals, c.In, c.Exists})
		}
		s.Steps = append(s.Steps, bone)
	}
	return json.Marshal(s)
}

// seen returns the steps whose outputs conditions look at; none if there is no plan.
func seen(p *plan.Plan) map[string]bool {
	steps := map[string]bool{}
	if p == nil {
		return steps
	}
	for i := range p.Steps {
		for _, c := range p.Steps[i].When {
			if c.Equals != nil || c.In != nil || c.Exists != nil {
				steps[c.Step] = true
			}
		}
	}
	return steps
}

// fetchPlan downloads a plan, checks it, and returns its skeleton (PLAN-2).
func (a *activities) fetchPlan(ctx context.Context, ref plan.Ref) (packed, error) {
	defer a.startBeat(ctx).stop()
	p, err := a.plan(ctx, ref)
	if err != nil {
		return nil, final(err)
	}
	bones, err := bonesOf(p)
	return bones, final(err)
}

// bonesOf returns the skeleton of a plan, if it is not too large.
func bonesOf(p *plan.Plan) (packed, error) {
	bones, err := skeletonOf(p)
	if err != nil {
		return nil, err
	}
	if len(bones) > maxSkeleton {
		return nil, unsupported(fmt.Sprintf("the steps of the plan have %d bytes without their inputs, and a workflow has at most %d: use fewer steps or shorter names", len(bones), maxSkeleton))
	}
	return pack(bones)
}

// loaded is what a workflow gets of its plan.
type loaded struct {
	Bones packed `json:"bones,omitempty"`
	// Error is that of RunFailed: the plan can never be executed. nil: it can.
	Error json.RawMessage `json:"error,omitempty"`
}

// load does what fetchPlan and validatePlan do. nil for l: the skeleton is too large to be in an
// answer with more. nil for p: the plan can never be executed.
func (a *activities) load(ctx context.Context, ref plan.Ref, run Scope) (l *loaded, p *plan.Plan, err error) {
	p, err = a.plan(ctx, ref)
	if err == nil {
		err = checkQueues(p, run)
	}
	var bones packed
	if err == nil {
		bones, err = bonesOf(p)
	}
	if failure, ok := errors.AsType[plan.Failure](err); ok && !failure.Retryable() {
		return &loaded{Error: detailsOf(failure)}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if r := a.compare(p); r.Error != nil {
		return &loaded{Error: r.Error}, nil, nil
	}
	if len(bones) > maxAlong {
		return nil, p, nil
	}
	return &loaded{Bones: bones}, p, nil
}

// checkQueues refuses a plan that uses a task queue of another tenant or environment than the run.
// A workflow of an earlier version does not name the run: workers check each of its steps.
func checkQueues(p *plan.Plan, run Scope) error {
	if run == (Scope{}) {
		return nil
	}
	return route.CheckPlan(p, run.owner())
}

// unsupported says that a plan is valid, and that this engine cannot execute it.
type unsupported string

func (u unsupported) Error() string { return "temporal: " + string(u) }

// Code is that of every adapter.
func (unsupported) Code() string { return "PLAN_UNSUPPORTED" }

// Retryable is false.
func (unsupported) Retryable() bool { return false }

// MarshalJSON returns the error as an event has it.
func (u unsupported) MarshalJSON() ([]byte, error) {
	return failureJSON(u.Code(), u.Error()), nil
}

// report is the answer of validatePlan.
type report struct {
	Status string   `json:"status"` // OK or ERRORS
	Faults []string `json:"faults,omitempty"`
	// Error is that of RunFailed.
	Error json.RawMessage `json:"error,omitempty"`
}

const maxFaults = 20

// validatePlan compares a plan with what the engine can do, and with what the run may use.
func (a *activities) validatePlan(ctx context.Context, ref plan.Ref, run Scope) (report, error) {
	defer a.startBeat(ctx).stop()
	p, err := a.plan(ctx, ref)
	if err != nil {
		return report{}, final(err)
	}
	if err := checkQueues(p, run); err != nil {
		return report{}, final(err)
	}
	return a.compare(p), nil
}

func (a *activities) compare(p *plan.Plan) report {
	can := map[string]bool{}
	for _, c := range a.capabilities() {
		can[c] = true
	}
	var r report
	add := func(format string, args ...any) {
		if len(r.Faults) < maxFaults {
			r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
		}
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; !can[s.Requires()] {
			add("step %.100q needs %.100q", s.ID, s.Requires())
		}
	}
	if n := len(seen(p)); n > maxSeenSteps {
		add("conditions look at the outputs of %d steps, at most %d", n, maxSeenSteps)
	}
	if r.Status = "OK"; len(r.Faults) > 0 {
		r.Status = "ERRORS"
		r.Error = failureJSON(unsupported("").Code(),
			fmt.Sprintf("the engine cannot execute the plan: %s; the engine has %s: change the plan, or use another engine", strings.Join(r.Faults, "; "), strings.Join(a.capabilities(), ", ")))
	}
	return r
}
