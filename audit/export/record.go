package export

import (
	"errors"
	"fmt"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// ErrRecord means that a node sent a record that it could not have stored.
var ErrRecord = errors.New("export: undecodable record")

// Record is a recorded event with all fields of a file. Fields that a sparse event omitted are
// filled in from its run; Absent names them.
type Record contract.Recorded

// Tally counts the records of a window and works out their digest.
type Tally struct {
	Count  uint64
	Digest contract.Digest
}

// Add takes the next record in commit order.
func (t *Tally) Add(r *Record) {
	t.Count++
	t.Digest = contract.WindowDigest(t.Digest, &r.Event, r.RecordDigest, r.RunSeq, r.PersistedAt, r.ChainDigest)
}

// Take reads a record as a node sends it, with its payload as JSON bytes. r shares its texts and
// its payload with m. Errors are ErrRecord.
func (r *Record) Take(m *runlogv1.EventRecord) error {
	if !(*contract.Recorded)(r).Take(m) {
		return fmt.Errorf("%w: run %q, runSeq %d: its payload, contract, id, numbers, times, digests or what it has inherited",
			ErrRecord, m.GetRunId(), m.GetRunSeq())
	}
	return nil
}
