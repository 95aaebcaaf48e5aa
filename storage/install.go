package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"runlog/storage/internal/directory"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
	"runlog/storage/internal/rowcache"
)

// ErrDiverged means that a checkpoint of the same cluster does not continue what the store has
// applied: its sender has lost that.
var ErrDiverged = errors.New("storage: the store and a checkpoint of its cluster have diverged")

// Received is a checkpoint that has come whole and that fits, on stable storage in a directory of
// its own. It is no part of the store until Install.
type Received struct {
	// Applied is how far it reaches.
	Applied Applied

	s        *Store
	received *directory.Received
}

// Checkpoint makes one of what is applied now, or of a little more.
func (s *Store) Checkpoint() (*Checkpoint, error) { return s.directory.Checkpoint() }

// Receive reads the stream of a checkpoint to its end, and checks it. Neither what the store holds
// nor what CURRENT says changes, whatever comes. It may be called from anywhere, also while others
// apply and read.
func (s *Store) Receive(r io.Reader) (*Received, error) { return s.received(s.directory.Receive(r)) }

func (s *Store) received(r *directory.Received, err error) (*Received, error) {
	if r == nil {
		return nil, err
	}
	return &Received{Applied: r.Applied, s: s, received: r}, err
}

// pulled is what a Seed does until it is whole.
type pulled = directory.Seed

// Seed is a checkpoint of another node that comes file by file, and continues where it was cut,
// also in another process (D5). One goroutine uses it:
//
//	Store.Seed ──► Next ──► Write … ──► EndFile ──┐──► Finish ──► Received.Install
//	                ▲─────────────────────────────┘
type Seed struct {
	*pulled
	s *Store
}

// Seed begins to take in the checkpoint that a manifest (Checkpoint.Manifest) describes, or
// continues with it. It is called, and used, as Store.Receive is: also while others apply and read,
// of which nothing changes.
//
// origin names the sender and its database (Checkpoint.Database): files of the same name from one
// origin are the same file. What an earlier attempt has pulled from this origin is kept where the
// manifest names it too, as far as it goes; only tables, which Pebble never changes. All else that
// was pulled before goes.
//
// Errors: ErrCheckpoint, ErrForeign and ErrOlder, after which everything is as before; ErrSeeding;
// ErrNoRoom; and those of the disk. The Seed must be closed, and the store stay open until then.
func (s *Store) Seed(origin string, manifest []byte) (*Seed, error) {
	seed, err := s.directory.Seed(origin, manifest)
	if err != nil {
		return nil, err
	}
	return &Seed{pulled: seed, s: s}, nil
}

// Finish turns the seed into a database, once it has come whole, and checks it as Store.Receive
// does. The seed is over then, and what has come is gone unless it is installed. After ErrOlder,
// which says that the store has got ahead meanwhile, and where files are missing, the seed is as
// before.
func (s *Seed) Finish() (*Received, error) { return s.s.received(s.pulled.Finish()) }

// Install makes what was received the store. Readers that have begun end on what they began with;
// all others, and Apply, continue with the new state.
//
// The caller is the one that calls Apply. After ErrOlder the store is as it was, and the caller
// discards what was received; after ErrDiverged too, and the store applies nothing more. Any other
// error means that this node must stop, as one of Apply does (D10).
func (r *Received) Install() error {
	s := r.s
	if s.broken != nil {
		return s.broken
	}
	if err := r.received.Newer(); err != nil {
		return err
	}
	if err := r.continues(); err != nil {
		s.broken = err
		return err
	}
	if err := r.install(); err != nil {
		s.broken = fmt.Errorf("install up to entry %d: %w", r.Applied.Index, err)
		return s.broken
	}
	return nil
}

// continues returns ErrDiverged if what was received does not have the last proposal that the store
// has applied. It compares the stamp, which rises over the life of a cluster (APP-5), and the first
// chunk of the events. Neither is ever written again.
func (r *Received) continues() error {
	now := r.s.applied.Load()
	stamp := keys.AppendStamp(nil, now.PersistedAt)
	mine, theirs, err := r.rows(stamp)
	if err != nil || mine == nil {
		return err // nothing is applied yet
	}
	same := bytes.Equal(mine, theirs)
	if same {
		mine, theirs, err = r.rows(keys.AppendChunk(nil, binary.BigEndian.Uint64(mine), 0))
		same = mine == nil || theirs == nil || bytes.Equal(mine, theirs)
	}
	if err == nil && !same {
		err = fmt.Errorf("%w: it reaches to entry %d, without the last proposal that is applied here, up to entry %d",
			ErrDiverged, r.Applied.Index, now.Index)
	}
	return err
}

// rows returns a row as the store has it, and as it was received; nil: there is none.
func (r *Received) rows(key []byte) (mine, theirs []byte, err error) {
	if mine, err = record.GetRow(r.s.db(), key); err == nil {
		theirs, err = r.received.Row(key)
	}
	return mine, theirs, err
}

func (r *Received) install() error {
	s := r.s
	if now := s.applied.Load(); now.Index == r.Applied.Index && now.RollingHash != r.Applied.RollingHash {
		return fmt.Errorf("%w: rolling hash %x and %x at index %d",
			ErrDiverged, now.RollingHash, r.Applied.RollingHash, now.Index)
	}
	err := r.received.Install(func(swap func()) {
		s.active = newActive(s.opts.ActiveBytes)
		s.recent = rowcache.New(s.opts.RowBytes)
		s.packing = packing{}
		s.chains.clear()
		s.changes.Lock()
		swap()
		s.changes.AddAllLocked()
		s.changes.Unlock()
		s.level.Store(r.received.Level)
	})
	if err != nil {
		return err
	}
	// A reader that sees the new applied state finds the new database.
	s.publish(&r.Applied)
	return nil
}

// Discard removes what was received. It is called instead of Install, or after ErrOlder.
func (r *Received) Discard() { r.received.Discard() }

// Install receives a checkpoint and makes it the store; see Receive and Received.Install.
func (s *Store) Install(r io.Reader) error {
	received, err := s.Receive(r)
	if err != nil {
		return err
	}
	if err = received.Install(); errors.Is(err, ErrOlder) || errors.Is(err, ErrDiverged) {
		received.Discard()
	}
	return err
}

// Installed is the applied index with which the store's database came out of an install; 0: it
// never did.
func (s *Store) Installed() uint64 { return s.directory.Installed() }
