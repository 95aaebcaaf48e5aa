package storagetest

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/metadata"
)

// Epoch is a plausible clock: 2030-01-01T00:00:00Z.
const Epoch = 1893456000_000000000

// Workload draws proposals that meet each other: few runs, few logical events, so that duplicates,
// conflicts and refusals are common.
type Workload struct {
	// Model is asked for what the runs look like now, so that expectations are often right, and
	// often wrong by one.
	Model *Model
	// Runs to choose from. Default: 5.
	Runs int
	// LargePayloads adds events of up to 40 kB, so that requests span blocks and proposals span
	// chunks.
	LargePayloads bool
	// Imports adds events that keep what another authority had assigned to them.
	Imports bool
	// Fences adds leases: proposals that raise a run's fence.
	Fences bool
	// Compound adds compound commands, and operations of the machine Writer.
	Compound bool
	// OnlyCompound leaves out all others.
	OnlyCompound bool

	clock    int64
	events   uint64
	imported []*storage.Append
}

// Proposal draws a leader's clock, which may go back, and the requests of one proposal, perhaps
// none.
func (w *Workload) Proposal(t *rapid.T) (clock int64, requests []Request) {
	if w.clock == 0 {
		w.clock = Epoch
	}
	w.clock += rapid.SampledFrom([]int64{1e6, 1e9, 0, 1, -1e9, -1e6}).Draw(t, "tick")
	if w.Fences && rapid.IntRange(0, 4).Draw(t, "lease") == 4 {
		run := runID(rapid.IntRange(0, w.runs()-1).Draw(t, "run"))
		next := w.fence(run) + rapid.SampledFrom([]uint64{1, 1, 2, 0, ^uint64(0)}).Draw(t, "fence")
		return w.clock, []Request{{Fence: &SetFence{RunID: run, Fence: next}}}
	}
	n := rapid.SampledFrom([]int{1, 1, 2, 3, 6, 0}).Draw(t, "requests")
	for range n {
		requests = append(requests, w.request(t))
	}
	return w.clock, requests
}

func (w *Workload) runs() int {
	if w.Runs == 0 {
		return 5
	}
	return w.Runs
}

// fence is the run's current one.
func (w *Workload) fence(runID string) uint64 {
	r, err := w.Model.Run(runID)
	if err != nil {
		return 0
	}
	return r.Fence
}

func (w *Workload) request(t *rapid.T) Request {
	runs := w.runs()
	if w.OnlyCompound || w.Compound && rapid.IntRange(0, 5).Draw(t, "compound") == 5 {
		return w.compound(t, runs)
	}
	run := rapid.IntRange(0, runs-1).Draw(t, "run")
	if w.Imports && rapid.IntRange(0, 5).Draw(t, "import") == 5 {
		return Request{Append: w.imports(t, run)}
	}
	switch k := rapid.IntRange(0, 19).Draw(t, "kind"); {
	case k < 15:
		return Request{Append: w.append(t, run, w.scope(t, run), 1)}
	case k < 18:
		scope := w.scope(t, run)
		a := w.append(t, run, scope, 0)
		a.Create = w.creation(t, run, scope)
		a.Exclusive = rapid.IntRange(0, 5).Draw(t, "exclusive") == 5
		return Request{Append: a}
	default:
		return w.metadata(t, run)
	}
}

// metadata draws a change of a run's metadata.
func (w *Workload) metadata(t *rapid.T, run int) Request {
	ref := rapid.SampledFrom([]string{"ref-a", "ref-b"}).Draw(t, "ref")
	if rapid.Bool().Draw(t, "once") {
		return Request{SetRef: &SetRef{RunID: runID(run), Ref: ref}}
	}
	var u metadata.Update
	if rapid.Bool().Draw(t, "reference") {
		u.EngineRunRef, u.Previous = &ref, "ref-a"
		if r, err := w.Model.Run(runID(run)); err == nil && r.Metadata != nil {
			u.Previous = r.Metadata.EngineRunRef
		}
	}
	u.Labels = rapid.SampledFrom([]map[string]string{nil, {}, {"a": "1"}, {"a": "2", "z": ""}}).Draw(t, "labels")
	return Request{Update: &Update{RunID: runID(run), Update: u}}
}

