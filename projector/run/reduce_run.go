package run

import (
	"hash/maphash"
	"time"

	"runlog/proto/contract"
	"runlog/storage"
)

// runEvent applies a run event where PRJ-4 allows it.
func (f *fold) runEvent(r *storage.Record) {
	s := f.next
	status, legal := s.Status.After(r.Type)
	if !legal {
		f.invalid(r, s.Status.String())
		return
	}
	s.Status = status
	switch r.Type {
	case contract.RunStarted:
		s.start(r)
	case contract.RunPaused:
		s.Draining = decodeDraining(r.Payload)
		s.PausedAt = r.Persisted()
	case contract.RunResumed:
		s.unpause()
	case contract.RunCompleted:
		s.end(decodeCompletedAt(r.Payload).timeOr(emitted(r)))
		s.Artifacts = gatherArtifacts(&s.Steps)
	case contract.RunFailed:
		p := decodeRunFailed(r.Payload)
		s.end(p.completedAt.timeOr(p.failedAt.timeOr(emitted(r))))
		s.RootCause = p.rootCause()
	case contract.RunCancelled:
		s.end(decodeCompletedAt(r.Payload).timeOr(emitted(r)))
	}
}

func (s *Snapshot) start(r *storage.Record) {
	p := decodeRunStarted(r.Payload)
	s.EngineRunRef = p.engineRunRef.text()
	s.EngineType = p.engineType.text()
	s.PlanRef = p.planRef.plan()
	s.TriggeredBy, s.TriggerSource = p.context.field("triggeredBy").text(), p.context.field("triggerSource").text()
	s.StartedAt = p.startedAt.timeOr(emitted(r))
}

// end tells when the run has ended (PRJ-3).
func (s *Snapshot) end(completedAt time.Time) {
	s.CompletedAt = completedAt
	s.TotalDurationMs = durationMs(s.StartedAt, s.CompletedAt)
	s.unpause()
}

func (s *Snapshot) unpause() {
	s.Draining = false
	s.PausedAt = time.Time{}
}

// durationMs returns whole milliseconds, or nil when the start is unknown or lies after the end. It
// does not use time.Duration, which ends at 292 years while payload times do not.
func durationMs(start, end time.Time) *int64 {
	if start.IsZero() || end.Before(start) {
		return nil
	}
	seconds := end.Unix() - start.Unix()
	nanos := int64(end.Nanosecond() - start.Nanosecond())
	if nanos < 0 {
		seconds, nanos = seconds-1, nanos+int64(time.Second)
	}
	ms := seconds*1000 + nanos/int64(time.Millisecond)
	return &ms
}

// gatherArtifacts returns the artifacts of the steps' current attempts, in the order of the steps,
// each uri, kind and sha256 once (PRJ-3).
func gatherArtifacts(steps *Steps) []Artifact {
	n := 0
	for step := range steps.All() {
		n += len(step.Artifacts)
	}
	if n == 0 {
		return nil
	}
	// Artifacts by hash, those of equal hash one behind the other: less to hash and to keep than
	// the texts themselves.
	seed := maphash.MakeSeed()
	seen := make(map[uint64]int, n)
	all := make([]Artifact, 0, n)
	for step := range steps.All() {
		for i := range step.Artifacts {
			a := &step.Artifacts[i]
			key := maphash.String(seed, a.URI) + maphash.String(seed, a.SHA256)*3 + maphash.String(seed, a.Kind)*5
			at, taken := seen[key]
			for taken && !all[at].sameContent(a) {
				key++
				at, taken = seen[key]
			}
			if !taken {
				seen[key] = len(all)
				all = append(all, *a)
			}
		}
	}
	return all
}

func (a *Artifact) sameContent(b *Artifact) bool {
	return a.URI == b.URI && a.Kind == b.Kind && a.SHA256 == b.SHA256
}
