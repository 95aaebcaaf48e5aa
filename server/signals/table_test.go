package signals

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
)

// history folds a run from words: types of events, accepted signals, and behind a colon the step.
type history struct {
	seq      uint64
	snapshot *run.Snapshot
}

func (h *history) add(words ...string) {
	for _, word := range words {
		name, step, _ := strings.Cut(word, ":")
		h.seq++
		r := storage.Record{Recorded: contract.Recorded{RunSeq: h.seq, Event: contract.Event{
			RunID: "run", Type: name, StepID: step, LogicalAttemptID: 1, EngineAttemptID: 1, Payload: []byte(`{}`),
		}}}
		if contract.TypeCode(name) == 0 {
			r.Type, r.Payload = contract.SignalAccepted, []byte(`{"signalType":"`+name+`"}`)
		} else if step := h.step(step); step != nil {
			if r.LogicalAttemptID = step.LogicalAttemptID; step.Status == run.StepFailed && name == contract.StepStarted {
				r.LogicalAttemptID++
			}
		}
		h.snapshot = run.Reduce(h.snapshot, &r)
	}
}

func (h *history) step(id string) *run.StepSnapshot {
	if h.snapshot == nil {
		return nil
	}
	return h.snapshot.Step(id)
}

func after(words ...string) *run.Snapshot {
	h := &history{}
	h.add(append([]string{"Noted"}, words...)...)
	return h.snapshot
}

// runPhases has ways into each phase of a run.
var runPhases = [phases][][]string{
	notStarted: {{}, {"RunQueued"}, {"RunApproved"}},
	running:    {{"RunStarted"}, {"RunStarted", "RunPaused", "RunResumed"}, {"RunStarted", "PAUSE", "RESUME"}},
	pausing:    {{"RunStarted", "PAUSE"}, {"RunStarted", "StepWaitingForAttestation:w", "PAUSE"}, {"RunStarted", "RunPaused", "RESUME", "PAUSE"}},
	paused:     {{"RunStarted", "RunPaused"}, {"RunStarted", "PAUSE", "RunPaused"}},
	resuming:   {{"RunStarted", "RunPaused", "RESUME"}, {"RunStarted", "StepWaitingForAttestation:w", "RESUME"}},
	waiting:    {{"RunStarted", "StepWaitingForAttestation:w"}},
	cancelling: {{"CANCEL"}, {"RunStarted", "CANCEL"}, {"RunStarted", "PAUSE", "CANCEL"}, {"RunStarted", "RunPaused", "CANCEL"}},
	stopping:   {{"EMERGENCY_STOP"}, {"RunStarted", "CANCEL", "EMERGENCY_STOP"}, {"RunStarted", "RunPaused", "EMERGENCY_STOP", "RESUME"}},
	ended:      {{"RunStarted", "RunCompleted"}, {"RunFailed"}, {"RunStarted", "CANCEL", "RunCancelled"}},
}

// phaseNames are the columns of the first table in docs/signals.md.
var phaseNames = [phases]string{"PENDING, APPROVED", "RUNNING", "pausing", "PAUSED", "resuming", "WAITING", "cancelling", "stopping", "ended"}

// onStep has ways of the step "s" into each of its phases.
var onStep = [stepPhases][][]string{
	stepUnknown:  {{}, {"StepStarted:other"}},
	stepPending:  {{"StepDelayed:s"}},
	stepRunning:  {{"StepStarted:s"}, {"StepFailed:s", "RETRY_STEP:s", "StepStarted:s"}},
	stepWaiting:  {{"StepWaitingForAttestation:s"}},
	stepSuccess:  {{"StepCompleted:s"}, {"SKIP_STEP:s", "StepCompleted:s"}},
	stepFailed:   {{"StepFailed:s"}, {"StepFailed:s", "RETRY_STEP:s", "StepStarted:s", "StepFailed:s"}, {"SKIP_STEP:s", "StepFailed:s"}},
	stepSkipped:  {{"StepSkipped:s"}},
	stepRetrying: {{"StepFailed:s", "RETRY_STEP:s"}},
	stepSkipping: {{"SKIP_STEP:s"}, {"StepStarted:s", "SKIP_STEP:s"}},
}

// stepPhaseNames are the columns of the second table in docs/signals.md.
var stepPhaseNames = [stepPhases]string{"unknown", "PENDING", "RUNNING", "WAITING_FOR_ATTESTATION", "SUCCESS", "FAILED", "SKIPPED", "retrying", "skipping"}

