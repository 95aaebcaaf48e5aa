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
	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/storage"
)

var (
	// ErrKeyMissing means that the node does not have the key with which the cluster signs.
	ErrKeyMissing = errors.New("checkpoint: the node does not have the cluster's signing key")
	// ErrNotGiven means that no majority keeps a new key, which was not proposed then.
	ErrNotGiven = errors.New("checkpoint: no majority of the members keeps the new signing key")
	// ErrKeyTaken means that the log has another key with this number.
	ErrKeyTaken = errors.New("checkpoint: the log has another signing key with this number")
	// ErrClosed means that the node is going down.
	ErrClosed = errors.New("checkpoint: closed")
)

const (
	// step is the interval of checks for a new key or a due checkpoint.
	step = time.Second
	// fetchTimeout bounds how long other members are asked for the key, or to keep it, at a time.
	fetchTimeout = 5 * time.Second
	// missingAfter is how long the node looks for the key before it reports it as missing.
	missingAfter = 3 * time.Second
)

// Options of a Maker. All but FS, Clock and Logger are required.
type Options struct {
	Store   *storage.Store
	Cluster storage.ClusterID
	// KeyFile holds the private key. Only the node may read it.
	KeyFile string
	// FS is the file system of KeyFile. Default: the machine's.
	FS vfs.FS
	// Interval and Events are the time and the number of events after which the next checkpoint is
	// due, if anything has changed. With a negative Interval, the Maker signs and makes keys on
	// request only.
	Interval time.Duration
	Events   uint64
	// Records returns the root of the tree of all records when it had so many (TR-1). It waits
	// until the tree has the log up to a position, up to which there are as many.
	Records func(ctx context.Context, at storage.Position, size int64) (tlog.Hash, error)
	// Leading reports whether the node leads.
	Leading func() bool
	// Propose proposes a command and returns its outcome.
	Propose func(context.Context, storage.Command) (storage.Outcome, error)
	// Fetch asks other members for the key with a number, until take accepts an answer.
	Fetch func(ctx context.Context, number uint64, take func(seed []byte) bool)
	// Members are the Raft ids of all members, this node among them.
	Members func() []string
	// Give has a majority of the voters, this node included, store a key durably, and gives it to
	// these members only. ErrNotGiven: too few voters store it.
	Give func(ctx context.Context, number uint64, seed []byte, members []string) error
	// Missing is called with true if the cluster has a key that neither this node nor a reachable
	// member has.
	Missing func(bool)
	// Clock is that of the node. Default: time.Now.
	Clock func() time.Time
	// Logger. Default: discards.
	Logger *slog.Logger
}

// Maker signs for a node, and makes checkpoints while the node leads.
type Maker struct {
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
		// made is the checkpoint that the tree belongs to; nil: this node has made none.
		made *madeCheckpoint
	}

	stopping context.Context
	stop     context.CancelFunc
	loops    sync.WaitGroup
}

// turn is a mutex that is held during calls to other members; waiting for it ends with a context.
type turn chan struct{}

// Lock fails when the context ends before.
func (t turn) Lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("checkpoint: another key operation is in progress: %w", ctx.Err())
	}
}

func (t turn) Unlock() { <-t }

// New starts to maintain the key and to make checkpoints. Close ends it.
func New(opts Options) *Maker {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Maker{opts: opts, log: opts.Logger, pending: map[uint64]bool{}}
	s.keys.turn, s.demand.kick = make(turn, 1), make(chan struct{}, 1)
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.keys.disk, s.keys.path, s.keys.cluster = opts.FS, opts.KeyFile, opts.Cluster
	if err := s.keys.open(); err != nil {
		s.log.Warn("cannot read signing key; asking other members", "err", err)
	}
	s.loops.Go(s.tendKey)
	s.loops.Go(s.makeCheckpoints)
	return s
}

// Close stops the Maker. The store must still be open.
func (s *Maker) Close() error {
	s.stop()
	s.loops.Wait()
	s.answer(s.demand.take(), ErrClosed)
	s.newest.Lock()
	defer s.newest.Unlock()
	return s.forgetLocked()
}

// forgetLocked lets go of the newest checkpoint.
func (s *Maker) forgetLocked() error {
	if s.newest.made == nil {
		return nil
	}
	err := s.newest.made.heads.Close()
	s.newest.made = nil
	return err
}

// Signer returns the signer with the newest key that this node has used; nil: none. It asks no
// other member.
func (s *Maker) Signer() *proof.Signer { return s.signer.Load() }

// Sign returns a statement as a note that is signed with the cluster's key. While the node does not
// have the key, the note ends before its signatures.
func (s *Maker) Sign(ctx context.Context, st *proof.Statement) (note string, signed bool, err error) {
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
