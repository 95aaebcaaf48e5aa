package storage

import (
	"encoding/binary"
	"fmt"
)

// assignedSize is runSeq (8) and persistedAt (8).
const assignedSize = 16

func (g *Assigned) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, g.RunSeq)
	return binary.BigEndian.AppendUint64(dst, uint64(g.PersistedAt))
}

func parseAssigned(b []byte) Assigned {
	return Assigned{RunSeq: binary.BigEndian.Uint64(b), PersistedAt: int64(binary.BigEndian.Uint64(b[8:]))}
}

// imports says whether the events keep what another authority had assigned to them.
func (c *appendCommand) imports() bool { return len(c.assigned) > 0 }

// assign gives the events of an import, as classify found them, the runSeq and the persistedAt that
// they bring along, or says why they cannot have them: runSeq rises and persistedAt does not fall
// inside of a run, also for what is appended later, and what is stored already is stored as it is
// given.
//
// In the commit order, imported events lie where they were imported, whatever their persistedAt:
// windows that are closed stay as they are (READ-4).
func (a *applyTx) assign(r *run, m *appendCommand, results []EventResult) (why, err error) {
	if len(m.assigned) != len(results)*assignedSize {
		return nil, fmt.Errorf("%w: %d bytes of what was assigned to %d events", errCommand, len(m.assigned), len(results))
	}
	before := Assigned{RunSeq: r.head.lastSeq, PersistedAt: r.head.persistedAt}
	fresh := make(map[keyHash]int, len(results))
	for i := range results {
		res := &results[i]
		h := parseHeader(m.headers[i*headerSize:])
		given := parseAssigned(m.assigned[i*assignedSize:])
		refuse := func(field string) (error, error) {
			return &ImportError{RunID: string(m.runID), Index: i, Field: field, Given: given, Before: before}, nil
		}
		if res.Duplicate {
			if at, ok := fresh[h.key]; ok {
				// It repeats one of this request (IDM-8), of which classify could not know what it
				// keeps.
				res.RunSeq, res.PersistedAt = results[at].RunSeq, results[at].PersistedAt
			}
			if res.RunSeq != given.RunSeq || res.PersistedAt != given.PersistedAt || res.EventID != h.eventID || !res.SameContent {
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
		before, fresh[h.key] = given, i
	}
	return nil, nil
}