// TestTableSIG3 comes into each phase in several ways, and holds each decision to the row of the
// table.
func TestTableSIG3(t *testing.T) {
	if len(table) != len(contract.SignalTypes()) {
		t.Errorf("%d rows for %d types", len(table), len(contract.SignalTypes()))
	}
	for at, ways := range runPhases {
		for _, way := range ways {
			s := after(way...)
			if got := phaseOf(s); got != phase(at) {
				t.Errorf("%v: phase %s, want %s", way, phaseNames[got], phaseNames[at])
			}
			for _, signalType := range contract.SignalTypes() {
				want := table[signalType][at]
				if steps, ok := stepTable[signalType]; ok && want == accept {
					want = steps[stepUnknown]
				}
				if got, _ := decide(s, signalType, "s", false); got != want {
					t.Errorf("%v %s: %q, want %q", way, signalType, got, want)
				}
			}
		}
	}
	for at, ways := range onStep {
		for _, way := range ways {
			for _, in := range []phase{running, paused, pausing, waiting} {
				s := after(append(slices.Clone(runPhases[in][0]), way...)...)
				if got := stepPhaseOf(s, "s"); got != stepPhase(at) {
					t.Errorf("%v: phase %s, want %s", way, stepPhaseNames[got], stepPhaseNames[at])
				}
				for signalType, row := range stepTable {
					got, next := decide(s, signalType, "s", false)
					if got != row[at] {
						t.Errorf("%v %v %s: %q, want %q", runPhases[in][0], way, signalType, got, row[at])
					}
					if retried := got == accept && signalType == contract.SignalRetryStep; retried != (next > 0) || retried && next != s.Step("s").LogicalAttemptID+1 {
						t.Errorf("%v %s: next attempt %d (SIG-7)", way, signalType, next)
					}
				}
			}
		}
	}
}

// TestUnknownTypesSIG1: a type that the contract does not know is accepted in a run that has not
// ended, if the policy says so, and is refused otherwise.
func TestUnknownTypesSIG1(t *testing.T) {
	for at, ways := range runPhases {
		s := after(ways[0]...)
		want := accept
		if phase(at) == ended {
			want = runEnded
		}
		if got, _ := decide(s, "WAVE", "", true); got != want {
			t.Errorf("%s: %q, want %q", phaseNames[at], got, want)
		}
		if got, _ := decide(s, "WAVE", "", false); got != unknownType {
			t.Errorf("%s: %q without the policy", phaseNames[at], got)
		}
	}
}

// TestManyPendingSignals: a run that has as many pending signals as a snapshot holds takes no more
// about steps, and all others.
func TestManyPendingSignals(t *testing.T) {
	h := &history{}
	h.add("RunStarted", "StepFailed:failed")
	for i := 0; !h.snapshot.PendingIsFull(); i++ {
		h.add(fmt.Sprint("SKIP_STEP:", i))
	}
	for signalType, want := range map[string]string{
		contract.SignalSkipStep: tooManyPending, contract.SignalPause: accept, contract.SignalCancel: accept, contract.SignalRetryStep: tooManyPending,
	} {
		if got, _ := decide(h.snapshot, signalType, "failed", false); signalType == contract.SignalSkipStep {
			got, _ = decide(h.snapshot, signalType, "new", false)
			if got != want {
				t.Errorf("%s: %q, want %q", signalType, got, want)
			}
		} else if got != want {
			t.Errorf("%s: %q, want %q", signalType, got, want)
		}
	}
}

// TestExplanations: each reason of the tables says what it means.
func TestExplanations(t *testing.T) {
	for _, row := range table {
		for _, reason := range row {
			if reason != accept && explanations[reason] == "" {
				t.Errorf("%s has no explanation", reason)
			}
		}
	}
	for _, row := range stepTable {
		for _, reason := range row {
			if reason != accept && explanations[reason] == "" {
				t.Errorf("%s has no explanation", reason)
			}
		}
	}
}

