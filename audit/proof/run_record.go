package proof

import (
	"fmt"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Record is an event of a run, as it was recorded. Its three digests are ignored: a proof works
// them out from the rest.
type Record contract.Recorded

// RecordOf returns the record in an answer of the API. The payload must have its stored bytes.
func RecordOf(m *runlogv1.EventRecord) (r Record, err error) {
	e := (*contract.Recorded)(&r)
	if !e.Take(m) {
		return r, fmt.Errorf("proof: runSeq %d: its payload, contract, id, numbers, times or digests cannot be those of a record", m.GetRunSeq())
	}
	for i := range sparse {
		if f := &sparse[i]; r.Absent&f.Absent != 0 {
			*f.Text(e) = ""
		}
	}
	return r, nil
}

// sparse are the fields that a sparse event may leave out.
var sparse = func() (some []contract.Field) {
	for _, f := range contract.Fields() {
		if f.Absent != 0 {
			some = append(some, f)
		}
	}
	return some
}()

// Chain returns the chain digest of the record after another, whose chain digest is before; zeros:
// it is the first of its run (APP-11). It is computed from the fields.
func (r *Record) Chain(before contract.Digest) contract.Digest {
	_, record := r.Digests(r.PayloadSalt, r.AppendedBy, r.Original)
	return contract.ChainDigest(before, record, r.RunSeq, r.PersistedAt)
}
