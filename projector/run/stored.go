package run

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/klauspost/compress/s2"
)

// The stored form is the row of a run in the projection database. Integers are big-endian.
//
//	offset  bytes
//	     0      1  StoredFormat
//	     1      1  flags: 1 draining; the others are 0
//	     2      8  PersistedAt, nanoseconds since 1970-01-01T00:00:00Z, int64; 0 when absent
//	    10      8  PausedAt, the same
//	    18         the canonical form as a block of S2, up to the end
const (
	// StoredFormat is the first byte of a stored snapshot. It is incremented with every change of
	// this layout, and with every change of the reducer by which the same records fold to another
	// snapshot. The snapshots are then rebuilt from the log (PRJ-13).
	StoredFormat = 9

	storedHeader = 18
	flagDraining = 1
)

// MarshalStored returns the stored form, from which UnmarshalStored makes an equal snapshot.
func (s *Snapshot) MarshalStored() []byte {
	var e Encoder
	return e.Append(nil, s)
}

// Encoder writes stored forms and reuses its memory. It is for one goroutine.
type Encoder struct{ canonical []byte }

// Length returns the length in bytes of the canonical form that was appended last.
func (e *Encoder) Length() int { return len(e.canonical) }

// Append appends the stored form of a snapshot to b.
func (e *Encoder) Append(b []byte, s *Snapshot) []byte {
	b = appendStoredHeader(b, s)
	e.canonical = s.AppendCanonical(e.canonical[:0])
	header := len(b)
	b = slices.Grow(b, s2.MaxEncodedLen(len(e.canonical)))
	packed := s2.Encode(b[header:cap(b)], e.canonical)
	return b[:header+len(packed)]
}

// appendStoredHeader appends the part before the canonical form.
func appendStoredHeader(b []byte, s *Snapshot) []byte {
	var flags byte
	if s.Draining {
		flags |= flagDraining
	}
	b = append(b, StoredFormat, flags)
	b = appendStamp(b, s.PersistedAt)
	return appendStamp(b, s.PausedAt)
}

// AppendPlain appends the stored form of a snapshot to b without compression. Two snapshots are
// equal if and only if their plain forms are.
func AppendPlain(b []byte, s *Snapshot) []byte {
	return s.AppendCanonical(appendStoredHeader(b, s))
}

// StoredLength returns the length in bytes of the canonical form in a stored form. Every error is
// ErrUnreadable.
func StoredLength(data []byte) (int, error) {
	if len(data) < storedHeader {
		return 0, fmt.Errorf("%w: %d bytes", ErrUnreadable, len(data))
	}
	n, err := s2.DecodedLen(data[storedHeader:])
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return n, nil
}

// UnpackStored appends to b what AppendPlain appends for the snapshot in a stored form. It does
// not parse the snapshot. Every error is ErrUnreadable.
func UnpackStored(b, data []byte) ([]byte, error) {
	n, err := StoredLength(data)
	if err != nil {
		return nil, err
	}
	b = slices.Grow(append(b, data[:storedHeader]...), n)
	if _, err := s2.Decode(b[len(b):len(b)+n], data[storedHeader:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return b[:len(b)+n], nil
}

// UnmarshalStored reads the stored form. It keeps no reference to data. Every error is
// ErrUnreadable.
func UnmarshalStored(data []byte) (*Snapshot, error) {
	if len(data) < storedHeader {
		return nil, fmt.Errorf("%w: %d bytes", ErrUnreadable, len(data))
	}
	if data[0] != StoredFormat || data[1]&^flagDraining != 0 {
		return nil, fmt.Errorf("%w: format %d, flags %#x", ErrUnreadable, data[0], data[1])
	}
	canonical, err := s2.Decode(nil, data[storedHeader:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	s, err := ParseSnapshot(canonical)
	if err != nil {
		return nil, err
	}
	s.Draining = data[1]&flagDraining != 0
	s.PersistedAt = readStamp(data[2:])
	s.PausedAt = readStamp(data[10:])
	return s, nil
}

func appendStamp(b []byte, t time.Time) []byte {
	var nanos int64
	if !t.IsZero() {
		nanos = t.UnixNano()
	}
	return binary.BigEndian.AppendUint64(b, uint64(nanos))
}

func readStamp(b []byte) time.Time {
	nanos := int64(binary.BigEndian.Uint64(b))
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos).UTC()
}
