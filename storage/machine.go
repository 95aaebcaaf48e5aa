package storage

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	"runlog/storage/internal/keys"
	"runlog/storage/table"
)

// A Machine is a part of the state machine: it owns tables and the operations that change them. It
// runs inside Apply, on every replica, in log order. It reads no clock, no configuration and no map
// in its order, and it keeps no state of its own outside of its tables.
//
// A change of what Apply makes of an operation is a new operation: replicas of two builds apply the
// same log.
type Machine interface {
	// Kind names the machine on the wire and on disk. It is at least FirstMachineKind and is never
	// used again for something else.
	Kind() uint32
	// Tables are those that the machine owns. It may have none.
	Tables() []Table
	// Level is the feature level from which on an operation may be proposed. It never changes for
	// an operation.
	Level(op []byte) uint32
	// Apply applies one operation of a command. op and what tx returns are good until it returns.
	//
	// refused says why the operation has no effect; it is a type of the machine's package, and
	// callers get it as it is. The store undoes everything that the command has written, so that a
	// machine may write first and refuse later. fatal stops the node (D10); it is
	// ErrUnknownOperation where op comes from a newer build.
	Apply(tx *Tx, op []byte) (reply []byte, refused, fatal error)
}

// An Ender is a Machine that must know when a run ends, such as one that counts those that run.
type Ender interface {
	Machine
	// Ended is called when a run with a fence has ended (PRJ-17), in the same proposal and as a
	// part of the same command. It is called once for a run. An error stops the node.
	Ended(tx *Tx, runID string) error
	// Unsettled is called in the same way when the types of the events do not tell whether a run
	// with a fence has ended. The machine has it settled (Tx.Settle) by the snapshot.
	Unsettled(tx *Tx, runID string) error
}

// A Noticer is a Machine that must learn of some events, such as one whose leases depend on them.
type Noticer interface {
	Machine
	// Noticed is called when an append has stored an event with a notice, in the same proposal and
	// as a part of the same command, before Ended. It is not called for an event that is no valid
	// transition (PRJ-17). An error stops the node.
	Noticed(tx *Tx, runID string, notice contract.Notice) error
}

// EncodeOperation makes an operation of a machine out of its message.
func EncodeOperation(kind uint32, m proto.Message) (Operation, error) {
	data, err := table.Encode(m)
	if err != nil {
		return Operation{}, fmt.Errorf("storage: encode operation of kind %d: %w", kind, err)
	}
	return Operation{Kind: kind, Data: data}, nil
}

// DecodeReply decodes the reply of an operation, which is a message.
func DecodeReply(reply []byte, m proto.Message) error {
	if err := proto.Unmarshal(reply, m); err != nil {
		return fmt.Errorf("storage: undecodable reply: %w", err)
	}
	return nil
}

// Table is a part of the key space: all keys that begin with Prefix. The prefix is never used again
// for something else. Those of the core are single lower-case letters.
type Table struct {
	Prefix []byte
	// Name is for people.
	Name string
}

// FirstMachineKind is the lowest kind of a machine. Those below belong to the core.
const FirstMachineKind = 16

// ErrUnknownOperation means that a machine does not know an operation of its kind.
var ErrUnknownOperation = errors.New("storage: unknown operation")

// UnknownOperationError says that the log has an operation that this build does not know. The node
// must stop.
type UnknownOperationError struct {
	Kind     uint32
	Level    uint32 // that the store is at
	Supports uint32 // the highest level of this build
}

func (e *UnknownOperationError) Error() string {
	return fmt.Sprintf("operation of kind %d is unknown to this build, which supports feature levels up to %d; "+
		"the store is at level %d: "+
		"upgrade this node's binary to the build of the other members", e.Kind, e.Supports, e.Level)
}

func (e *UnknownOperationError) Unwrap() error { return ErrUnknownOperation }

// TableError says that two owners claim the same keys.
type TableError struct {
	Prefix [2][]byte
	Owner  [2]string
}

func (e *TableError) Error() string {
	return fmt.Sprintf("storage: table prefix %q of %s overlaps %q of %s: give one of them another prefix",
		e.Prefix[0], e.Owner[0], e.Prefix[1], e.Owner[1])
}

// machines are those of a store, by their kind.
type machines map[uint32]*registered

// registered is a machine with what the store asks it for once.
type registered struct {
	Machine
	tables []Table
}

func (r *registered) String() string { return fmt.Sprintf("machine %d (%T)", r.Kind(), r.Machine) }

// table returns the table that a key is in.
func (r *registered) table(key []byte) (Table, bool) {
	for _, t := range r.tables {
		if bytes.HasPrefix(key, t.Prefix) {
			return t, true
		}
	}
	return Table{}, false
}

// those returns the machines that are of a type, in the order of their kinds.
func those[T Machine](all machines) (list []*registered) {
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		if _, ok := all[kind].Machine.(T); ok {
			list = append(list, all[kind])
		}
	}
	return list
}

// registerMachines checks that kinds and tables have one owner each.
func registerMachines(list []Machine) (machines, error) {
	type claim struct {
		prefix []byte
		owner  string
	}
	var claims []claim
	for _, prefix := range slices.Sorted(maps.Keys(keys.Core)) {
		claims = append(claims, claim{[]byte(prefix), "the core (" + keys.Core[prefix] + ")"})
	}
	all := machines{}
	var errs []error
	for _, m := range list {
		r := &registered{Machine: m, tables: slices.Clone(m.Tables())}
		kind := m.Kind()
		if kind < FirstMachineKind {
			errs = append(errs,
				fmt.Errorf("storage: %v: kinds below %d belong to the core: give it another", r, FirstMachineKind))
			continue
		}
		if other := all[kind]; other != nil {
			errs = append(errs, fmt.Errorf("storage: %v and %v have the same kind: give one of them another", other, r))
			continue
		}
		all[kind] = r
		for _, t := range r.tables {
			if len(t.Prefix) == 0 {
				errs = append(errs, fmt.Errorf("storage: %v: table %q has an empty prefix: give it one", r, t.Name))
				continue
			}
			owner := fmt.Sprintf("%v", r)
			for _, c := range claims {
				if bytes.HasPrefix(c.prefix, t.Prefix) || bytes.HasPrefix(t.Prefix, c.prefix) {
					errs = append(errs, &TableError{Prefix: [2][]byte{t.Prefix, c.prefix}, Owner: [2]string{owner, c.owner}})
					break
				}
			}
			claims = append(claims, claim{t.Prefix, owner})
		}
	}
	return all, errors.Join(errs...)
}
