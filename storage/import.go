package storage

import (
	"fmt"

	"runlog/storage/internal/record"
)

// assign gives the events of an import, as classify found them, the runSeq that they bring along,
// or says why they cannot have it: runSeq rises inside of a run, also for what is appended later,
// and what is stored already is stored as it is given. Their persistedAt is that of all events of
// the proposal (APP-13), so windows that are closed stay as they are (READ-4).
func (a *applyTx) assign(r *run, m *record.AppendCommand, results []EventResult) (why, err error) {
	if len(m.Assigned) != len(results)*record.AssignedSize {
		return nil, fmt.Errorf("%w: %d bytes of what was assigned to %d events",
			record.ErrCommand, len(m.Assigned), len(results))
	}
	before := r.head.LastSeq
	fresh := make(map[record.KeyHash]int, len(results))
	for i := range results {
		res := &results[i]
		h := record.ParseHeader(m.Headers[i*record.HeaderSize:])
		given := m.AssignedSeq(i)
		refuse := func(field string) (error, error) {
			return &ImportError{RunID: string(m.RunID), Index: i, Field: field, Given: given, Before: before}, nil
		}
		if res.Duplicate {
			if at, ok := fresh[h.Key]; ok {
				// It repeats one of this request (IDM-8), of which classify could not know what it
				// keeps.
				res.RunSeq = results[at].RunSeq
			}
			if res.RunSeq != given || res.EventID != h.EventID || !res.SameContent {
				return refuse("idempotencyKey")
			}
			continue
		}
		if given <= before {
			return refuse("runSeq")
		}
		res.RunSeq = given
		before, fresh[h.Key] = given, i
	}
	return nil, nil
}
