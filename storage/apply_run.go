package storage

import (
	"encoding/binary"
	"fmt"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// newRun returns the run that m makes, for decide to look at. createRun writes it.
func (a *applyTx) newRun(m *record.AppendCommand) *run {
	return &run{
		ref: record.RunRef{Bucket: uint16(m.Scope.Bucket()), No: a.nextRun}, tenant: record.HashTenant(m.Scope.Tenant),
		identity: &recordv1.RunIdentity{
			RunId: string(m.RunID), Scope: m.Scope.Message(), Plan: m.Plan.Message(),
			CreatedAt: a.stamp, CreatedPosition: uint64(a.position), Imported: m.Imports(),
		},
		head:     record.Head{Statuses: contract.StatusPending.Only()},
		receipts: map[record.KeyPrefix]struct{}{},
	}
}

// createRun writes the rows of a new run and adds it to the active runs.
func (a *applyTx) createRun(r *run, create *recordv1.RunMetadata) error {
	a.nextRun++
	a.s.active.add(r)
	a.touch(r)
	r.marked = true
	row, err := record.Deterministic.Marshal(r.identity)
	if err != nil {
		return err
	}
	if err := a.batch.Set(keys.AppendIdentity(nil, r.ref), row, nil); err != nil {
		return err
	}
	if err := a.batch.Set(keys.AppendRunID(nil, r.identity.RunId), r.ref.Append(nil), nil); err != nil {
		return err
	}
	bucket := binary.BigEndian.AppendUint16(nil, r.ref.Bucket)
	if err := a.batch.Set(keys.AppendBucket(nil, r.ref.No), bucket, nil); err != nil {
		return err
	}
	if create == nil {
		return nil
	}
	return a.setMetadata(r, create)
}

// adoptMetadata takes the metadata of the first CreateRun of a run that came to be by appends
// (APP-12).
func (a *applyTx) adoptMetadata(r *run, create *recordv1.RunMetadata) error {
	next, _ := record.Adopt(r.metadata, create)
	if next == r.metadata {
		return nil
	}
	a.undo.save(r, false)
	a.touch(r)
	r.marked = true
	return a.setMetadata(r, next)
}

func (a *applyTx) setMetadata(r *run, m *recordv1.RunMetadata) error {
	r.metadata = m
	a.s.active.resize(r)
	row, err := record.Deterministic.Marshal(m)
	if err != nil {
		return err
	}
	key := keys.AppendMetadata(nil, r.ref)
	a.writes.Note(key, row)
	return a.batch.Set(key, row, nil)
}

// setFence makes fence the run's current one: from here on, requests with another fence are refused
// (QUE-8). A fence only rises, so a lease that ended is fenced off by a number that no caller has.
// why is *RunNotFoundError, or *LeaseLostError where fence is not above the current one.
func (a *applyTx) setFence(runID []byte, fence uint64) (why, err error) {
	r, err := a.activeRun(runID)
	if err != nil {
		return nil, err
	}
	switch {
	case r == nil:
		return &RunNotFoundError{RunID: string(runID)}, nil
	case fence <= r.head.Fence:
		return &LeaseLostError{RunID: string(runID), Given: fence, Current: r.head.Fence}, nil
	}
	a.undo.save(r, false)
	r.head.Fence = fence
	a.touch(r)
	return nil, nil
}

// activeRun returns a run from memory, else from disk; nil: no run has this id.
func (a *applyTx) activeRun(runID []byte) (*run, error) {
	if r := a.s.active.get(runID); r != nil {
		return r, nil
	}
	ref, found, err := a.rows.Ref(string(runID))
	if err != nil || !found {
		return nil, err
	}
	r := &run{ref: ref}
	if r.identity, err = a.rows.Identity(ref); err != nil {
		return nil, err
	}
	r.tenant = record.HashTenant(r.identity.Scope.GetTenantId())
	if r.head, err = a.rows.Head(ref); err != nil {
		return nil, err
	}
	r.head.Fence = a.previous.Fence(r.head.Fence)
	if r.metadata, err = a.rows.Metadata(ref); err != nil {
		return nil, err
	}
	a.s.active.add(r)
	return r, nil
}

// runOf returns the run with a name in keys, which exists since an earlier proposal.
func (a *applyTx) runOf(ref record.RunRef) (*run, error) {
	id, err := a.rows.Identity(ref)
	if err != nil {
		return nil, err
	}
	r, err := a.activeRun([]byte(id.RunId))
	if err == nil && r == nil {
		err = fmt.Errorf("%w: run %d is not found by its id %q", record.ErrRow, ref.No, id.RunId)
	}
	return r, err
}

// index is called before the keys of a run are looked up on disk, asked of them. Once all its
// lookups have cost about as much as loading, it loads the run's receipts into memory. Those of a
// run with more than maxIndexed events stay on disk.
func (a *applyTx) index(r *run, asked int) error {
	r.asked += asked
	if r.head.LastSeq > maxIndexed || r.asked < indexAfter || uint64(r.asked) < r.head.LastSeq/indexShare {
		return nil
	}
	receipts := make(map[record.KeyPrefix]struct{}, r.head.LastSeq)
	if err := a.rows.Prefixes(r.ref, func(p record.KeyPrefix) { receipts[p] = struct{}{} }); err != nil {
		return err
	}
	if r.touched {
		// The receipts of this proposal are not on disk yet.
		a.pending.of(r.ref.No, func(key *record.KeyHash) { receipts[key.Prefix()] = struct{}{} })
	}
	a.s.active.index(r, receipts)
	return nil
}
