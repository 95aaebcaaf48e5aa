package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"runlog/proto/contract/jsontext"
)

// Limits of a plan.
const (
	MaxSteps      = 10_000
	maxDependsOn  = 1_000 // of one step
	maxWhen       = 100   // conditions of one step
	maxSecretRefs = 100   // of one step
	maxItems      = 1_000 // of a list in a contract
)

// Compute is the type of a step that is done outside, and that an operator attests (ATT-1). Any
// other type is the name of an executor.
const Compute = "compute"

// Values of onFailure: what becomes of a run when all steps have ended, and one has failed.
const (
	OnFailureFail = "FAIL" // it ends; the default
	OnFailureWait = "WAIT" // it is paused until an operator decides
)

// CapabilityWait is what a plan with OnFailureWait needs of its engine.
const CapabilityWait = "onFailure:" + OnFailureWait

// Plan is what a run executes. Treat it as read-only: walks share it.
type Plan struct {
	SchemaVersion Version
	PlanID        string
	PlanVersion   string
	Steps         []Step // in the order of the text
	// Waits says that a run with a failed step is paused in place of its end: onFailure is WAIT.
	Waits bool

	dependents [][]int // the places of the steps that depend on a step
	places     map[string]int
	text       int // bytes
}

// Size is about how many bytes a plan takes in memory.
func (p *Plan) Size() int64 {
	const step, text = 1 << 10, 4 // of memory for a step, and for a byte of text
	return step*int64(len(p.Steps)+1) + text*int64(p.text)
}

// Step is one step of a plan.
type Step struct {
	ID        string
	Type      string
	DependsOn []string
	// Class and TaskQueue say which workers execute the step. Empty: the engine's default.
	Class     string
	TaskQueue string
	// SecretRefs are resolved by the worker that executes the step (ENG-7).
	SecretRefs []string
	Inputs     json.RawMessage // of the executor; nil: null
	Contract   *Contract       // of a compute step
	Retry      Retry
	Timeout    time.Duration // of one attempt; 0: the engine's default
	When       []Condition   // all of which must hold
}

// Contract is what a compute step promises (ATT-1).
type Contract struct {
	Executor       string   `json:"executor"`
	Inputs         []string `json:"inputs"`
	Outputs        []string `json:"outputs"`
	Verification   string   `json:"verification"`
	Notes          string   `json:"notes,omitempty"`
	TimeoutMinutes int64    `json:"timeout_minutes,omitempty"`
	// Approvals is how many different attesters are needed (SEC-10); 0: one.
	Approvals int64 `json:"approvals,omitempty"`
}

// OperatorAttest is the one verification that contracts have.
const OperatorAttest = "operator_attest"

// Retry says how the engine retries a step. Zero fields are the engine's defaults.
type Retry struct {
	MaxAttempts  int64
	Initial, Max time.Duration // of the delay between attempts
}

// Defaults of Retry.
const (
	defaultInitial = time.Second
	defaultMax     = time.Minute
)

// Delay is the time before another attempt after n failures, from 1 on: exponential with full
// jitter.
func (r Retry) Delay(n int64) time.Duration {
	initial, most := r.Initial, r.Max
	if initial == 0 {
		initial = defaultInitial
	}
	if most == 0 {
		most = max(initial, defaultMax)
	}
	for ; n > 1 && initial < most; n-- {
		initial *= 2 // Both are at most a year.
	}
	return rand.N(min(most, initial) + 1)
}

// Options of Parse.
type Options struct {
	// Versions that are read. nil: BuiltIn.
	Versions *Versions
	// SchemaVersion is that of the reference. Empty: the plan may have any that is read.
	SchemaVersion string
	// Path is the schemaEvolutionPath of the reference. Empty: each minor version in turn.
	Path string
	// Capabilities of the engine, such as those of executor.Registry. nil: they are not compared.
	Capabilities []string
}

const whatPlan = "plan"

// Parse reads a plan (PLAN-3, PLAN-4). Warnings are for people, such as one about a deprecated
// schema version. The error is a *VersionError, or an *InvalidError with every fault.
func Parse(body []byte, o Options) (p *Plan, warnings []string, err error) {
	var d decoder
	if len(body) > MaxBytes {
		d.add(nil, "has %d bytes: at most %d are allowed", len(body), MaxBytes)
		return nil, nil, d.err(whatPlan)
	}
	if pos, fault := jsontext.CheckObject(body, jsontext.MaxDepth); fault != 0 {
		d.add(nil, "is no JSON object: %s at byte %d", fault, pos)
		return nil, nil, d.err(whatPlan)
	}
	if o.Versions == nil {
		o.Versions = BuiltIn()
	}
	body, version, warning, err := o.Versions.read(body[jsontext.SkipSpace(body, 0):], o.SchemaVersion, o.Path)
	if err != nil {
		return nil, nil, err
	}
	if warning != "" {
		warnings = append(warnings, warning)
	}
	p = &Plan{SchemaVersion: version, text: len(body)}
	d.plan(p, body)
	d.secrets(nil, body)
	p.link(&d.faults)
	d.capabilities(p, o.Capabilities)
	if err := d.err(whatPlan); err != nil {
		return nil, nil, err
	}
	return p, warnings, nil
}

// Step returns the step with an id; nil: there is none.
func (p *Plan) Step(id string) *Step {
	i, ok := p.places[id]
	if !ok {
		return nil
	}
	return &p.Steps[i]
}

// Requires returns the capability that a step needs of its engine: "executor:" and the name of the
// executor, or "compute".
func (s *Step) Requires() string {
	if s.Type == Compute {
		return Compute
	}
	return "executor:" + s.Type
}

// capabilities reports the steps that the engine cannot execute.
func (d *decoder) capabilities(p *Plan, has []string) {
	if has == nil {
		return
	}
	known := map[string]bool{}
	for _, c := range has {
		known[c] = true
	}
	if p.Waits && !known[CapabilityWait] {
		d.add((*place)(nil).member("onFailure"), "is %s: this engine ends a run that has failed; it can do %s", OnFailureWait, list(has))
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Type != "" && !known[s.Requires()] {
			d.add(stepPlace(i).member("type"), "is %s: this engine cannot execute it; it can do %s", quote(s.Type), list(has))
		}
	}
}

func stepPlace(i int) *place { return (*place)(nil).member("steps").element(i) }

// list returns some names as text.
func list(names []string) string {
	const most = 20
	names = slices.Sorted(slices.Values(names))
	if len(names) > most {
		return fmt.Sprintf("%q and %d more", names[:most], len(names)-most)
	}
	return fmt.Sprintf("%q", names)
}
