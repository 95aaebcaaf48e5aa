package storage

import (
	"errors"
	"fmt"
	"iter"

	"runlog/proto/contract"
	"runlog/storage/internal/overlay"
	"runlog/storage/internal/read"
	"runlog/storage/internal/record"
	"runlog/storage/table"
)

// Tx is what a machine sees of the store while it applies an operation: the machine's own tables,
// as earlier operations of the command and of the proposal left them, and the runs. Every write
// enters the rolling hash. The Tx is good until Machine.Apply returns.
//
// An error of a Tx is final: the node stops, whatever the machine returns.
type Tx struct {
	a   *applyTx
	m   *registered
	err error // the first
}

// Stamp is persistedAt of the proposal, in nanoseconds since 1970: the only clock of a machine. It
// strictly increases from proposal to proposal (APP-5).
func (tx *Tx) Stamp() int64 { return tx.a.stamp }

// Position of the proposal.
func (tx *Tx) Position() Position { return tx.a.position }

// fail notes an error after which the node must stop.
func (tx *Tx) fail(err error) error {
	if tx.err == nil {
		tx.err = err
	}
	return err
}

// owns notes the use of a key that is in none of the machine's tables.
func (tx *Tx) owns(key []byte) bool {
	if _, ok := tx.m.table(key); !ok {
		_ = tx.fail(fmt.Errorf("%w: %q, %v", errOutside, key, tx.m))
		return false
	}
	return true
}

// Get implements table.Reader.
func (tx *Tx) Get(key []byte) ([]byte, error) {
	if !tx.owns(key) {
		return nil, tx.err
	}
	if row, ok := tx.a.writes.Get(key); ok {
		if row.Deleted {
			return nil, nil
		}
		return record.CloneValue(row.Value), nil
	}
	row, err := tx.a.committed(key)
	if err != nil {
		return nil, tx.fail(fmt.Errorf("storage: read row %q: %w", key, err))
	}
	if row == nil {
		return nil, nil
	}
	return record.CloneValue(row), nil
}

// committed returns a row of a machine as it was before the proposal, nil when there is none. It
// must not be changed.
func (a *applyTx) committed(key []byte) ([]byte, error) {
	row, known := a.s.recent.Get(key)
	if known {
		return row, nil
	}
	found, err := a.rows.Find(key)
	if err != nil {
		return nil, err
	}
	if found != nil {
		row = record.CloneValue(found)
	}
	a.s.recent.Put(key, row)
	return row, nil
}

// Set writes a row. The caller may use key and value again.
func (tx *Tx) Set(key, value []byte) {
	if tx.owns(key) {
		tx.a.writes.Set(key, value)
	}
}

// Delete deletes a row, whether it exists or not.
func (tx *Tx) Delete(key []byte) {
	if tx.owns(key) {
		tx.a.writes.Delete(key)
	}
}

// Scan implements table.Reader. What is written meanwhile is not seen.
func (tx *Tx) Scan(from, to []byte) iter.Seq2[table.Row, error] { return tx.scan(from, to, false) }

// ScanDown implements table.Reader.
func (tx *Tx) ScanDown(from, to []byte) iter.Seq2[table.Row, error] { return tx.scan(from, to, true) }

func (tx *Tx) scan(from, to []byte, down bool) iter.Seq2[table.Row, error] {
	return read.Sequence(func(yield func(table.Row, error) bool) error {
		to, err := tx.m.bound(from, to)
		if err != nil {
			return tx.fail(err)
		}
		if err := overlay.Scan(tx.a.s.db(), from, to, tx.a.writes.Range(from, to), down, rowsTo(yield)); err != nil {
			return tx.fail(err)
		}
		return nil
	})
}

// Run returns a run as earlier operations of the command and of the proposal left it; nil: there is
// none by that name. The caller may change what it returns, but not the metadata in it.
func (tx *Tx) Run(runID string) (*Run, error) {
	r, err := tx.a.activeRun([]byte(runID))
	if err != nil {
		return nil, tx.fail(err)
	}
	if r == nil {
		return nil, nil
	}
	run := read.Named(r.identity)
	run.LastSeq, run.PersistedAt, run.Chain = r.head.LastSeq, r.head.PersistedAt, r.head.Chain
	run.Position = r.head.Position
	run.Fence, run.Statuses = r.head.Fence, r.head.Statuses
	if r.metadata != nil {
		run.Metadata, run.MetadataChanged = record.DecodeMetadata(r.metadata), r.metadata.Said != nil
	}
	return run, nil
}

