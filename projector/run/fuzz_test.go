package run

import (
	"bytes"
	"slices"
	"testing"

	"runlog/proto/contract"
)

// FuzzReduce folds one event of any known type, with any payload, onto a run in any of its
// statuses, once with the step in each of its: nothing panics, what is folded can be put away and
// read back, and the rules that hold for every step hold.
func FuzzReduce(f *testing.F) {
	signals := []string{contract.SignalAccepted, contract.SignalRejected}
	types := slices.Concat(signals, runEventTypes, stepEventTypes)
	for i, eventType := range types {
		f.Add(byte(i), byte(i), uint32(1+i%3), []byte(`{"reason":"`+eventType+`"}`))
	}
	f.Add(byte(0), byte(2), uint32(1), []byte(`{"signalId":"s","triggeredBy":"jane","decidedAt":"2026-02-11T10:30:00Z"}`))
	f.Add(byte(4), byte(0), uint32(1), []byte(`{"engineRunRef":"r","startedAt":"2026-02-11T10:30:00Z",
		"planRef":{"uri":"u","sizeBytes":1e3}}`))
	f.Add(byte(13), byte(1), uint32(2), []byte(`{"artifactRefs":[{"uri":"u","kind":"\ud800"}],"completedAt":null}`))

	var bases []*Snapshot
	for status := Pending; status <= Cancelled; status++ {
		for step := StepPending; step <= StepSkipped; step++ {
			tape := runIn(status)
			for _, eventType := range stepPath[step] {
				tape.add(eventType, "build", 2, `{}`)
			}
			bases = append(bases, ReduceAll(nil, tape.records))
		}
	}
	f.Fuzz(func(t *testing.T, typeIndex, baseIndex byte, attempt uint32, payload []byte) {
		eventType := types[int(typeIndex)%len(types)]
		base := bases[int(baseIndex)%len(bases)]
		before := base.MarshalStored()
		r := record(base.LastEventSeq+1, eventType, "build", attempt, string(payload))
		if contract.ScopeOf(eventType) == contract.ScopeRun {
			r.StepID = ""
		}
		s := Reduce(base, &r)
		checkStep(t, base, s, &r)
		if !bytes.Equal(before, base.MarshalStored()) {
			t.Fatal("the input has changed")
		}
		back, err := UnmarshalStored(s.MarshalStored())
		if err != nil {
			t.Fatalf("%v: %s", err, s.MarshalStored())
		}
		if !bytes.Equal(back.MarshalStored(), s.MarshalStored()) {
			t.Fatalf("read back\n%s\nwas\n%s", back.MarshalStored(), s.MarshalStored())
		}
	})
}

// FuzzParseSnapshot: what is no canonical form is refused, and never panics.
func FuzzParseSnapshot(f *testing.F) {
	f.Add(fullSnapshot(f).CanonicalJSON())
	f.Add(ReduceAll(nil, plannedRun(1)).CanonicalJSON())
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSnapshot(data)
		if err != nil {
			return
		}
		if !bytes.Equal(s.CanonicalJSON(), data) {
			t.Fatalf("%s\nwas %s", s.CanonicalJSON(), data)
		}
		for i := range stepEventTypes {
			r := record(s.LastEventSeq+1, stepEventTypes[i], "build", 2, `{}`)
			Reduce(s, &r)
		}
	})
}
