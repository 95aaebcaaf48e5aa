// Package wiretest applies what differs between two snapshots, so that tests can compare the
// result.
package wiretest

import (
	"slices"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// TB is a test: that of package testing, or that of rapid.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Entries is how many entries the lists of a page have.
func Entries(m *runlogv1.DiffRunResponse) int {
	return len(m.Steps) + len(m.Attempts) + len(m.Artifacts) + len(m.Signals) + len(m.PendingSignals) + len(m.SettledSignals) + len(m.Inconsistencies)
}

// AddPage adds the lists of a page to those of the pages before.
func AddPage(whole, page *runlogv1.DiffRunResponse) {
	whole.Steps, whole.Attempts = append(whole.Steps, page.Steps...), append(whole.Attempts, page.Attempts...)
	whole.Artifacts, whole.Signals = append(whole.Artifacts, page.Artifacts...), append(whole.Signals, page.Signals...)
	whole.PendingSignals = append(whole.PendingSignals, page.PendingSignals...)
	whole.SettledSignals = append(whole.SettledSignals, page.SettledSignals...)
	whole.Inconsistencies = append(whole.Inconsistencies, page.Inconsistencies...)
}

// Applied applies what differs to the snapshot of the first moment, as a reader may do it, and
// returns that of the second one.
func Applied(t TB, s *runlogv1.RunSnapshot, d *runlogv1.DiffRunResponse) *runlogv1.RunSnapshot {
	s = proto.CloneOf(s)
	set(t, s, d.To, append(d.Changed, "lastEventSeq", "digest"))
	step := func(id string) *runlogv1.StepSnapshot {
		i := slices.IndexFunc(s.Steps, func(x *runlogv1.StepSnapshot) bool { return x.StepId == id })
		if i < 0 {
			s.Steps, i = append(s.Steps, &runlogv1.StepSnapshot{StepId: id}), len(s.Steps)
		}
		return s.Steps[i]
	}
	for _, x := range d.Steps {
		ApplyStep(t, step(x.StepId), x)
	}
	for _, x := range d.Attempts {
		ApplyStep(t, step(x.StepId), nil, x)
	}
	s.Artifacts = append(s.Artifacts, d.Artifacts...)
	s.Signals = append(s.Signals, d.Signals...)
	s.Signals = s.Signals[max(0, len(s.Signals)-20):]
	s.Inconsistencies = append(s.Inconsistencies, d.Inconsistencies...)
	for _, x := range d.SettledSignals {
		s.PendingSignals = slices.DeleteFunc(s.PendingSignals, func(p *runlogv1.PendingSignal) bool { return proto.Equal(p, x) })
	}
	s.PendingSignals = append(s.PendingSignals, d.PendingSignals...)
	return s
}

// set takes fields over from another message.
func set(t TB, m, from proto.Message, names []string) {
	for _, name := range names {
		f := m.ProtoReflect().Descriptor().Fields().ByJSONName(name)
		if f == nil {
			t.Fatalf("no field %s", name)
		}
		if from.ProtoReflect().Has(f) {
			m.ProtoReflect().Set(f, from.ProtoReflect().Get(f))
		} else {
			m.ProtoReflect().Clear(f)
		}
	}
}

// applyAttempt puts an entry of the earlier attempts at its place.
func applyAttempt(t TB, s *runlogv1.StepSnapshot, d *runlogv1.AttemptDiff) {
	at, index := 0, uint32(0)
	for ; at < len(s.Attempts) && s.Attempts[at].LogicalAttemptId <= d.LogicalAttemptId; at++ {
		if s.Attempts[at].LogicalAttemptId < d.LogicalAttemptId {
			continue
		}
		if index == d.Index {
			break
		}
		index++
	}
	switch {
	case d.From != nil && (at == len(s.Attempts) || !proto.Equal(s.Attempts[at], d.From)):
		t.Fatalf("%v is not at %d of %v", d, at, s.Attempts)
	case d.To == nil:
		s.Attempts = slices.Delete(s.Attempts, at, at+1)
	case d.From == nil:
		s.Attempts = slices.Insert(s.Attempts, at, d.To)
	default:
		s.Attempts[at] = d.To
	}
}

// ApplyStep applies what differs of a step, nil: nothing, and of its earlier attempts.
func ApplyStep(t TB, s *runlogv1.StepSnapshot, d *runlogv1.StepDiff, attempts ...*runlogv1.AttemptDiff) {
	t.Helper()
	if d != nil {
		set(t, s, d.To, d.Changed)
	}
	for _, x := range attempts {
		applyAttempt(t, s, x)
	}
}
