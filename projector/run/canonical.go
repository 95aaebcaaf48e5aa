package run

import (
	"cmp"
	"strconv"
	"time"

	"runlog/proto/contract/jsontext"
)

// The canonical form is RFC 8785 JSON with the members that runlog.v1.RunSnapshot has, except
// substatus, message, stale and digest (PRJ-1). So a client can compute it from a served snapshot.
//
//   - 64-bit integers (lastEventSeq, runSeq, sizeBytes, totalDurationMs) are decimal strings,
//     32-bit ones are numbers.
//   - Times are RFC 3339 in UTC with "Z" and as many digits of a second, 0 to 9, as they need.
//   - Arrays are always there. Of the other members those that the wire format marks as optional,
//     and times, objects and engineAttemptId, are left out when absent.
//
// It is written by hand: the names are ASCII and known, so they stand here in their order (by
// UTF-16 code units, which for them is by bytes). A general implementation takes twenty times as
// long; the tests hold the form against one.

// CanonicalJSON returns the canonical form.
func (s *Snapshot) CanonicalJSON() []byte { return s.AppendCanonical(nil) }

// AppendCanonical appends the canonical form to b.
func (s *Snapshot) AppendCanonical(b []byte) []byte {
	w := writer{b}
	w.open()
	writeArray(&w, "artifacts", s.Artifacts, (*writer).artifact)
	w.time("completedAt", s.CompletedAt)
	w.optional("engineRunRef", s.EngineRunRef)
	w.optional("engineType", s.EngineType)
	w.string("environmentId", s.EnvironmentID)
	w.uint32("failedSteps", s.FailedSteps)
	w.uint32("failedStepsNow", s.FailedStepsNow())
	writeArray(&w, "inconsistencies", s.Inconsistencies, (*writer).inconsistency)
	w.uint32("inconsistencyCount", s.InconsistencyCount)
	w.uint64("lastEventSeq", s.LastEventSeq)
	writeArray(&w, "pendingSignals", s.Pending, (*writer).pending)
	w.string("planId", s.PlanID)
	w.planRef("planRef", s.PlanRef)
	w.string("planVersion", s.PlanVersion)
	w.string("projectId", s.ProjectID)
	w.rootCause("rootCause", s.RootCause)
	w.string("runId", s.RunID)
	writeArray(&w, "signals", s.Signals, (*writer).signal)
	w.time("startedAt", s.StartedAt)
	w.string("status", s.Status.String())
	writeTree(&w, "steps", &s.Steps.list, (*writer).step)
	w.string("tenantId", s.TenantID)
	w.optionalInt64("totalDurationMs", s.TotalDurationMs)
	w.optional("triggerSource", s.TriggerSource)
	w.optional("triggeredBy", s.TriggeredBy)
	if waiting := s.WaitingFor(); waiting != 0 {
		w.string("waitingFor", waitingForNames[waiting])
	}
	w.close()
	return w.b
}

func (w *writer) step(step *StepSnapshot) {
	w.open()
	if len(step.Approvals) > 0 {
		w.name("approvals")
		w.open()
		writeArray(w, "attesters", step.Approvals, (*writer).text)
		w.close()
	}
	writeArray(w, "artifacts", step.Artifacts, (*writer).artifact)
	writeTree(w, "attempts", &step.Attempts.list, (*writer).attempt)
	w.attemptRest(&step.StepAttempt)
	w.string("stepId", step.StepID)
	w.close()
}

func (w *writer) attempt(a *StepAttempt) {
	w.open()
	writeArray(w, "artifacts", a.Artifacts, (*writer).artifact)
	w.attemptRest(a)
	w.close()
}

// attemptRest writes the members of an attempt that come after its artifacts.
func (w *writer) attemptRest(a *StepAttempt) {
	w.time("completedAt", a.CompletedAt)
	if a.EngineAttemptID != 0 {
		w.uint32("engineAttemptId", a.EngineAttemptID)
	}
	w.stepError("error", a.Error)
	w.uint32("logicalAttemptId", a.LogicalAttemptID)
	if a.Status == StepFailed && a.OutcomeEngineAttemptID != a.EngineAttemptID {
		w.uint32("outcomeEngineAttemptId", a.OutcomeEngineAttemptID)
	}
	w.optional("reason", a.Reason)
	w.retry("retry", a.Retry)
	w.time("startedAt", a.StartedAt)
	w.string("status", a.Status.String())
}

func (w *writer) artifact(a *Artifact) {
	w.open()
	w.optional("expiresAt", a.ExpiresAt)
	w.string("kind", a.Kind)
	w.optional("sha256", a.SHA256)
	w.optionalInt64("sizeBytes", a.SizeBytes)
	w.string("uri", a.URI)
	w.close()
}

func (w *writer) stepError(name string, e *StepError) {
	if e == nil {
		return
	}
	w.name(name)
	w.open()
	w.optional("category", e.Category)
	w.optional("code", e.Code)
	w.optional("message", e.Message)
	if e.Retryable != nil {
		w.bool("retryable", *e.Retryable)
	}
	w.close()
}

