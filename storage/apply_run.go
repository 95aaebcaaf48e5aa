package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
)

// newRun is a run as it will be if its first request is stored.
func (a *applyTx) newRun(m *appendCommand) *run {
	createdAt := a.stamp
	if m.imports() {
		createdAt = parseAssigned(m.assigned).PersistedAt
	}
	return &run{
		no: a.nextRun, tenant: hashTenant(m.scope.tenant),
		identity: &recordv1.RunIdentity{
			RunId: string(m.runID), Scope: m.scope.message(), Plan: m.plan.message(),
			CreatedAt: createdAt, CreatedPosition: uint64(a.position), Imported: m.imports(),
		},
		receipts: map[keyPrefix]struct{}{},
	}
}

// createRun makes a run durable and known.
func (a *applyTx) createRun(r *run, create *recordv1.RunMetadata) error {
	a.nextRun++
	a.s.active.add(r)
	a.touch(r)
	r.marked = true
	row, err := deterministic.Marshal(r.identity)
	if err != nil {
		return err
	}
	if err := a.batch.Set(keys.AppendIdentity(nil, r.no), row, nil); err != nil {
		return err
	}
	no := binary.BigEndian.AppendUint64(nil, r.no)
	if err := a.batch.Set(keys.AppendRunNo(nil, r.identity.RunId), no, nil); err != nil {
		return err
	}
	if create == nil {
		return nil
	}
	return a.setMetadata(r, create)
}

func (a *applyTx) setMetadata(r *run, m *recordv1.RunMetadata) error {
	r.metadata = m
	a.s.active.resize(r)
	row, err := deterministic.Marshal(m)
	if err != nil {
		return err
	}
	key := keys.AppendMetadata(nil, r.no)
	a.writes.Note(key, row)
	return a.batch.Set(key, row, nil)
}

// activeRun returns a run out of memory, or off the disk; nil when there is none by that name.
func (a *applyTx) activeRun(runID []byte) (*run, error) {
	if r := a.s.active.get(runID); r != nil {
		return r, nil
	}
	no, found, err := a.rows.runNo(string(runID))
	if err != nil || !found {
		return nil, err
	}
	r := &run{no: no}
	if r.identity, err = a.rows.identity(no); err != nil {
		return nil, err
	}
	r.tenant = hashTenant(r.identity.Scope.GetTenantId())
	if r.head, err = a.rows.head(no); err != nil {
		return nil, err
	}
	if r.metadata, err = a.rows.metadata(no); err != nil {
		return nil, err
	}
	a.s.active.add(r)
	return r, nil
}

// index loads the receipts of a run about which so many keys are asked, once it has been asked for
// so many that to look each of them up costs about as much; never those of a run with more than
// maxIndexed.
func (a *applyTx) index(r *run, asked int) (err error) {
	r.asked += asked
	if r.head.lastSeq > maxIndexed || r.asked < indexAfter || uint64(r.asked) < r.head.lastSeq/indexShare {
		return nil
	}
	prefix := keys.ReceiptPrefix(r.no)
	it, err := a.s.db().NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.ReceiptsEnd(r.no)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	receipts := make(map[keyPrefix]struct{}, r.head.lastSeq)
	for it.First(); it.Valid(); it.Next() {
		hash := bytes.TrimPrefix(it.Key(), prefix)
		if len(hash) != len(keyHash{}) {
			return fmt.Errorf("%w: receipt key of %d bytes", errRow, len(it.Key()))
		}
		receipts[keyPrefix(hash[:16])] = struct{}{}
	}
	if err := it.Error(); err != nil {
		return err
	}
	if r.touched {
		// This proposal's own are not on the disk yet.
		a.pending.of(r.no, func(key *keyHash) { receipts[key.prefix()] = struct{}{} })
	}
	a.s.active.index(r, receipts)
	return nil
}