func runID(run int) string {
	// One name is the begin of another: keys must not mix them up.
	return "run-" + strings.Repeat("1", run+1)
}

// scope draws where a request says that its run belongs: seldom elsewhere than the others say.
func (w *Workload) scope(t *rapid.T, run int) storage.Scope {
	scope := storage.Scope{TenantID: fmt.Sprintf("tenant-%d", run%2), ProjectID: "project", EnvironmentID: "prod"}
	if rapid.IntRange(0, 19).Draw(t, "stray") < 19 {
		return scope
	}
	return storage.Scope{
		TenantID:      rapid.SampledFrom([]string{scope.TenantID, "tenant-9"}).Draw(t, "tenant"),
		ProjectID:     rapid.SampledFrom([]string{scope.ProjectID, "other"}).Draw(t, "project"),
		EnvironmentID: rapid.SampledFrom([]string{scope.EnvironmentID, "dev"}).Draw(t, "environment"),
	}
}

func (w *Workload) append(t *rapid.T, run int, scope storage.Scope, least int) *storage.Append {
	n := rapid.SampledFrom([]int{1, 1, 1, 2, 3, 8, 30}).Draw(t, "events")
	if least == 0 && rapid.Bool().Draw(t, "no events") {
		n = 0
	}
	a := &storage.Append{RunID: runID(run), AppendedBy: w.author(t)}
	for range n {
		a.Events = append(a.Events, w.event(t, run, scope))
	}
	w.attempts(t, a)
	if rapid.IntRange(0, 4).Draw(t, "conditional") == 4 {
		var last uint64
		if r, err := w.Model.Run(a.RunID); err == nil {
			last = r.LastSeq
		}
		last += rapid.SampledFrom([]uint64{0, 0, 0, 1, ^uint64(0)}).Draw(t, "off by")
		a.ExpectedLastSeq = &last
	}
	if rapid.IntRange(0, 4).Draw(t, "fenced") == 4 {
		fence := w.fence(a.RunID) + rapid.SampledFrom([]uint64{0, 0, 0, 1, ^uint64(0)}).Draw(t, "fence off by")
		a.Fence = &fence
	}
	a.OnlyNew = rapid.IntRange(0, 5).Draw(t, "only new") == 5
	return a
}

// imports draws an import: often one that the run can take, sometimes one that it took already,
// sometimes one that is off by a little.
func (w *Workload) imports(t *rapid.T, run int) *storage.Append {
	if n := len(w.imported); n > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 3 {
		return w.imported[rapid.IntRange(0, n-1).Draw(t, "which")]
	}
	a := w.append(t, run, w.scope(t, run), 1)
	a.ExpectedLastSeq, a.Fence = nil, nil
	last := storage.Assigned{Original: contract.Original{PersistedAt: Epoch - 3600e9}}
	if r, err := w.Model.Run(a.RunID); err == nil {
		last.RunSeq = r.LastSeq
	}
	seen := map[string]bool{}
	for i := 0; i < len(a.Events); {
		if seen[a.Events[i].IdempotencyKey] && rapid.IntRange(0, 9).Draw(t, "keep") < 9 {
			a.Events = append(a.Events[:i], a.Events[i+1:]...) // two records never have one key
			continue
		}
		seen[a.Events[i].IdempotencyKey] = true
		a.Events[i].AttemptAssigned = false // a record has its own
		last.RunSeq += rapid.SampledFrom([]uint64{1, 1, 1, 1, 2, 1000}).Draw(t, "gap")
		last.Original.PersistedAt += rapid.SampledFrom([]int64{0, 1, 1e6, -2e6}).Draw(t, "later")
		if rapid.IntRange(0, 29).Draw(t, "off") == 27 {
			last.RunSeq--
		}
		last.Original.Source = w.identity(t)
		a.Imported = append(a.Imported, last)
		i++
	}
	w.imported = append(w.imported, a)
	return a
}

