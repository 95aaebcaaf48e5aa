package run

import (
	"bytes"
	"testing"
)

// TestEqualSnapshotsAreStoredEqual: however a run was folded, the same bytes are stored of it, so
// that most runs are compared by them.
func TestEqualSnapshotsAreStoredEqual(t *testing.T) {
	records := plannedRun(500)
	want := ReduceAll(nil, records).MarshalStored()
	var s *Snapshot
	var e Encoder
	for len(records) > 0 {
		n := min(1+len(records)/7, len(records))
		s, records = ReduceAll(s, records[:n]), records[n:]
		again, err := UnmarshalStored(e.Append(nil, s))
		if err != nil {
			t.Fatal(err)
		}
		s = again
	}
	if !bytes.Equal(e.Append(nil, s), want) {
		t.Error("stored in other bytes")
	}
}
