package storage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"runlog/proto/contract"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// AttemptError says that the attempt which was assigned to an event is not above the highest one of
// its type: another event was stored in the meantime (IDM-10). Assign it again and retry.
type AttemptError struct {
	RunID string
	Index int // of the event in its request
	Given uint32
	Last  uint32 // the highest attempt of the type
}

func (e *AttemptError) Error() string {
	return fmt.Sprintf("event %d of run %q was assigned attempt %d, and the last one is %d", e.Index, e.RunID, e.Given, e.Last)
}

// ErrNoAttempt means that a run has an event with the highest attempt of all, which has no next.
var ErrNoAttempt = errors.New("storage: the run has the highest attempt that an event can have")

// AssignAttempts gives attempts to the events of a request whose producer left them out (IDM-10):
// the attempt of the stored event with the same cause, or else the next one of the type. Apply
// refuses the request with an *AttemptError if the run has changed in the meantime.
func (s *Store) AssignAttempts(a *Append) error {
	rows := record.Rows{Reader: s.db()}
	ref, found, err := rows.Ref(a.RunID)
	if err == nil {
		err = assignAttempts(a, func(key func(record.RunRef) []byte) ([]byte, error) {
			if !found {
				return nil, nil
			}
			return rows.Find(key(ref))
		})
	}
	return errors.Join(err, rows.Close())
}

// assignAttempts reads rows with find, which returns nil where there is none.
func assignAttempts(a *Append, find func(key func(record.RunRef) []byte) ([]byte, error)) error {
	type cause struct {
		typeCode byte
		hash     record.CauseHash
	}
	last, assigned := map[byte]uint32{}, map[cause]uint32{}
	for i := range a.Events {
		e := &a.Events[i]
		if !contract.Recurs(e.Type) {
			continue
		}
		c := cause{byte(contract.TypeCode(e.Type)), record.HashCause(e.Cause())}
		if _, known := last[c.typeCode]; !known {
			row, err := find(func(ref record.RunRef) []byte { return keys.AppendAttempt(nil, ref, c.typeCode) })
			if err != nil {
				return err
			}
			if last[c.typeCode], err = record.ParseAttempt(row); err != nil {
				return err
			}
		}
		if e.AttemptAssigned {
			// An attempt that an event of the request names does not count for its cause: the event
			// may be a duplicate. Apply knows.
			attempt, known := assigned[c]
			if !known {
				row, err := find(func(ref record.RunRef) []byte {
					return append(keys.AppendAttempt(nil, ref, c.typeCode), c.hash[:]...)
				})
				if err != nil {
					return err
				}
				stored, err := record.ParseAttempted(row)
				if err != nil {
					return err
				}
				if attempt = stored.Attempt; attempt == 0 {
					attempt = last[c.typeCode] + 1
				}
			}
			if attempt == 0 {
				return fmt.Errorf("%w: %s of run %q", ErrNoAttempt, e.Type, a.RunID)
			}
			assigned[c] = attempt
			e.SetAttempt(attempt)
		}
		last[c.typeCode] = max(last[c.typeCode], e.LogicalAttemptID)
	}
	return nil
}

// assignedAttempt returns under which key and attempt an event is stored whose attempt the
// authority assigns: those of the stored event with its cause, or else its own. why is an
// *AttemptError where its own attempt is not above the highest of its type. It need not be the
// next: AssignAttempts counts the events before it in the request, and some may be duplicates under
// keys of their own.
func (a *applyTx) assignedAttempt(r *run, rec *record.Recurrence, key record.KeyHash) (_ record.Attempted, why, err error) {
	stored, err := a.attempted(r, rec)
	if err != nil || stored.Attempt != 0 {
		return stored, nil, err
	}
	last, err := a.lastAttempt(r, rec.TypeCode)
	if err != nil {
		return stored, nil, err
	}
	if rec.Attempt <= last {
		return stored, &AttemptError{RunID: r.identity.RunId, Index: int(rec.Index), Given: rec.Attempt, Last: last}, nil
	}
	return record.Attempted{Attempt: rec.Attempt, Key: key}, nil, nil
}

// noteAttempt records the attempt of a new event: as the highest one of its type if it is, and as
// that of its cause if it is the first.
func (a *applyTx) noteAttempt(r *run, rec *record.Recurrence, key record.KeyHash) error {
	last, err := a.lastAttempt(r, rec.TypeCode)
	if err != nil {
		return err
	}
	if rec.Attempt > last {
		a.writes.Set(keys.AppendAttempt(nil, r.ref, rec.TypeCode), binary.BigEndian.AppendUint32(nil, rec.Attempt))
	}
	if rec.Cause == (record.CauseHash{}) {
		return nil
	}
	if stored, err := a.attempted(r, rec); err != nil || stored.Attempt != 0 {
		return err
	}
	first := record.Attempted{Attempt: rec.Attempt, Key: key}
	a.writes.Set(append(keys.AppendAttempt(nil, r.ref, rec.TypeCode), rec.Cause[:]...), first.Append(nil))
	return nil
}

// lastAttempt returns the highest attempt of a type in a run; 0: the run has no event of the type.
func (a *applyTx) lastAttempt(r *run, typeCode byte) (uint32, error) {
	row, err := a.pendingRow(keys.AppendAttempt(nil, r.ref, typeCode))
	if err != nil {
		return 0, err
	}
	return record.ParseAttempt(row)
}

// attempted returns what is stored for a cause; zero: nothing.
func (a *applyTx) attempted(r *run, rec *record.Recurrence) (record.Attempted, error) {
	row, err := a.pendingRow(append(keys.AppendAttempt(nil, r.ref, rec.TypeCode), rec.Cause[:]...))
	if err != nil {
		return record.Attempted{}, err
	}
	return record.ParseAttempted(row)
}

// pendingRow returns the row of a key as the proposal has left it; nil: there is none.
func (a *applyTx) pendingRow(key []byte) ([]byte, error) {
	if row, ok := a.writes.Get(key); ok {
		return row.Value, nil
	}
	return a.rows.Find(key)
}
