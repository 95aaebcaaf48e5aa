package record

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"runlog/proto/contract"
)

// Recurrence is what apply needs of an event whose type recurs in a run (IDM-10).
type Recurrence struct {
	Index    uint32 // of the event among the headers
	TypeCode byte
	// Assigned: the authority assigns the attempt. Apply refuses the one here unless it is above
	// the highest of its type, and its key is new.
	Assigned bool
	Attempt  uint32
	Cause    CauseHash // zero: the event names no cause
}

// AssignedAttempt is the attempt, if the authority assigns it; else 0.
func (r *Recurrence) AssignedAttempt() uint32 {
	if !r.Assigned {
		return 0
	}
	return r.Attempt
}

// CauseHash is the first half of the SHA-256 of what caused an event.
type CauseHash [16]byte

// HashCause returns the hash of a cause; zero for an empty one.
func HashCause(cause string) (h CauseHash) {
	if cause == "" {
		return h
	}
	sum := sha256.Sum256([]byte(cause))
	return CauseHash(sum[:16])
}

// recurrenceSize is index (4), type code (1), assigned (1), attempt (4) and cause (16).
const recurrenceSize = 26

// appendRecurrence appends the row of an event; nothing for a type that does not recur.
func appendRecurrence(dst []byte, index int, e *contract.Event) []byte {
	if !contract.Recurs(e.Type) {
		return dst
	}
	assigned := byte(0)
	if e.AttemptAssigned {
		assigned = 1
	}
	cause := HashCause(e.Cause())
	dst = binary.BigEndian.AppendUint32(dst, uint32(index))
	dst = append(dst, byte(contract.TypeCode(e.Type)), assigned)
	dst = binary.BigEndian.AppendUint32(dst, e.LogicalAttemptID)
	return append(dst, cause[:]...)
}

// Recurrences are the rows of a request, in the order of its events.
type Recurrences []byte

// Take returns the row of an event and removes it. Events are asked for in their order.
func (r *Recurrences) Take(index int) (rec Recurrence, ok bool) {
	b := *r
	if len(b) == 0 || binary.BigEndian.Uint32(b) != uint32(index) {
		return rec, false
	}
	*r = b[recurrenceSize:]
	return Recurrence{
		Index: uint32(index), TypeCode: b[4], Assigned: b[5] != 0,
		Attempt: binary.BigEndian.Uint32(b[6:]), Cause: CauseHash(b[10:]),
	}, true
}

func parseRecurrences(b []byte) (Recurrences, error) {
	if len(b)%recurrenceSize != 0 {
		return nil, fmt.Errorf("%w: %d bytes of recurrences", errWire, len(b))
	}
	return b, nil
}

// Attempted is the event that is stored for a cause: its attempt (4) and the SHA-256 of its
// idempotency key (32).
type Attempted struct {
	Attempt uint32
	Key     KeyHash
}

// Append appends the row.
func (a *Attempted) Append(dst []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, a.Attempt), a.Key[:]...)
}

// ParseAttempted decodes the row of a cause; zero for no row.
func ParseAttempted(row []byte) (Attempted, error) {
	switch len(row) {
	case 0:
		return Attempted{}, nil
	case 4 + len(KeyHash{}):
		return Attempted{Attempt: binary.BigEndian.Uint32(row), Key: KeyHash(row[4:])}, nil
	default:
		return Attempted{}, fmt.Errorf("%w: attempt of a cause of %d bytes", ErrRow, len(row))
	}
}

// FirstUncounted is the first attempt that is no highest one of its type (IDM-10). A producer may
// name any, and the authority has room for those that it assigns.
const FirstUncounted = 1 << 31

// ParseAttempt decodes the row of the highest attempt; 0 for no row, and for an uncounted attempt,
// which earlier releases have counted.
func ParseAttempt(row []byte) (uint32, error) {
	switch len(row) {
	case 0:
		return 0, nil
	case 4:
		if last := binary.BigEndian.Uint32(row); last < FirstUncounted {
			return last, nil
		}
		return 0, nil
	default:
		return 0, fmt.Errorf("%w: highest attempt of %d bytes", ErrRow, len(row))
	}
}