func (w *Workload) creation(t *rapid.T, run int, scope storage.Scope) *storage.Creation {
	c := &storage.Creation{Scope: scope}
	c.Metadata.EngineType = "engine"
	c.Metadata.TriggeredBy = rapid.SampledFrom([]string{"", "", "someone"}).Draw(t, "triggered by")
	c.Metadata.EngineRunRef = rapid.SampledFrom([]string{"", "ref-a"}).Draw(t, "engine run")
	if run%2 == 0 {
		size := int64(run)
		c.Metadata.PlanRef = &storage.PlanRef{URI: "plan:p", PlanID: "plan", PlanVersion: "v1", SizeBytes: &size}
		if rapid.Bool().Draw(t, "expires") {
			c.Metadata.PlanRef.ExpiresAt, c.Metadata.PlanRef.SchemaEvolutionPath = "2027-01-31T00:00:00Z", "v1.0 → v1.2"
			c.Metadata.PlanRef.MigrationHint = &storage.MigrationHint{SourceVersion: "v1.0", TargetVersion: "v1.2"}
		}
		c.Metadata.Labels = map[string]string{"a": "1", "b": "2", "c": ""}
	}
	return c
}

// author draws the caller, which most often has no identity.
func (w *Workload) author(t *rapid.T) (by contract.Author) {
	if by.Name = w.identity(t); by.Name != "" {
		by.TokenID = rapid.SampledFrom([]string{"", "token-1", "token-2"}).Draw(t, "token")
	}
	return by
}

func (w *Workload) identity(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "", "worker", "worker-2"}).Draw(t, "identity")
}

var drawnTypes = []string{
	contract.RunStarted, contract.RunPaused, contract.RunPaused, contract.SignalAccepted, contract.StepStarted,
	contract.StepCompleted, contract.StepFailed, contract.RunFailed, "CustomThing", "vendor.example/thing",
}

func (w *Workload) event(t *rapid.T, run int, scope storage.Scope) contract.Event {
	w.events++
	e := contract.Event{
		Type:             rapid.SampledFrom(drawnTypes).Draw(t, "type"),
		RunID:            runID(run),
		TenantID:         scope.TenantID,
		ProjectID:        scope.ProjectID,
		EnvironmentID:    scope.EnvironmentID,
		PlanID:           "plan",
		PlanVersion:      "v1",
		LogicalAttemptID: rapid.Uint32Range(1, 2).Draw(t, "attempt"),
		EngineAttemptID:  uint32(1 + w.events%3),
		EmittedAt:        Epoch - int64(w.events)*1_000_003,
	}
	binary.BigEndian.PutUint64(e.EventID[8:], w.events)
	if w.events%2 == 0 {
		e.EmittedBy = "producer"
	}
	if contract.ScopeOf(e.Type) != contract.ScopeRun {
		e.StepID = fmt.Sprintf("step-%d", rapid.IntRange(0, 2).Draw(t, "step"))
	}
	switch rapid.IntRange(0, 9).Draw(t, "plan") {
	case 7:
		e.PlanVersion = "v2"
	case 8:
		e.PlanID = "other-plan"
	}
	if rapid.IntRange(0, 2).Draw(t, "line") == 2 {
		e.Contract = contract.Line11
		e.CausedBySignalID = rapid.SampledFrom([]string{"", "signal"}).Draw(t, "cause")
		e.ParentEventID = rapid.SampledFrom([]string{"", "", "parent"}).Draw(t, "parent")
		w.sparse(t, &e)
	}
	if rapid.IntRange(0, 4).Draw(t, "extended") == 4 {
		e.Extensions = []byte(rapid.SampledFrom([]string{`{}`, `{"x":1.10}`, `{ "x":1.1 }`, `{"x":2}`}).Draw(t, "extensions"))
	}
	w.key(t, &e)
	w.payload(t, &e)
	w.cause(t, &e)
	return e
}

