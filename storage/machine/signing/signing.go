// Package signing is the machine of what the cluster signs with and has signed: its public keys,
// and signed checkpoints of the log.
//
//	p number:8     public key           record.v1.SigningKey
//	s position:8   signed checkpoint    record.v1.Checkpoint
//
// Invariants: keys are numbered from 1 without gaps. Each checkpoint names the one before it and
// covers more. A cosignature is stored beside a checkpoint that is there. The machine does not know
// what a note or a line says: the proposer has signed or verified it.
package signing

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Kind of the machine.
const Kind = 16

const (
	keyTable        = "p"
	checkpointTable = "s"
)

// MaxCosignatures bounds the witnesses of a checkpoint. Readers of signed notes take at most 100
// signatures.
const MaxCosignatures = 64

// Machine is the storage.Machine of this package.
type Machine struct{}

var _ storage.Machine = Machine{}

// Kind implements storage.Machine.
func (Machine) Kind() uint32 { return Kind }

// Tables implements storage.Machine.
func (Machine) Tables() []storage.Table {
	return []storage.Table{
		{Prefix: []byte(keyTable), Name: "public signing keys"},
		{Prefix: []byte(checkpointTable), Name: "signed checkpoints"},
	}
}

// Level implements storage.Machine.
func (Machine) Level([]byte) uint32 { return storage.CoreLevel }

// Checkpoint is a signed root over the heads of all runs.
type Checkpoint struct {
	// Position that it covers.
	Position storage.Position
	// Follows is the position that the checkpoint before it covers; 0: it is the first.
	Follows storage.Position
	// Note is signed by the cluster alone.
	Note string
	// Cosignatures of witnesses, one of each.
	Cosignatures []Cosignature
}

// Signed returns the note with the signatures of the cluster and of all witnesses.
func (c *Checkpoint) Signed() string {
	var text strings.Builder
	text.WriteString(c.Note)
	for _, s := range c.Cosignatures {
		text.WriteString(s.Line)
	}
	return text.String()
}

// Cosignature is the signature of a witness under a checkpoint (TR-4).
type Cosignature struct {
	Key  string // the witness's, as name+id
	Line string // in the signed note, with its line feed
}

// Key is a public key with which the cluster signs.
type Key struct {
	Number      uint64 // from 1
	PublicKey   string
	Endorsement string // by the key before; empty: by none
	CreatedAt   int64  // persistedAt of the proposal, nanoseconds; set by apply
}

// CheckpointError says that a checkpoint was not stored, because another one was meanwhile, or
// because it covers what it cannot.
type CheckpointError struct {
	Given Checkpoint
	// Last position that is covered; 0: there is no checkpoint.
	Last storage.Position
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("a checkpoint of position %d that follows %d was not stored: the last one is of %d", e.Given.Position, e.Given.Follows, e.Last)
}

// CosignatureError says that a cosignature was not stored: there is no checkpoint of this position,
// or it has those of too many other witnesses.
type CosignatureError struct {
	Position storage.Position
	Key      string
}

func (e *CosignatureError) Error() string {
	return fmt.Sprintf("the cosignature of %s was not stored: there is no checkpoint of position %d, or it has those of %d other witnesses",
		e.Key, e.Position, MaxCosignatures)
}

// KeyError says that a public key was not stored, because another one has its number.
type KeyError struct{ Number, Last uint64 }

func (e *KeyError) Error() string {
	return fmt.Sprintf("signing key %d was not stored: the last one is %d", e.Number, e.Last)
}

// StoreCheckpoint is the operation that stores a signed checkpoint. It is refused with a
// *CheckpointError unless the checkpoint covers more than the one that it follows, less than its
// own position, and follows the last one that is stored.
func StoreCheckpoint(c Checkpoint) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.SigningOperation{Kind: &recordv1.SigningOperation_Checkpoint{
		Checkpoint: &recordv1.Checkpoint{Position: uint64(c.Position), Note: c.Note, Follows: uint64(c.Follows)},
	}})
}

