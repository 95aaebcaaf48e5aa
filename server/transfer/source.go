package transfer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	nodev1 "runlog/proto/node/v1"
	"runlog/storage"
)

const (
	// seedIdle is how long a checkpoint is kept that nobody reads: while it is, the disk keeps
	// files that the store has done with, and the Raft log its entries.
	seedIdle = 2 * time.Minute
	// maxSeeds bounds the checkpoints that are out at a time.
	maxSeeds = 2
	// maxSeedID bounds the id of a checkpoint, in bytes.
	maxSeedID = 64
	// seedDelay is when a node that was refused one should ask again.
	seedDelay = 5 * time.Second
)

// castagnoli is the polynomial of every checksum between nodes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Source is the sender's side of seeding (D5): the calls of NodeService that hand out checkpoints
// of the store. A checkpoint is kept, under an id that its receiver made up at random, until it is
// closed or was not read from for a while, so that the receiver can go on with it on another
// connection, and ask again when an answer was lost. How fast one is sent is up to gRPC's flow
// control alone.
type Source struct {
	opts SourceOptions
	stop chan struct{}
	// the goroutine that closes what is idle, and calls that make a checkpoint
	joined sync.WaitGroup

	mu struct {
		sync.Mutex
		held map[string]*heldCheckpoint
		// taken counts the checkpoints that are held, that are being made, and that are being
		// closed. Invariant: len(held) ≤ taken ≤ maxSeeds.
		taken  int
		closed bool
	}
}

type heldCheckpoint struct {
	*storage.Checkpoint
	id   string
	used time.Time // when it was last read from; guarded by Source.mu
}

// SourceOptions are what a Source works with. All but Idle are required.
type SourceOptions struct {
	// Node is what the sender is called in Raft.
	Node string
	// Checkpoint is storage.Store.Checkpoint.
	Checkpoint func() (*storage.Checkpoint, error)
	// Hold is told +1 before a checkpoint is made, and -1 once it is gone: meanwhile the Raft log
	// is to keep what comes after it, so that its receiver can be brought forward from there.
	Hold func(change int)
	// Idle is how long a checkpoint is kept that nobody reads. Default: seedIdle.
	Idle time.Duration
	Log  *slog.Logger
	// Encode turns an error into the status that the receiver is told.
	Encode func(error) error
}

// NewSource begins to hand out checkpoints. It must be closed before the store is.
func NewSource(opts SourceOptions) *Source {
	if opts.Idle == 0 {
		opts.Idle = seedIdle
	}
	s := &Source{opts: opts, stop: make(chan struct{})}
	s.mu.held = map[string]*heldCheckpoint{}
	s.joined.Go(s.closeIdle)
	return s
}

// Close closes all checkpoints, also under those who read them, and refuses further ones.
func (s *Source) Close() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	close(s.stop)
	for _, h := range s.take(func(*heldCheckpoint) bool { return true }) {
		s.drop(h, "the node is stopping")
	}
	s.joined.Wait()
}

// closeIdle closes checkpoints that nobody has read for a while.
func (s *Source) closeIdle() {
	ticker := time.NewTicker(s.opts.Idle / 4)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		for _, h := range s.take(func(h *heldCheckpoint) bool { return time.Since(h.used) > s.opts.Idle }) {
			s.drop(h, "nobody reads it")
		}
	}
}

// OpenCheckpoint is NodeService's. Errors: INVALID_ARGUMENT for an id that is none, OVERLOADED when
// as many are out as may be, SHUTTING_DOWN after close, INTERNAL when the store has nothing or
// fails.
func (s *Source) OpenCheckpoint(ctx context.Context, req *nodev1.OpenCheckpointRequest) (*nodev1.OpenCheckpointResponse, error) {
	id := req.GetCheckpointId()
	if id == "" || len(id) > maxSeedID {
		return nil, status.Errorf(codes.InvalidArgument, "an id of %d bytes; it has 1 to %d", len(id), maxSeedID)
	}
	h := s.touch(id)
	if h == nil {
		if err := s.reserve(); err != nil {
			return nil, s.opts.Encode(err)
		}
		defer s.joined.Done()
		var err error
		if h, err = s.make(ctx, id); err != nil {
			return nil, s.opts.Encode(err)
		}
	}
	return &nodev1.OpenCheckpointResponse{
		Manifest: h.Manifest(), Origin: fmt.Sprintf("%s/%d", s.opts.Node, h.Database),
	}, nil
}