func (w *writer) retry(name string, r *StepRetry) {
	if r == nil {
		return
	}
	w.name(name)
	w.open()
	w.uint32("engineAttemptId", r.EngineAttemptID)
	w.stepError("error", r.Error)
	w.time("nextAttemptAt", r.NextAttemptAt)
	w.close()
}

func (w *writer) rootCause(name string, c *RootCause) {
	if c == nil {
		return
	}
	w.name(name)
	w.open()
	w.optional("category", c.Category)
	w.optional("code", c.Code)
	w.optional("message", c.Message)
	w.optional("stepId", c.StepID)
	w.close()
}

func (w *writer) planRef(name string, p *PlanRef) {
	if p == nil {
		return
	}
	w.name(name)
	w.b = AppendPlanRef(w.b, p)
}

// AppendPlanRef appends the canonical form of a plan reference to b, from which ParsePlanRef makes
// an equal one; nothing for nil.
func AppendPlanRef(b []byte, p *PlanRef) []byte {
	if p == nil {
		return b
	}
	w := writer{b}
	w.open()
	w.optional("compression", p.Compression)
	w.optional("expiresAt", p.ExpiresAt)
	if h := p.MigrationHint; h != nil {
		w.name("migrationHint")
		w.open()
		w.string("sourceVersion", h.SourceVersion)
		w.string("targetVersion", h.TargetVersion)
		w.optional("transformScript", h.TransformScript)
		w.close()
	}
	w.string("planId", p.PlanID)
	w.string("planVersion", p.PlanVersion)
	w.optional("schemaEvolutionPath", p.SchemaEvolutionPath)
	w.string("schemaVersion", p.SchemaVersion)
	w.string("sha256", p.SHA256)
	w.optionalInt64("sizeBytes", p.SizeBytes)
	w.string("uri", p.URI)
	w.close()
	return w.b
}

func (w *writer) signal(d *SignalDecision) {
	w.open()
	w.bool("accepted", d.Accepted)
	w.time("decidedAt", d.DecidedAt)
	w.optional("decidedBy", d.DecidedBy)
	w.string("eventId", d.EventID)
	w.optional("reason", d.Reason)
	w.uint64("runSeq", d.RunSeq)
	w.optional("signalId", d.SignalID)
	w.optional("signalType", d.SignalType)
	w.optional("stepId", d.StepID)
	w.close()
}

func (w *writer) pending(p *PendingSignal) {
	w.open()
	if p.Attempt != 0 {
		w.uint32("nextLogicalAttemptId", p.Attempt)
	}
	w.uint64("runSeq", p.RunSeq)
	w.optional("signalId", p.SignalID)
	w.string("signalType", p.SignalType)
	w.optional("stepId", p.StepID)
	w.close()
}

func (w *writer) inconsistency(i *Inconsistency) {
	w.open()
	w.string("attempted", i.Attempted)
	w.string("eventId", i.EventID)
	w.string("kind", i.Kind)
	w.uint64("runSeq", i.RunSeq)
	w.string("state", i.State)
	w.close()
}

// writer appends canonical JSON. The caller writes the members in their order.
type writer struct{ b []byte }

func writeArray[T any](w *writer, name string, list []T, element func(*writer, *T)) {
	w.name(name)
	w.b = append(w.b, '[')
	for i := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		element(w, &list[i])
	}
	w.b = append(w.b, ']')
}

func writeTree[K cmp.Ordered, T any](w *writer, name string, list *tree[K, *T], element func(*writer, *T)) {
	w.name(name)
	w.b = append(w.b, '[')
	if list.root != nil { // most steps have no earlier attempts
		first := true
		list.root.each(func(_ K, e *T) bool {
			if !first {
				w.b = append(w.b, ',')
			}
			first = false
			element(w, e)
			return true
		})
	}
	w.b = append(w.b, ']')
}

func (w *writer) open()  { w.b = append(w.b, '{') }
func (w *writer) close() { w.b = append(w.b, '}') }

func (w *writer) name(name string) {
	// No value ends in an opening brace, so one means that this member is the first.
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

func (w *writer) string(name, s string) {
	w.name(name)
	w.text(&s)
}

func (w *writer) text(s *string) { w.b = jsontext.AppendQuoted(w.b, *s) }

func (w *writer) optional(name, s string) {
	if s != "" {
		w.string(name, s)
	}
}

func (w *writer) bool(name string, v bool) {
	w.name(name)
	w.b = strconv.AppendBool(w.b, v)
}

func (w *writer) uint32(name string, n uint32) {
	w.name(name)
	w.b = strconv.AppendUint(w.b, uint64(n), 10)
}

func (w *writer) uint64(name string, n uint64) {
	w.name(name)
	w.b = append(w.b, '"')
	w.b = strconv.AppendUint(w.b, n, 10)
	w.b = append(w.b, '"')
}

func (w *writer) optionalInt64(name string, n *int64) {
	if n == nil {
		return
	}
	w.name(name)
	w.b = append(w.b, '"')
	w.b = strconv.AppendInt(w.b, *n, 10)
	w.b = append(w.b, '"')
}

func (w *writer) time(name string, t time.Time) {
	if t.IsZero() {
		return
	}
	w.name(name)
	w.b = append(w.b, '"')
	w.b = t.UTC().AppendFormat(w.b, time.RFC3339Nano)
	w.b = append(w.b, '"')
}