// TestSkipOfFailedStepSIG3: the SKIP_STEP of a failed step is rejected, as that of each step that
// has ended. The stored reason says how an operator leaves the step out nevertheless. Once the next
// attempt has started, a SKIP_STEP is accepted.
func TestSkipOfFailedStepSIG3(t *testing.T) {
	const retry, wait = "send RETRY_STEP, and send SKIP_STEP with another signalId while", "send SKIP_STEP with another signalId once it has"
	for _, tt := range []struct {
		words        []string
		reject, says string
	}{
		{[]string{"RunStarted", "StepFailed:a"}, stepEnded, retry},
		{[]string{"RunStarted", "StepFailed:a", "RunPaused"}, stepEnded, retry},
		{[]string{"RunStarted", "StepFailed:a", "RunPaused", "RETRY_STEP:a"}, stepEnded, wait},
		{[]string{"RunStarted", "StepFailed:a", "RunPaused", "RETRY_STEP:a", "RunResumed", "StepStarted:a"}, accept, ""},
		{[]string{"RunStarted", "StepCompleted:a"}, stepEnded, explanations[stepEnded]},
		{[]string{"RunStarted", "StepSkipped:a"}, stepEnded, explanations[stepEnded]},
	} {
		d := new(Service).judge(&state{snapshot: after(tt.words...)}, &signal{signalType: contract.SignalSkipStep, stepID: "a", permitted: true})
		if plain := tt.says == explanations[stepEnded]; d.Reject != tt.reject || !strings.Contains(d.Reason, tt.says) || plain != (d.Reason == stepEnded+": "+tt.says) {
			t.Errorf("%v: %s, %q; want %s, %q", tt.words, d.Reject, d.Reason, tt.reject, tt.says)
		}
	}
}

// TestPageSIG3 holds the tables in docs/signals.md to those of the code.
func TestPageSIG3(t *testing.T) {
	page, err := os.ReadFile("../../docs/signals.md")
	if err != nil {
		t.Fatal(err)
	}
	first := markdown(phaseNames[:], func(signalType string) []string { row := table[signalType]; return row[:] }, contract.SignalTypes())
	second := markdown(stepPhaseNames[:], func(signalType string) []string { row := stepTable[signalType]; return row[:] },
		[]string{contract.SignalRetryStep, contract.SignalSkipStep})
	for _, want := range []string{first, second} {
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/signals.md has not the table\n%s", want)
		}
	}
	for reason, text := range explanations {
		if want := fmt.Sprintf("| `%s` | %s |", reason, text); !strings.Contains(string(page), want) {
			t.Errorf("docs/signals.md has not the row %s", want)
		}
	}
}

