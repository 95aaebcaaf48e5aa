package storage

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
)

// SignedCheckpoint is a signed root over the heads of all runs. The store does not know what its
// note says.
type SignedCheckpoint struct {
	// Position that it covers.
	Position Position
	// Follows is the position that the checkpoint before it covers; 0: it is the first.
	Follows Position
	Note    string
}

// SigningKey is a public key with which the cluster signs.
type SigningKey struct {
	Number      uint64 // from 1
	PublicKey   string
	Endorsement string // by the key before; empty: by none
	CreatedAt   int64  // persistedAt of the proposal, nanoseconds; set by apply
}

// EncodeCheckpoint is the command that stores a signed checkpoint. Its outcome is a
// *CheckpointError unless it covers more than the one that it follows, less than its own position,
// and follows the last one that is stored.
func EncodeCheckpoint(c SignedCheckpoint) (Command, error) {
	return encodeCommand(&recordv1.Command{Kind: &recordv1.Command_Checkpoint{
		Checkpoint: &recordv1.Checkpoint{Position: uint64(c.Position), Note: c.Note, Follows: uint64(c.Follows)},
	}})
}

// EncodeSigningKey is the command that stores a public key. Its outcome is a *SigningKeyError
// unless its number is the next.
func EncodeSigningKey(k SigningKey) (Command, error) {
	return encodeCommand(&recordv1.Command{Kind: &recordv1.Command_SigningKey{
		SigningKey: &recordv1.SigningKey{Number: k.Number, PublicKey: k.PublicKey, Endorsement: k.Endorsement},
	}})
}

// CheckpointError says that a checkpoint was not stored, because another one was meanwhile, or
// because it covers what it cannot.
type CheckpointError struct {
	Given SignedCheckpoint
	// Last position that is covered; 0: there is no checkpoint.
	Last Position
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("a checkpoint of position %d that follows %d was not stored: the last one is of %d", e.Given.Position, e.Given.Follows, e.Last)
}

// SigningKeyError says that a public key was not stored, because another one has its number.
type SigningKeyError struct{ Number, Last uint64 }

func (e *SigningKeyError) Error() string {
	return fmt.Sprintf("signing key %d was not stored: the last one is %d", e.Number, e.Last)
}

// signedState is what a proposal finds of checkpoints and signing keys, and what it does to them.
type signedState struct {
	known   bool
	covered Position
	key     uint64
	effects []byte // for the rolling hash
}

// signedSoFar reads the last checkpoint and key when a proposal first needs them.
func (a *applyTx) signedSoFar() (*signedState, error) {
	st := &a.signed
	if st.known {
		return st, nil
	}
	c, err := lastCheckpoint(a.s.db())
	if err != nil {
		return nil, err
	}
	k, err := lastSigningKey(a.s.db())
	if err != nil {
		return nil, err
	}
	st.known, st.covered, st.key = true, c.Position, k.Number
	return st, nil
}

func (a *applyTx) storeCheckpoint(m *recordv1.Checkpoint, o *Outcome) error {
	st, err := a.signedSoFar()
	if err != nil {
		return err
	}
	c := decodeCheckpoint(m)
	if c.Position <= st.covered || c.Position >= a.position || c.Follows != st.covered {
		o.Err = &CheckpointError{Given: c, Last: st.covered}
		return nil
	}
	st.covered = c.Position
	return a.storeSigned(keys.AppendSigned(nil, m.Position), m)
}

func (a *applyTx) storeSigningKey(m *recordv1.SigningKey, o *Outcome) error {
	st, err := a.signedSoFar()
	if err != nil {
		return err
	}
	if m.Number != st.key+1 {
		o.Err = &SigningKeyError{Number: m.Number, Last: st.key}
		return nil
	}
	st.key = m.Number
	m.CreatedAt = a.stamp
	return a.storeSigned(keys.AppendSigningKey(nil, m.Number), m)
}

// storeSigned writes a row and chains it into the rolling hash: its key (9) and the SHA-256 of its
// value (32).
func (a *applyTx) storeSigned(key []byte, m proto.Message) error {
	row, err := deterministic.Marshal(m)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(row)
	a.signed.effects = append(append(a.signed.effects, key...), sum[:]...)
	return a.batch.Set(key, row, nil)
}

func decodeCheckpoint(m *recordv1.Checkpoint) SignedCheckpoint {
	return SignedCheckpoint{Position: Position(m.Position), Follows: Position(m.Follows), Note: m.Note}
}

// LastCheckpoint returns the newest signed checkpoint; with position 0 when there is none.
func (s *Store) LastCheckpoint() (c SignedCheckpoint, err error) {
	h, err := s.acquire()
	if err != nil {
		return c, err
	}
	defer s.release(h)
	return lastCheckpoint(h.db)
}

func lastCheckpoint(r pebble.Reader) (c SignedCheckpoint, err error) {
	list, err := checkpoints(r, keys.SignedEnd, 1)
	if len(list) > 0 {
		c = list[0]
	}
	return c, err
}

// Checkpoints returns at most n signed checkpoints of positions before another, newest first;
// before 0: the newest.
func (s *Store) Checkpoints(before Position, n int) ([]SignedCheckpoint, error) {
	h, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer s.release(h)
	end := keys.SignedEnd
	if before > 0 {
		end = keys.AppendSigned(nil, uint64(before))
	}
	return checkpoints(h.db, end, n)
}

func checkpoints(r pebble.Reader, end []byte, n int) (list []SignedCheckpoint, err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: keys.AppendSigned(nil, 0), UpperBound: end})
	if err != nil {
		return nil, fmt.Errorf("storage: read checkpoints: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.Last(); it.Valid() && len(list) < n; it.Prev() {
		m := &recordv1.Checkpoint{}
		if err := unmarshalRow(it.Value(), m); err != nil {
			return nil, err
		}
		list = append(list, decodeCheckpoint(m))
	}
	return list, it.Error()
}

// LastSigningKey returns the newest public key; with number 0 when there is none.
func (s *Store) LastSigningKey() (k SigningKey, err error) {
	h, err := s.acquire()
	if err != nil {
		return k, err
	}
	defer s.release(h)
	return lastSigningKey(h.db)
}

func lastSigningKey(r pebble.Reader) (k SigningKey, err error) {
	it, err := signingKeys(r)
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.Last() {
		return k, it.Error()
	}
	return decodeSigningKey(it.Value())
}

// SigningKeys returns all public keys, oldest first.
func (s *Store) SigningKeys() (list []SigningKey, err error) {
	h, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer s.release(h)
	it, err := signingKeys(h.db)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		k, err := decodeSigningKey(it.Value())
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	return list, it.Error()
}

func signingKeys(r pebble.Reader) (*pebble.Iterator, error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: keys.AppendSigningKey(nil, 0), UpperBound: keys.SigningKeysEnd})
	if err != nil {
		return nil, fmt.Errorf("storage: read signing keys: %w", err)
	}
	return it, nil
}

func decodeSigningKey(row []byte) (SigningKey, error) {
	m := &recordv1.SigningKey{}
	if err := unmarshalRow(row, m); err != nil {
		return SigningKey{}, err
	}
	return SigningKey{Number: m.Number, PublicKey: m.PublicKey, Endorsement: m.Endorsement, CreatedAt: m.CreatedAt}, nil
}
