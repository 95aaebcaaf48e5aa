package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"runlog/proto/contract"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// AttemptError says that an event cannot have the attempt which was assigned to it: it is not above
// the highest one of its type, or another event has its key. Another event was stored in the
// meantime (IDM-10). Assign it again and retry.
type AttemptError struct {
	RunID string
	Index int // of the event in its request
	Given uint32
	Last  uint32 // the highest attempt of the type
}

func (e *AttemptError) Error() string {
	return fmt.Sprintf("event %d of run %q was assigned attempt %d, which is taken; the last one is %d",
		e.Index, e.RunID, e.Given, e.Last)
}

// Overtaken reports whether a request was refused because another event was stored under the key of
// an attempt that AssignAttempts has given: assign it again and retry.
func Overtaken(a *Append, err error) bool {
	if errors.As(err, new(*AttemptError)) {
		return true
	}
	taken, ok := errors.AsType[*KeyTakenError](err)
	return ok && a.Events[taken.Index].AttemptAssigned && !contract.Recurs(a.Events[taken.Index].Type)
}

// AssignAttempts gives attempts to the events of a request that have AttemptAssigned (IDM-10). One
// of a type that recurs gets the attempt of the stored event with the same cause, or else the next
// one of the type. Apply refuses the request with an *AttemptError if the run has changed in the
// meantime. One of another type, which the authority says of a run, gets the first attempt; the
// request must have OnlyNew. Attempts whose keys other events have are left out.
func (s *Store) AssignAttempts(a *Append) error {
	db, release, err := s.directory.Acquire()
	if err != nil {
		return err
	}
	defer release()
	g := attemptGiver{
		rows: record.Rows{Reader: db}, keys: map[string]struct{}{}, last: map[byte]uint32{}, assigned: map[cause]uint32{},
	}
	g.run, g.found, err = g.rows.Ref(a.RunID)
	for i := range a.Events {
		if err == nil {
			err = g.give(&a.Events[i])
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
	// Of the events so far: their keys, the highest attempt of each type that recurs, and the
	// attempts that were assigned.
	keys     map[string]struct{}
	last     map[byte]uint32
	assigned map[cause]uint32
}

func (g *attemptGiver) give(e *contract.Event) error {
	if e.AttemptAssigned {
		if err := g.assign(e); err != nil {
			return err
		}
	}
	g.keys[e.IdempotencyKey] = struct{}{}
	if contract.Recurs(e.Type) && e.LogicalAttemptID < record.FirstUncounted {
		code := byte(contract.TypeCode(e.Type))
		g.last[code] = max(g.last[code], e.LogicalAttemptID)
	}
	return nil
}

func (g *attemptGiver) assign(e *contract.Event) error {
	if !contract.Recurs(e.Type) {
		return g.free(e, 1)
	}
	c := cause{byte(contract.TypeCode(e.Type)), record.HashCause(e.Cause())}
	attempt, err := g.attempt(c)
	if err != nil {
		return err
	}
	if attempt != 0 {
		e.SetAttempt(attempt)
		return nil
	}
	row, err := g.row(nil, c.typeCode)
	if err != nil {
		return err
	}
	last, err := record.ParseAttempt(row)
	if err == nil {
		err = g.free(e, max(last, g.last[c.typeCode])+1)
	}
	g.assigned[c] = e.LogicalAttemptID
	return err
}

// attempt returns the attempt of a cause; 0: it has none yet. An attempt that an event of the
// request names does not count for its cause, because the event may be a duplicate. Apply knows.
func (g *attemptGiver) attempt(c cause) (uint32, error) {
	if attempt, known := g.assigned[c]; known {
		return attempt, nil
	}
	row, err := g.row(c.hash[:], c.typeCode)
	if err != nil {
		return 0, err
	}
	stored, err := record.ParseAttempted(row)
	return stored.Attempt, err
}

// free sets an attempt, from one on, whose key no other event has.
func (g *attemptGiver) free(e *contract.Event, from uint32) error {
	return seekFree(from, func(attempt uint32) (bool, error) {
		e.SetAttempt(attempt)
		return g.taken(e.IdempotencyKey)
	})
}

// inARow is how many attempts seekFree asks about one after the other.
const inARow = 16

// seekFree asks about attempts, from one on, until one is not taken. A producer that has taken many
// in a row (IDM-5) must not make each later call read as many rows. Behind the first ones, the next
// attempt is drawn, each time from twice as many: n taken ones cost about log n questions.
func seekFree(from uint32, taken func(attempt uint32) (bool, error)) error {
	for ahead, drawn := uint32(0), uint32(inARow); ; {
		if is, err := taken(from + ahead); err != nil || !is {
			return err
		}
		if ahead++; ahead >= inARow {
			drawn = min(2*drawn, 1<<30)
			ahead = inARow + rand.Uint32N(drawn)
		}
	}
}

// taken reports whether an event of the run, or one of the request so far, has a key.
func (g *attemptGiver) taken(key string) (bool, error) {
	if _, before := g.keys[key]; before || !g.found {
		return before, nil
	}
	hash := record.KeyHash(contract.KeyHash(key))
	_, taken, err := g.rows.Receipt(g.run, &hash)
	return taken, err
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
// *AttemptError where its own attempt is not above the highest of its type, or where another event
// has its key: a stored one, or one before it in the request (repeated). It need not be the next:
// AssignAttempts counts the events before it in the request, and some may be duplicates under keys
// of their own.
func (a *applyTx) assignedAttempt(r *run, rec *record.Recurrence, key record.KeyHash, repeated bool,
) (_ record.Attempted, why, err error) {
	stored, err := a.attempted(r, rec)
	if err != nil || stored.Attempt != 0 {
		return stored, nil, err
	}
	last, err := a.lastAttempt(r, rec.TypeCode)
	if err != nil {
		return stored, nil, err
	}
	_, taken, err := a.receipt(r, &key)
	if err != nil {
		return stored, nil, err
	}
	if taken || repeated || rec.Attempt <= last {
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
	if rec.Attempt > last && rec.Attempt < record.FirstUncounted {
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

// lastAttempt returns the highest attempt of a type in a run that counts; 0: the run has none.
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