// reserve makes room for a checkpoint, and holds up close until joined is told that the call is
// done.
func (s *Source) reserve() *contract.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return errSeedsClosed
	}
	if s.mu.taken == maxSeeds {
		return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: seedDelay,
			Message: fmt.Sprintf("the node is seeding %d nodes and takes no further one", maxSeeds)}
	}
	s.mu.taken++
	s.joined.Add(1)
	return nil
}

var errSeedsClosed = &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping and hands out no checkpoint"}

// free gives back what reserve took.
func (s *Source) free() {
	s.opts.Hold(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.taken--
}

// make makes a checkpoint in the room that reserve has made, or returns one that another call has
// made meanwhile.
func (s *Source) make(ctx context.Context, id string) (*heldCheckpoint, error) {
	s.opts.Hold(+1) // first: what the log drops from here on is in the checkpoint
	c, err := s.opts.Checkpoint()
	if err != nil {
		s.free()
		return nil, err
	}
	h := &heldCheckpoint{Checkpoint: c, id: id, used: time.Now()}
	err = ctx.Err() // nobody would close what a receiver that has gone is not told of
	s.mu.Lock()
	if s.mu.closed {
		err = errSeedsClosed
	}
	other := s.mu.held[id]
	if err == nil && other == nil {
		s.mu.held[id] = h
	}
	s.mu.Unlock()
	if err != nil || other != nil {
		s.drop(h, "nobody waits for it")
		return other, err
	}
	s.opts.Log.Info("a checkpoint is out for another node", "index", c.Applied.Index, "database", c.Database, "bytes", c.Size())
	return h, nil
}

// ReadCheckpoint is NodeService's. The last message alone has the sum of the file. Errors:
// NOT_FOUND when the checkpoint is not there any more, INVALID_ARGUMENT when it has no such file or
// offset, INTERNAL when the disk fails.
func (s *Source) ReadCheckpoint(req *nodev1.ReadCheckpointRequest, stream grpc.ServerStreamingServer[nodev1.ReadCheckpointResponse]) error {
	h := s.touch(req.GetCheckpointId())
	if h == nil {
		return errForgotten
	}
	sum, err := h.ReadFile(req.GetFile(), req.GetOffset(), func(b []byte) error {
		if s.touch(h.id) == nil {
			return storage.ErrClosed
		}
		return stream.Send(&nodev1.ReadCheckpointResponse{Data: b, DataCrc: crc32.Checksum(b, castagnoli)})
	})
	switch {
	case errors.Is(err, storage.ErrNotInCheckpoint):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, storage.ErrClosed):
		return errForgotten
	case err != nil:
		return s.opts.Encode(err)
	}
	return stream.Send(&nodev1.ReadCheckpointResponse{FileCrc: &sum})
}

// CloseCheckpoint is NodeService's. It closes the checkpoint also under those who read it; one that
// there is not any more is closed.
func (s *Source) CloseCheckpoint(_ context.Context, req *nodev1.CloseCheckpointRequest) (*nodev1.CloseCheckpointResponse, error) {
	for _, h := range s.take(func(h *heldCheckpoint) bool { return h.id == req.GetCheckpointId() }) {
		s.drop(h, "its receiver is done")
	}
	return &nodev1.CloseCheckpointResponse{}, nil
}

// errForgotten tells a receiver to open another checkpoint.
var errForgotten = status.Error(codes.NotFound, "there is no such checkpoint any more; open another")

// touch returns a checkpoint and keeps it from being idle; nil when it is not there.
func (s *Source) touch(id string) *heldCheckpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.mu.held[id]
	if h != nil {
		h.used = time.Now()
	}
	return h
}

// take takes checkpoints out, for the caller to drop: nobody else does then.
func (s *Source) take(chosen func(*heldCheckpoint) bool) (taken []*heldCheckpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.mu.held {
		if chosen(h) {
			delete(s.mu.held, id)
			taken = append(taken, h)
		}
	}
	return taken
}

// drop closes a checkpoint. A file of it that is being read stays until that ends.
func (s *Source) drop(h *heldCheckpoint, why string) {
	if err := h.Close(); err != nil {
		s.opts.Log.Warn("the files of a checkpoint were not removed", "index", h.Applied.Index, "err", err)
	}
	s.free()
	s.opts.Log.Info("a checkpoint is not out any more", "index", h.Applied.Index, "because", why)
}
