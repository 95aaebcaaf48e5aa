package storage

import (
	"runlog/proto/contract"
	"runlog/storage/internal/keys"
)

// classify finds the duplicates of a request, also those inside of it (IDM-6, IDM-8), and gives the
// others the runSeq values that they get if the request is stored (APP-1, APP-3).
func (a *applyTx) classify(r *run, m *appendCommand, o *Outcome) (fresh int, err error) {
	n := len(m.headers) / headerSize
	if r.unindexed() {
		if err := a.index(r, n); err != nil {
			return 0, err
		}
	}
	results := make([]EventResult, n)
	// What a request said of a key first: where, and the event that is stored under it, or will be.
	type first struct {
		index  int
		stored fingerprint
	}
	var seen map[keyHash]first
	if n > 1 {
		seen = make(map[keyHash]first, n)
	}
	for i := range results {
		h := parseHeader(m.headers[i*headerSize:])
		given := h.fingerprint(m.imports())
		if f, ok := seen[h.key]; ok {
			results[i] = results[f.index]
			results[i].Duplicate, results[i].SameContent = true, f.stored.same(given)
			continue
		}
		stored, ok, err := a.receipt(r, &h.key)
		if err != nil {
			return 0, err
		}
		known := given
		if ok {
			known = fingerprint{stored.content, stored.record}
		}
		if seen != nil {
			seen[h.key] = first{i, known}
		}
		if ok {
			results[i] = EventResult{
				EventID: stored.eventID, RunSeq: stored.runSeq, PersistedAt: stored.persistedAt,
				Duplicate: true, SameContent: known.same(given),
			}
			continue
		}
		fresh++
		results[i] = EventResult{EventID: h.eventID, RunSeq: r.head.lastSeq + uint64(fresh), PersistedAt: a.stamp}
	}
	o.Results = results
	return fresh, nil
}

type header struct {
	key     keyHash
	record  contract.Digest
	eventID contract.EventID
	content [8]byte
}

func parseHeader(b []byte) header {
	return header{
		key:     keyHash(b[0:32]),
		record:  contract.Digest(b[32:64]),
		eventID: contract.EventID(b[64:80]),
		content: [8]byte(b[80:88]),
	}
}

// fingerprint is what an event says, as far as apply tells two of one key apart.
type fingerprint struct {
	content [8]byte
	record  recordPrefix // zero unless imported
}

func (h *header) fingerprint(imported bool) fingerprint {
	s := fingerprint{content: h.content}
	if imported {
		s.record = recordPrefix(h.record[:])
	}
	return s
}

// same compares whole records where both were imported, else what IDM-7 compares.
func (s fingerprint) same(t fingerprint) bool {
	var none recordPrefix
	if s.record != none && t.record != none {
		return s.record == t.record
	}
	return s.content == t.content
}

// receipt looks a key up. A key that the run's memory does not know is new without a read (D6).
func (a *applyTx) receipt(r *run, key *keyHash) (receipt, bool, error) {
	if _, ok := r.receipts[key.prefix()]; !ok && !r.unindexed() {
		return receipt{}, false, nil
	}
	if rc, ok := a.pending.find(r.ref.No, key); ok {
		return rc, true, nil
	}
	a.row = keys.AppendReceipt(a.row[:0], r.ref, key[:])
	row, err := a.rows.find(a.row)
	if err != nil || row == nil {
		return receipt{}, false, err
	}
	rc, err := parseReceipt(row)
	return rc, err == nil, err
}
