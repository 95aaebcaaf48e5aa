package storage

import "runlog/storage/internal/record"

// classify finds the duplicates of a request, also those inside of it (IDM-6, IDM-8), and gives the
// others the runSeq values that they get if the request is stored (APP-1, APP-3). It writes the
// attempts of events that recur (IDM-10). why is an *AttemptError.
func (a *applyTx) classify(r *run, m *record.AppendCommand, o *Outcome) (fresh int, why, err error) {
	n := len(m.Headers) / record.HeaderSize
	if r.unindexed() {
		if err := a.index(r, n); err != nil {
			return 0, nil, err
		}
	}
	recurrences := m.Recurrences
	results := make([]EventResult, n)
	// first is the first event of the request with a key: its index, and the fingerprint of the
	// event that is stored under the key, if there is one.
	type first struct {
		index  int
		stored bool
		record.Fingerprint
	}
	// Only duplicates need theirs.
	fingerprint := func(i int) record.Fingerprint {
		h := record.ParseHeader(m.Headers[i*record.HeaderSize:])
		return m.Fingerprint(i, &h, &a.s.keyer)
	}
	var seen map[record.KeyHash]first
	if n > 1 {
		seen = make(map[record.KeyHash]first, n)
	}
	for i := range results {
		h := record.ParseHeader(m.Headers[i*record.HeaderSize:])
		rec, recurs := recurrences.Take(i)
		if recurs && rec.Assigned {
			var at record.Attempted
			_, repeated := seen[h.Key]
			if at, why, err = a.assignedAttempt(r, &rec, h.Key, repeated); why != nil || err != nil {
				return 0, why, err
			}
			h.Key, rec.Attempt = at.Key, at.Attempt
		}
		if f, ok := seen[h.Key]; ok {
			results[i] = results[f.index]
			if !f.stored {
				f.Fingerprint = fingerprint(f.index)
			}
			results[i].Duplicate, results[i].SameContent = true, f.Same(fingerprint(i))
			results[i].Attempt = rec.AssignedAttempt()
			continue
		}
		stored, ok, err := a.receipt(r, &h.Key)
		if err != nil {
			return 0, nil, err
		}
		if seen != nil {
			seen[h.Key] = first{i, ok, stored.Fingerprint}
		}
		if ok {
			results[i] = EventResult{
				EventID: stored.EventID, RunSeq: stored.RunSeq, PersistedAt: stored.PersistedAt,
				Duplicate: true, SameContent: stored.Same(fingerprint(i)), Attempt: rec.AssignedAttempt(),
			}
			continue
		}
		fresh++
		results[i] = EventResult{
			EventID: h.EventID, RunSeq: r.head.LastSeq + uint64(fresh), PersistedAt: a.stamp,
			Attempt: rec.AssignedAttempt(),
		}
		if recurs {
			if err := a.noteAttempt(r, &rec, h.Key); err != nil {
				return 0, nil, err
			}
		}
	}
	o.Results = results
	return fresh, nil, nil
}

// receipt looks a key up. A key that the run's memory does not know is new without a read (D6).
func (a *applyTx) receipt(r *run, key *record.KeyHash) (record.Receipt, bool, error) {
	if _, ok := r.receipts[key.Prefix()]; !ok && !r.unindexed() {
		return record.Receipt{}, false, nil
	}
	if rc, ok := a.pending.find(r.ref.No, key); ok {
		return rc, true, nil
	}
	rc, ok, err := a.rows.PlainReceipt(r.ref, key)
	if ok || err != nil || r.head.Packed == 0 {
		return rc, ok, err
	}
	return a.rows.PackedReceipt(r.ref, key.Prefix(), r.head.Packed)
}
