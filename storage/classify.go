package storage

import (
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// classify finds the duplicates of a request, also those inside of it (IDM-6, IDM-8), and gives the
// others the runSeq values that they get if the request is stored (APP-1, APP-3).
func (a *applyTx) classify(r *run, m *record.AppendCommand, o *Outcome) (fresh int, err error) {
	n := len(m.Headers) / record.HeaderSize
	if r.unindexed() {
		if err := a.index(r, n); err != nil {
			return 0, err
		}
	}
	results := make([]EventResult, n)
	// What a request said of a key first: where, and the event that is stored under it, or will be.
	type first struct {
		index  int
		stored record.Fingerprint
	}
	var seen map[record.KeyHash]first
	if n > 1 {
		seen = make(map[record.KeyHash]first, n)
	}
	for i := range results {
		h := record.ParseHeader(m.Headers[i*record.HeaderSize:])
		given := h.Fingerprint(m.Imports())
		if f, ok := seen[h.Key]; ok {
			results[i] = results[f.index]
			results[i].Duplicate, results[i].SameContent = true, f.stored.Same(given)
			continue
		}
		stored, ok, err := a.receipt(r, &h.Key)
		if err != nil {
			return 0, err
		}
		known := given
		if ok {
			known = record.Fingerprint{Content: stored.Content, Record: stored.Record}
		}
		if seen != nil {
			seen[h.Key] = first{i, known}
		}
		if ok {
			results[i] = EventResult{
				EventID: stored.EventID, RunSeq: stored.RunSeq, PersistedAt: stored.PersistedAt,
				Duplicate: true, SameContent: known.Same(given),
			}
			continue
		}
		fresh++
		results[i] = EventResult{EventID: h.EventID, RunSeq: r.head.LastSeq + uint64(fresh), PersistedAt: a.stamp}
	}
	o.Results = results
	return fresh, nil
}

// receipt looks a key up. A key that the run's memory does not know is new without a read (D6).
func (a *applyTx) receipt(r *run, key *record.KeyHash) (record.Receipt, bool, error) {
	if _, ok := r.receipts[key.Prefix()]; !ok && !r.unindexed() {
		return record.Receipt{}, false, nil
	}
	if rc, ok := a.pending.find(r.ref.No, key); ok {
		return rc, true, nil
	}
	a.row = keys.AppendReceipt(a.row[:0], r.ref, key[:])
	row, err := a.rows.Find(a.row)
	if err != nil || row == nil {
		return record.Receipt{}, false, err
	}
	rc, err := record.ParseReceipt(row)
	return rc, err == nil, err
}