// SetMetadata replaces the metadata of a run that exists. Readers of the log learn of it (Commit).
// What CreateRun said remains the measure of its repetitions (APP-12).
func (tx *Tx) SetMetadata(runID string, md *Metadata) error {
	a := tx.a
	r, err := a.activeRun([]byte(runID))
	if err == nil && r == nil {
		err = &RunNotFoundError{RunID: runID}
	}
	if err != nil {
		return tx.fail(err)
	}
	next := record.EncodeMetadata(md)
	if have := r.metadata; have.GetCreated() {
		next.Created, next.Said = true, have.Said
		if have.Said == nil {
			next.Said = have
		}
	}
	a.undo.save(r, false)
	a.touch(r)
	r.marked = true
	if err := a.setMetadata(r, next); err != nil {
		return tx.fail(err)
	}
	return nil
}

// Tell tells readers of the log of a run that has no new event (Commit), as SetMetadata does.
func (tx *Tx) Tell(runID string) error {
	a := tx.a
	r, err := a.activeRun([]byte(runID))
	if err == nil && r == nil {
		err = &RunNotFoundError{RunID: runID}
	}
	if err != nil {
		return tx.fail(err)
	}
	a.undo.save(r, false)
	a.touch(r)
	r.marked = true
	return nil
}

// FirstFence is below every fence of a lease of this cluster, and above those of the clusters whose
// backups it continues from. A run that was never leased here has it.
func (tx *Tx) FirstFence() uint64 { return tx.a.previous.FirstFence() }

// SetFence makes fence the run's current one: from here on, appends with another fence are refused
// (QUE-8). A fence only rises. refused is *RunNotFoundError, or *LeaseLostError where fence is not
// above the current one.
func (tx *Tx) SetFence(runID string, fence uint64) (refused, err error) {
	refused, err = tx.a.setFence([]byte(runID), fence)
	if err != nil {
		return nil, tx.fail(err)
	}
	return refused, nil
}

// Settle says which status a run has after its last event, as its snapshot says it (PRJ-17). If
// that is a terminal one, the run has ended, and every Ender is called. refused is
// *RunNotFoundError, *SequenceError where the run has another last event, or *StatusError where the
// types of its events do not allow the status: the snapshot is wrong, which must not stop the
// nodes.
func (tx *Tx) Settle(runID string, lastSeq uint64, status contract.RunStatus) (refused, err error) {
	a := tx.a
	r, err := a.activeRun([]byte(runID))
	switch {
	case err != nil:
		return nil, tx.fail(err)
	case r == nil:
		return &RunNotFoundError{RunID: runID}, nil
	case lastSeq != r.head.LastSeq:
		return &SequenceError{RunID: runID, Expected: lastSeq, Last: r.head.LastSeq}, nil
	case !r.head.Statuses.Has(status):
		return &StatusError{RunID: runID, Status: status}, nil
	}
	a.undo.save(r, false)
	a.touch(r)
	if err := a.setStatuses(r, status.Only()); err != nil {
		return nil, tx.fail(err)
	}
	return nil, nil
}

// setStatuses stores which statuses a run may have. If it has ended by that, or may have, the
// machines that must know are called. None of them knows a run without a fence.
func (a *applyTx) setStatuses(r *run, set contract.Statuses) error {
	before := r.head.Statuses
	r.head.Statuses = set
	tell := Ender.Ended
	switch {
	case r.head.Fence == 0:
		return nil
	case set.Ended() && !before.Ended():
	case set.Unsettled() && !before.Unsettled():
		tell = Ender.Unsettled
	default:
		return nil
	}
	for _, m := range a.s.enders {
		tx := &Tx{a: a, m: m}
		if err := errors.Join(tell(m.Machine.(Ender), tx, r.identity.RunId), tx.err); err != nil {
			return fmt.Errorf("end of run %q: %w", r.identity.RunId, err)
		}
	}
	return nil
}

// notice calls every Noticer with the new events of a request of which it learns, except for one
// that is no valid transition where it stands: it changes nothing (PRJ-17).
func (a *applyTx) notice(r *run, m *record.AppendCommand, isNew func(index int) bool) error {
	set, changes := r.head.Statuses, m.Changes
	for i, n := range m.Notices.All {
		if !isNew(i) {
			continue
		}
		var before record.Changes
		before, changes = changes.Before(i)
		set = before.After(set, isNew)
		if t := changes.TypeOf(i); t != "" && !set.Allow(t) {
			continue
		}
		for _, m := range a.s.noticers {
			tx := &Tx{a: a, m: m}
			if err := errors.Join(m.Machine.(Noticer).Noticed(tx, r.identity.RunId, n), tx.err); err != nil {
				return fmt.Errorf("notice %d of run %q: %w", n, r.identity.RunId, err)
			}
		}
	}
	return nil
}

// operate has a machine apply an operation.
func (a *applyTx) operate(m *registered, op []byte, answer *Answer) (fatal error) {
	tx := &Tx{a: a, m: m}
	answer.Reply, answer.Err, fatal = m.Apply(tx, op)
	if tx.err != nil {
		fatal = tx.err
	}
	if errors.Is(fatal, ErrUnknownOperation) {
		return a.unknown(m.Kind())
	}
	return fatal
}
