package counter

import (
	"encoding/binary"
	"errors"
	"fmt"

	"runlog/storage"
	"runlog/storage/table"
)

const (
	// Kind of the machine. A machine of the build takes the next free one of docs/formats.md.
	Kind = 1000
	// Level is the feature level from which on Increment may be proposed.
	Level = 2
	// Limit of a counter.
	Limit = 1_000_000

	counters = "Z"
)

// LimitError says that a counter was not incremented, because it would have come above Limit.
type LimitError struct {
	Name      string
	Value, By uint64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("counter %q is at %d and cannot take %d more: its limit is %d", e.Name, e.Value, e.By, Limit)
}

// Increment is the operation that adds to a counter. Its reply is the new value; Value reads it. It
// is refused with a *LimitError.
//
// The operation is by:8 and the name. A machine of the build has a message of record.v1 instead.
func Increment(name string, by uint64) (storage.Operation, error) {
	if name == "" {
		return storage.Operation{}, errors.New("counter: increment: the name is empty")
	}
	return storage.Operation{Kind: Kind, Data: append(binary.BigEndian.AppendUint64(nil, by), name...)}, nil
}

// Value reads the reply of an Increment.
func Value(reply []byte) (uint64, error) {
	if len(reply) != 8 {
		return 0, fmt.Errorf("counter: reply of %d bytes, want 8", len(reply))
	}
	return binary.BigEndian.Uint64(reply), nil
}

// Machine is the storage.Machine of this package.
type Machine struct{}

var _ storage.Machine = Machine{}

// Kind is storage.Machine's.
func (Machine) Kind() uint32 { return Kind }

// Tables is storage.Machine's.
func (Machine) Tables() []storage.Table {
	return []storage.Table{{Prefix: []byte(counters), Name: "counters"}}
}

// Level is storage.Machine's.
func (Machine) Level([]byte) uint32 { return Level }

// Apply is storage.Machine's.
func (Machine) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	if len(op) <= 8 {
		return nil, nil, fmt.Errorf("counter: operation of %d bytes: %w", len(op), storage.ErrUnknownOperation)
	}
	by, name := binary.BigEndian.Uint64(op), string(op[8:])
	value, err := read(tx, name)
	if err != nil {
		return nil, nil, err
	}
	if by > Limit-value {
		return nil, &LimitError{Name: name, Value: value, By: by}, nil
	}
	table.SetNumber(tx, key(name), value+by)
	return binary.BigEndian.AppendUint64(nil, value+by), nil, nil
}

// Read returns the value of a counter as of what the store has applied; 0: it was never
// incremented.
func Read(s *storage.Store, name string) (uint64, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (uint64, error) { return read(r, name) })
}

// read is for the machine and for readers.
func read(r table.Reader, name string) (uint64, error) { return table.GetNumber(r, key(name)) }

func key(name string) []byte { return []byte(counters + name) }
