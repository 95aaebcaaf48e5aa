package storage

import (
	"fmt"

	"runlog/storage/internal/record"
)

// assign gives the events of an import, as classify found them, the runSeq and the persistedAt that
// they bring along, or says why they cannot have them: runSeq rises and persistedAt does not fall
// inside of a run, also for what is appended later, and what is stored already is stored as it is
// given.
//
// In the commit order, imported events lie where they were imported, whatever their persistedAt:
// windows that are closed stay as they are (READ-4).
func (a *applyTx) assign(r *run, m *record.AppendCommand, results []EventResult) (why, err error) {
	if len(m.Assigned) != len(results)*record.AssignedSize {
		return nil, fmt.Errorf("%w: %d bytes of what was assigned to %d events", record.ErrCommand, len(m.Assigned), len(results))
	}
	before := Assigned{RunSeq: r.head.LastSeq, PersistedAt: r.head.PersistedAt}
	fresh := make(map[record.KeyHash]int, len(results))
	for i := range results {
		res := &results[i]
		h := record.ParseHeader(m.Headers[i*record.HeaderSize:])
		given := record.ParseAssigned(m.Assigned[i*record.AssignedSize:])
		refuse := func(field string) (error, error) {
			return &ImportError{RunID: string(m.RunID), Index: i, Field: field, Given: given, Before: before}, nil
		}
		if res.Duplicate {
			if at, ok := fresh[h.Key]; ok {
				// It repeats one of this request (IDM-8), of which classify could not know what it
				// keeps.
				res.RunSeq, res.PersistedAt = results[at].RunSeq, results[at].PersistedAt
			}
			if res.RunSeq != given.RunSeq || res.PersistedAt != given.PersistedAt || res.EventID != h.EventID || !res.SameContent {
				return refuse("idempotencyKey")
			}
			continue
		}
		switch {
		case given.RunSeq <= before.RunSeq:
			return refuse("runSeq")
		case given.PersistedAt < before.PersistedAt || given.PersistedAt >= a.stamp:
			return refuse("persistedAt")
		}
		res.RunSeq, res.PersistedAt = given.RunSeq, given.PersistedAt
		before, fresh[h.Key] = given, i
	}
	return nil, nil
}