// sparse leaves out envelope fields, as 1.1 producers may (ENV-1).
func (w *Workload) sparse(t *rapid.T, e *contract.Event) {
	e.Absent = contract.Absent(rapid.SampledFrom([]uint8{
		0, 0, uint8(contract.AbsentTenant | contract.AbsentProject | contract.AbsentEnvironment), 31,
		uint8(contract.AbsentPlan), uint8(contract.AbsentPlanVersion), uint8(contract.AbsentTenant),
	}).Draw(t, "absent"))
	for _, f := range []struct {
		bit   contract.Absent
		field *string
	}{
		{contract.AbsentTenant, &e.TenantID}, {contract.AbsentProject, &e.ProjectID},
		{contract.AbsentEnvironment, &e.EnvironmentID}, {contract.AbsentPlan, &e.PlanID},
		{contract.AbsentPlanVersion, &e.PlanVersion},
	} {
		if e.Absent&f.bit != 0 {
			*f.field = ""
		}
	}
}

func (w *Workload) key(t *rapid.T, e *contract.Event) {
	opaque := e.Absent&contract.AbsentPlanVersion != 0 || rapid.IntRange(0, 9).Draw(t, "opaque key") == 9
	if opaque {
		e.IdempotencyKey = fmt.Sprintf("%s-%s-%s", e.Type, e.StepID, e.RunID)
		if rapid.IntRange(0, 2).Draw(t, "takes a key") == 2 {
			typ, attempt := rapid.SampledFrom(recurring).Draw(t, "of type"), rapid.Uint32Range(1, 4).Draw(t, "of attempt")
			e.IdempotencyKey = contract.DeriveKey(contract.Line2, e.RunID, "", attempt, e.EngineAttemptID, typ, "plan", "v1")
		}
		return
	}
	e.KeyDerived = true
	e.IdempotencyKey = contract.DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
}

func (w *Workload) payload(t *rapid.T, e *contract.Event) {
	kind := rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3, 4}).Draw(t, "payload")
	if !w.LargePayloads {
		kind = min(kind, 2)
	}
	size := []int{0, 2, 300, 8000, 40000}[kind]
	switch kind {
	case 0:
		e.Payload = []byte(`{}`)
	case 1:
		// Two spellings of one value (IDM-7).
		spelling := rapid.SampledFrom([]string{`{"attempt":%d}`, `{ "attempt" : %d.0 }`}).Draw(t, "spelling")
		e.Payload = fmt.Appendf(nil, spelling, e.LogicalAttemptID)
	case 3:
		e.Payload = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("the same words ", size/15))
	default:
		e.Payload = fmt.Appendf(nil, `{"noise":%q}`, Noise(w.events, size))
	}
}

// Noise is text that does not compress.
func Noise(seed uint64, size int) string {
	rng := rand.NewChaCha8([32]byte(binary.BigEndian.AppendUint64(make([]byte, 24), seed)))
	raw := make([]byte, size)
	_, _ = rng.Read(raw)
	return base64.StdEncoding.EncodeToString(raw)
}

// Event returns the n-th event of a run, from 0 on: valid, of contract 2.0.0, with a key of its
// own.
func Event(runID string, n int) contract.Event {
	e := contract.Event{
		Type:             contract.StepStarted,
		RunID:            runID,
		TenantID:         "tenant",
		ProjectID:        "project",
		EnvironmentID:    "prod",
		PlanID:           "plan",
		PlanVersion:      "v1",
		StepID:           fmt.Sprintf("step-%d", n),
		LogicalAttemptID: 1,
		EngineAttemptID:  1,
		KeyDerived:       true,
		EmittedAt:        Epoch + int64(n),
		Payload:          fmt.Appendf(nil, `{"n":%d}`, n),
	}
	binary.BigEndian.PutUint64(e.EventID[:], 0x0190_0000_0000_7000)
	binary.BigEndian.PutUint64(e.EventID[8:], 0x8000_0000_0000_0000|uint64(n))
	e.IdempotencyKey = contract.DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
	return e
}

// Events returns n events of a run, beginning with the first-th.
func Events(runID string, first, n int) []contract.Event {
	events := make([]contract.Event, 0, n)
	for i := range n {
		events = append(events, Event(runID, first+i))
	}
	return events
}