// markdown writes a table with a row for each type: the phases in which it is accepted, and the
// others by the reason for which it is rejected.
func markdown(names []string, row func(string) []string, types []string) string {
	var b strings.Builder
	b.WriteString("| signal | accepted | rejected |\n|---|---|---|\n")
	for _, signalType := range types {
		in := map[string][]string{}
		var reasons []string
		for i, reason := range row(signalType) {
			if reason != accept && !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
			in[reason] = append(in[reason], names[i])
		}
		accepted := strings.Join(in[accept], ", ")
		if _, ok := stepTable[signalType]; ok && names[0] == phaseNames[0] {
			accepted = "by the step: " + accepted
		}
		for i, reason := range reasons {
			reasons[i] = "`" + reason + "`: " + strings.Join(in[reason], ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", signalType, accepted, strings.Join(reasons, "; "))
	}
	return b.String()
}

// model is a run as a reader of docs/signals.md has it in mind.
type model struct {
	status                        string
	pause, resume, cancel, urgent bool
	steps                         map[string]string // status
	skip, retry                   map[string]bool
}

func newModel() *model {
	return &model{status: "PENDING", steps: map[string]string{}, skip: map[string]bool{}, retry: map[string]bool{}}
}

func (m *model) over() bool { return m.status == "ENDED" }

// signal decides, and keeps what was accepted.
func (m *model) signal(signalType, step string) string {
	why := m.judge(signalType, step)
	if why != "" {
		return why
	}
	switch signalType {
	case "PAUSE":
		m.pause, m.resume = true, false
	case "RESUME":
		m.pause, m.resume = false, m.status == "PAUSED" || m.status == "WAITING"
	case "CANCEL":
		m.cancel = true
	case "EMERGENCY_STOP":
		m.urgent = true
	case "RETRY_STEP":
		m.retry[step] = true
	case "SKIP_STEP":
		m.skip[step] = true
	}
	return ""
}

func (m *model) judge(signalType, step string) string {
	flow := signalType == "PAUSE" || signalType == "RESUME" || strings.HasSuffix(signalType, "_STEP")
	still := m.status == "PAUSED" || m.status == "WAITING"
	switch {
	case m.over():
		return "RUN_ENDED"
	case (m.cancel || m.urgent) && (flow || signalType == "CANCEL"), m.urgent && signalType == "EMERGENCY_STOP":
		return "ALREADY_CANCELLING"
	case signalType == "PAUSE" && !m.resume && (m.pause || m.status == "PAUSED"):
		return "ALREADY_PAUSED"
	case signalType == "PAUSE" && m.status == "PENDING":
		return "RUN_NOT_STARTED"
	case signalType == "RESUME" && m.resume:
		return "ALREADY_RESUMED"
	case signalType == "RESUME" && !m.pause && !still:
		return "NOT_PAUSED"
	case signalType == "RETRY_STEP" && m.retry[step]:
		return "ALREADY_RETRIED"
	case signalType == "RETRY_STEP" && m.steps[step] == "" && !m.skip[step]:
		return "STEP_NOT_FOUND"
	case signalType == "RETRY_STEP" && m.steps[step] != "FAILED":
		return "STEP_NOT_FAILED"
	case signalType == "SKIP_STEP" && m.skip[step]:
		return "ALREADY_SKIPPED"
	case signalType == "SKIP_STEP" && (m.steps[step] == "FAILED" || m.steps[step] == "SUCCESS" || m.steps[step] == "SKIPPED"):
		return "STEP_ENDED"
	default:
		return ""
	}
}

// event is an event of an engine that keeps to the contract; false: it would not.
func (m *model) event(name, step string) bool {
	was := m.steps[step]
	live := !m.over() && m.status != "PENDING"
	switch name {
	case "RunStarted":
		if m.status != "PENDING" {
			return false
		}
		m.status = "RUNNING"
	case "RunPaused":
		if m.status != "RUNNING" && m.status != "WAITING" {
			return false
		}
		m.status, m.pause = "PAUSED", false
	case "RunResumed":
		if m.status != "PAUSED" && m.status != "WAITING" {
			return false
		}
		m.status, m.pause, m.resume = "RUNNING", false, false
	case "RunCancelled":
		if m.over() {
			return false
		}
		*m = *newModel()
		m.status = "ENDED"
	case "StepStarted":
		if !live || was != "" && was != "FAILED" {
			return false
		}
		m.steps[step] = "RUNNING"
		delete(m.retry, step)
	case "StepWaitingForAttestation":
		if !live || was != "RUNNING" {
			return false
		}
		m.steps[step] = "WAITING"
		if m.status == "RUNNING" {
			m.status = "WAITING"
		}
	case "StepFailed", "StepCompleted":
		if !live || was != "RUNNING" {
			return false
		}
		m.steps[step] = map[string]string{"StepFailed": "FAILED", "StepCompleted": "SUCCESS"}[name]
		delete(m.skip, step)
	case "StepSkipped":
		if !live || was != "" {
			return false
		}
		m.steps[step] = "SKIPPED"
		delete(m.skip, step)
	}
	return true
}

// TestDecisionsAreTheModelsSIG2SIG3 draws histories of engines and operators: each decision is that
// of a plain model of the page.
func TestDecisionsAreTheModelsSIG2SIG3(t *testing.T) {
	events := []string{"RunStarted", "RunStarted", "RunPaused", "RunPaused", "RunResumed", "RunCancelled", "StepStarted", "StepStarted",
		"StepStarted", "StepFailed", "StepFailed", "StepCompleted", "StepSkipped", "StepWaitingForAttestation"}
	rapid.Check(t, func(t *rapid.T) {
		m, h := newModel(), &history{}
		h.add("Noted")
		for range rapid.IntRange(1, 40).Draw(t, "length") {
			step := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "step")
			if rapid.Bool().Draw(t, "signal?") {
				signalType := rapid.SampledFrom(contract.SignalTypes()).Draw(t, "type")
				got, _ := decide(h.snapshot, signalType, step, false)
				if want := m.signal(signalType, step); got != want {
					t.Fatalf("%s %s: %q, want %q; the run is %v and %v", signalType, step, got, want, h.snapshot.Status, h.snapshot.Pending)
				}
				if got == accept {
					h.add(signalType + ":" + step)
				}
				continue
			}
			name := rapid.SampledFrom(events).Draw(t, "event")
			if !m.event(name, step) {
				continue
			}
			if contract.ScopeOf(name) == contract.ScopeRun {
				step = ""
			}
			h.add(name + ":" + step)
		}
	})
}
