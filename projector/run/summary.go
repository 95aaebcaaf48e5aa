package run

import "time"

// Summary is what a list of runs says of a run's snapshot. A zero time and an empty string are
// absent.
type Summary struct {
	Status      Status
	StartedAt   time.Time // UTC
	CompletedAt time.Time // UTC
	// TotalDurationMs is set if HasDuration is.
	TotalDurationMs int64
	HasDuration     bool
	FailedSteps     uint32
	StepCount       uint32
	// CurrentStep is the step that is RUNNING or WAITING_FOR_ATTESTATION. If there are several, it
	// is the one that the run named last. There is none once the run has ended.
	CurrentStep string
	EngineType  string
	// PlanRef, TriggeredBy and TriggerSource are those of RunStarted.
	PlanRef                    *PlanRef
	TriggeredBy, TriggerSource string
	LastEventAt                time.Time // persistedAt of the newest event, UTC
	Drain                      Drain
}

// SummaryOf returns the summary of a snapshot. It looks at the steps from the last one on, up to
// the current one: at every step of a run that has not ended and has none.
func SummaryOf(s *Snapshot) Summary {
	m := Summary{
		Status: s.Status, StartedAt: s.StartedAt, CompletedAt: s.CompletedAt, FailedSteps: s.FailedSteps,
		StepCount: uint32(s.Steps.Len()), EngineType: s.EngineType, LastEventAt: s.PersistedAt,
		Drain: s.Drain(), PlanRef: s.PlanRef, TriggeredBy: s.TriggeredBy, TriggerSource: s.TriggerSource,
	}
	if s.TotalDurationMs != nil {
		m.TotalDurationMs, m.HasDuration = *s.TotalDurationMs, true
	}
	if s.Status.Terminal() {
		return m
	}
	for _, step := range s.Steps.list.backward() {
		if step.Status == StepRunning || step.Status == StepWaitingForAttestation {
			m.CurrentStep = step.StepID
			break
		}
	}
	return m
}
