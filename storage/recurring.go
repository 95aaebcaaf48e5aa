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
	db, release, err := s.directory.Acquire()
	if err != nil {
		return err
	}
	defer release()
	g := attemptGiver{rows: record.Rows{Reader: db}, last: map[byte]uint32{}, assigned: map[cause]uint32{}}
	if g.run, g.found, err = g.rows.Ref(a.RunID); err == nil {
		for i := range a.Events {
			if e := &a.Events[i]; contract.Recurs(e.Type) && err == nil {
				err = g.give(e)
			}
		}
	}
	return errors.Join(err, g.rows.Close())
}

// cause is what caused an event of a type.
type cause struct {
	typeCode byte
	hash     record.CauseHash
}

// attemptGiver gives attempts to the events of one request, in their order.
type attemptGiver struct {
	rows  record.Rows
	run   record.RunRef
	found bool // the run exists
	// last is the highest attempt of each type, in the run and among the events so far.
	last     map[byte]uint32
	assigned map[cause]uint32
}

func (g *attemptGiver) give(e *contract.Event) error {
	c := cause{byte(contract.TypeCode(e.Type)), record.HashCause(e.Cause())}
	if _, known := g.last[c.typeCode]; !known {
		row, err := g.row(nil, c.typeCode)
		if err == nil {
			g.last[c.typeCode], err = record.ParseAttempt(row)
		}
		if err != nil {
			return err
		}
	}
	if e.AttemptAssigned {
		attempt, err := g.attempt(c)
		if err == nil && attempt == 0 {
			err = fmt.Errorf("%w: %s of run %q", ErrNoAttempt, e.Type, e.RunID)
		}
		if err != nil {
			return err
		}
		g.assigned[c] = attempt
		e.SetAttempt(attempt)
	}
	g.last[c.typeCode] = max(g.last[c.typeCode], e.LogicalAttemptID)
	return nil
}

// attempt returns the attempt of a cause; 0: none is left. An attempt that an event of the request
// names does not count for its cause, because the event may be a duplicate. Apply knows.
func (g *attemptGiver) attempt(c cause) (uint32, error) {
	if attempt, known := g.assigned[c]; known {
		return attempt, nil
	}
	row, err := g.row(c.hash[:], c.typeCode)
	if err != nil {
		return 0, err
	}
	stored, err := record.ParseAttempted(row)
	if err != nil || stored.Attempt != 0 {
		return stored.Attempt, err
	}
	return g.last[c.typeCode] + 1, nil
}

// row returns a row of the run's attempts; nil: there is none.
func (g *attemptGiver) row(causeHash []byte, typeCode byte) ([]byte, error) {
	if !g.found {
		return nil, nil
	}
	return g.rows.Find(append(keys.AppendAttempt(nil, g.run, typeCode), causeHash...))
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