// StoreKey is the operation that stores a public key. It is refused with a *KeyError unless the
// number of the key is the next.
func StoreKey(k Key) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.SigningOperation{Kind: &recordv1.SigningOperation_SigningKey{
		SigningKey: &recordv1.SigningKey{Number: k.Number, PublicKey: k.PublicKey, Endorsement: k.Endorsement},
	}})
}

// StoreCosignature is the operation that stores the cosignature of a checkpoint, in place of an
// earlier one with the same key. It is refused with a *CosignatureError.
func StoreCosignature(of storage.Position, c Cosignature) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.SigningOperation{Kind: &recordv1.SigningOperation_Cosignature{
		Cosignature: &recordv1.StoreCosignature{Position: uint64(of), Cosignature: &recordv1.Cosignature{Key: c.Key, Line: c.Line}},
	}})
}

// Apply implements storage.Machine.
func (Machine) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	var m recordv1.SigningOperation
	if err := proto.Unmarshal(op, &m); err != nil {
		return nil, nil, fmt.Errorf("signing: undecodable operation: %w", err)
	}
	switch kind := m.Kind.(type) {
	case *recordv1.SigningOperation_SigningKey:
		refused, fatal = storeKey(tx, kind.SigningKey)
	case *recordv1.SigningOperation_Checkpoint:
		refused, fatal = storeCheckpoint(tx, kind.Checkpoint)
	case *recordv1.SigningOperation_Cosignature:
		refused, fatal = storeCosignature(tx, kind.Cosignature)
	default:
		fatal = storage.ErrUnknownOperation
	}
	return nil, refused, fatal
}

func storeKey(tx *storage.Tx, m *recordv1.SigningKey) (refused, fatal error) {
	last, err := lastKey(tx)
	if err != nil {
		return nil, err
	}
	if m.GetNumber() != last.Number+1 {
		return &KeyError{Number: m.GetNumber(), Last: last.Number}, nil
	}
	m.CreatedAt = tx.Stamp()
	return nil, table.Set(tx, table.In(keyTable).Number(m.Number), m)
}

func storeCheckpoint(tx *storage.Tx, m *recordv1.Checkpoint) (refused, fatal error) {
	last, err := lastCheckpoint(tx)
	if err != nil {
		return nil, err
	}
	c := decodeCheckpoint(m)
	if c.Position <= last.Position || c.Position >= tx.Position() || c.Follows != last.Position {
		return &CheckpointError{Given: c, Last: last.Position}, nil
	}
	return nil, table.Set(tx, table.In(checkpointTable).Number(m.Position), m)
}

func storeCosignature(tx *storage.Tx, m *recordv1.StoreCosignature) (refused, fatal error) {
	key := table.In(checkpointTable).Number(m.GetPosition())
	row, err := table.Get[recordv1.Checkpoint](tx, key)
	if err != nil {
		return nil, err
	}
	given := m.GetCosignature()
	i := slices.IndexFunc(row.GetCosignatures(), func(c *recordv1.Cosignature) bool { return c.GetKey() == given.GetKey() })
	switch {
	case row == nil, i < 0 && len(row.Cosignatures) >= MaxCosignatures:
		return &CosignatureError{storage.Position(m.GetPosition()), given.GetKey()}, nil
	case i < 0:
		row.Cosignatures = append(row.Cosignatures, given)
	default:
		row.Cosignatures[i] = given
	}
	return nil, table.Set(tx, key, row)
}

func decodeCheckpoint(m *recordv1.Checkpoint) Checkpoint {
	c := Checkpoint{Position: storage.Position(m.GetPosition()), Follows: storage.Position(m.GetFollows()), Note: m.GetNote()}
	for _, s := range m.GetCosignatures() {
		c.Cosignatures = append(c.Cosignatures, Cosignature{Key: s.GetKey(), Line: s.GetLine()})
	}
	return c
}

func decodeKey(m *recordv1.SigningKey) Key {
	return Key{Number: m.GetNumber(), PublicKey: m.GetPublicKey(), Endorsement: m.GetEndorsement(), CreatedAt: m.GetCreatedAt()}
}
