package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
	"runlog/storage"
)

var (
	// ErrKeyMissing means that the node does not have the key with which the cluster signs.
	ErrKeyMissing = errors.New("seal: the node does not have the cluster's signing key")
	// ErrNotGiven means that no majority keeps a new key, which was not proposed then.
	ErrNotGiven = errors.New("seal: no majority of the members keeps the new signing key")
	// ErrKeyTaken means that the log has another key with the number.
	ErrKeyTaken = errors.New("seal: the log has another signing key with this number")
	// ErrClosed means that the node is going down.
	ErrClosed = errors.New("seal: closed")
)

const (
	// step is how often it is looked whether there is a new key, or something to sign.
	step = time.Second
	// fetchTimeout bounds how long other members are asked for the key, or to keep it, at a time.
	fetchTimeout = 5 * time.Second
	// missingAfter is how long the key is looked for before it is said to be missing.
	missingAfter = 3 * time.Second
)

// Options of a Sealer. All but FS, Clock and Logger are required.
type Options struct {
	Store   *storage.Store
	Cluster storage.ClusterID
	// KeyFile is where the private key lies. Nobody but the node may read it.
	KeyFile string
	// FS is the file system of KeyFile. Default: the machine's.
	FS vfs.FS
	// Interval and Events are how long, and how many events, after a checkpoint the next one is
	// made, if anything has changed. A negative Interval: nothing is signed, and no key made,
	// before it is asked for.
	Interval time.Duration
	Events   uint64
	// Leading tells whether the node leads.
	Leading func() bool
	// Propose puts a command into the log and returns what became of it.
	Propose func(context.Context, storage.Command) (storage.Outcome, error)
	// Fetch asks other members for the key with a number, until take says that it has the right
	// one.
	Fetch func(ctx context.Context, number uint64, take func(seed []byte) bool)
	// Members are the Raft ids of all members, this node among them.
	Members func() []string
	// Give has a majority of the voters, with this node, keep a key on stable storage, and gives it
	// to none but these members. ErrNotGiven: not so many do.
	Give func(ctx context.Context, number uint64, seed []byte, members []string) error
	// Missing is told whether the cluster has a key that neither this node nor any other gives.
	Missing func(bool)
	// Clock is the node's. Default: time.Now.
	Clock func() time.Time
	// Logger. Default: discards.
	Logger *slog.Logger
}

// Sealer signs for a node, and makes checkpoints while the node leads.
type Sealer struct {
	opts Options
	log  *slog.Logger

	keys struct {
		turn // held while the key is changed or looked for
		keyring
		missedSince time.Time // zero: the key is not missing
	}
	signer atomic.Pointer[proof.Signer] // nil: the node does not have the key

	last    lastCheckpoint  // of due
	pending map[uint64]bool // groups of runs that the tree does not have as they are; of the loop
	demand  demand

	newest struct {
		sync.Mutex
		tree Tree
		// sealed is the checkpoint of which the tree is; nil: there is none that was made here.
		sealed *sealed
	}

	stopping context.Context
	stop     context.CancelFunc
	loops    sync.WaitGroup
}

// turn is a mutex that is held while others are waited for, so that who wants it can give up.
type turn chan struct{}

// Lock fails when the context ends before.
func (t turn) Lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("seal: the signing key is being changed or looked for: %w", ctx.Err())
	}
}

func (t turn) Unlock() { <-t }

// New begins to look after the key, and to make checkpoints. Close ends it.
func New(opts Options) *Sealer {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sealer{opts: opts, log: opts.Logger, pending: map[uint64]bool{}}
	s.keys.turn, s.demand.kick = make(turn, 1), make(chan struct{}, 1)
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.keys.disk, s.keys.path, s.keys.cluster = opts.FS, opts.KeyFile, opts.Cluster
	if err := s.keys.open(); err != nil {
		s.log.Warn("the signing key of this node cannot be read; other members are asked for it", "err", err)
	}
	s.loops.Go(s.tendKey)
	s.loops.Go(s.makeCheckpoints)
	return s
}

// Close ends what the Sealer does. The store is still open.
func (s *Sealer) Close() error {
	s.stop()
	s.loops.Wait()
	s.demand.answer(s.demand.take(), ErrClosed)
	s.newest.Lock()
	defer s.newest.Unlock()
	return s.forgetLocked()
}

// forgetLocked lets go of the newest checkpoint.
func (s *Sealer) forgetLocked() error {
	if s.newest.sealed == nil {
		return nil
	}
	err := s.newest.sealed.heads.Close()
	s.newest.sealed = nil
	return err
}

// Signer returns the one with the newest key that this node has used; nil: it has none. It asks
// nobody.
func (s *Sealer) Signer() *proof.Signer { return s.signer.Load() }

// Sign returns a statement as a note that is signed with the cluster's key. While the node does not
// have the key, the note ends before its signatures.
func (s *Sealer) Sign(ctx context.Context, st *proof.Statement) (note string, signed bool, err error) {
	signer, err := s.current(ctx)
	switch {
	case errors.Is(err, ErrKeyMissing):
		return proof.Unsigned(st), false, nil
	case err != nil:
		return "", false, err
	}
	note, err = signer.Sign(st)
	return note, err == nil, err
}
