package run

import (
	"crypto/sha256"
	"testing"

	"runlog/proto/contract"
)

// TestWhatIsKeptIsOfOneSnapshotPRJ1: the digest is kept, and neither it nor what others keep goes
// over to a later snapshot.
func TestWhatIsKeptIsOfOneSnapshotPRJ1(t *testing.T) {
	tape := runIn(Running)
	s := ReduceAll(nil, tape.records)
	if s.Encoded() == nil {
		t.Fatal("nothing is kept of a snapshot that was folded")
	}
	s.Encoded().Store(&[]byte{1})
	for range 2 {
		if s.Digest() != sha256.Sum256(s.CanonicalJSON()) {
			t.Fatal("the digest is not that of the canonical form")
		}
	}
	next := Reduce(s, tape.add(contract.StepStarted, "build", 1, `{}`))
	if next.Digest() != sha256.Sum256(next.CanonicalJSON()) {
		t.Error("the digest of the next snapshot is not that of its canonical form")
	}
	if next.Encoded().Load() != nil || s.Encoded().Load() == nil {
		t.Error("what was kept of a snapshot is that of the next one")
	}
	changed := *s
	changed.FailedSteps++
	if changed.Digest() == s.Digest() || changed.Encoded() != nil {
		t.Error("a copy has what was kept of the snapshot")
	}
	if (&Snapshot{}).Encoded() != nil {
		t.Error("something is kept of a snapshot that was not folded")
	}
}
