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
	// idleLimit is how long an unread checkpoint is kept. It holds files of the store on the disk,
	// and entries in the Raft log.
	idleLimit = 2 * time.Minute
	// maxCheckpoints bounds the checkpoints that are out at a time.
	maxCheckpoints = 2
	// maxID bounds the id of a checkpoint, in bytes.
	maxID = 64
	// retryDelay is when a node that was refused one should ask again.
	retryDelay = 5 * time.Second
)

// castagnoli is the polynomial of every checksum between nodes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Source is the sender's side: the NodeService calls that serve checkpoints of the store. A
// checkpoint has a random id, chosen by its receiver. It stays until the receiver closes it, or
// has not read it for a while: the receiver can resume on another connection, and can ask again
// after a lost answer. gRPC's flow control alone limits the rate.
type Source struct {
	opts SourceOptions
	stop chan struct{}
	// the goroutine that closes idle checkpoints, and calls that make one
	joined sync.WaitGroup

	mu struct {
		sync.Mutex
		held map[string]*heldCheckpoint
		// taken counts the checkpoints that are held, that are being made, and that are being
		// closed. Invariant: len(held) ≤ taken ≤ maxCheckpoints.
		taken  int
		closed bool
	}
}

type heldCheckpoint struct {
	*storage.Checkpoint
	id   string
	used time.Time // when it was last read from; guarded by Source.mu
}

// SourceOptions configure a Source. All but Idle are required.
type SourceOptions struct {
	// Node is the sender's Raft ID.
	Node string
	// Checkpoint is storage.Store.Checkpoint.
	Checkpoint func() (*storage.Checkpoint, error)
	// Hold is called with +1 before a checkpoint is made, and with -1 after it is gone. In between,
	// the Raft log must keep the entries after it: the receiver continues from there.
	Hold func(change int)
	// Idle is how long an unread checkpoint is kept. Default: idleLimit.
	Idle time.Duration
	Log  *slog.Logger
	// Encode turns an error into the receiver's status.
	Encode func(error) error
}

// NewSource starts to serve checkpoints. Close it before the store.
func NewSource(opts SourceOptions) *Source {
	if opts.Idle == 0 {
		opts.Idle = idleLimit
	}
	s := &Source{opts: opts, stop: make(chan struct{})}
	s.mu.held = map[string]*heldCheckpoint{}
	s.joined.Go(s.closeIdle)
	return s
}

// Close closes all checkpoints, also while they are read, and refuses new ones.
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

// closeIdle closes idle checkpoints.
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

// OpenCheckpoint implements NodeService. Errors: INVALID_ARGUMENT for a bad id, OVERLOADED at the
// limit of open checkpoints, SHUTTING_DOWN after Close, INTERNAL if the store is empty or fails.
func (s *Source) OpenCheckpoint(ctx context.Context, req *nodev1.OpenCheckpointRequest) (*nodev1.OpenCheckpointResponse, error) {
	id := req.GetCheckpointId()
	if id == "" || len(id) > maxID {
		return nil, status.Errorf(codes.InvalidArgument, "an id of %d bytes; it has 1 to %d", len(id), maxID)
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

// reserve makes room for a checkpoint. Close waits until joined is called.
func (s *Source) reserve() *contract.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return errClosed
	}
	if s.mu.taken == maxCheckpoints {
		return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: retryDelay,
			Message: fmt.Sprintf("%d checkpoints are being sent, which is the limit", maxCheckpoints)}
	}
	s.mu.taken++
	s.joined.Add(1)
	return nil
}

var errClosed = &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is shutting down and sends no checkpoint"}

// free returns the room of reserve.
func (s *Source) free() {
	s.opts.Hold(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.taken--
}

// make makes a checkpoint in the reserved room, or returns one that a concurrent call has made.
func (s *Source) make(ctx context.Context, id string) (*heldCheckpoint, error) {
	s.opts.Hold(+1) // first: entries that the log drops from here on are in the checkpoint
	c, err := s.opts.Checkpoint()
	if err != nil {
		s.free()
		return nil, err
	}
	h := &heldCheckpoint{Checkpoint: c, id: id, used: time.Now()}
	err = ctx.Err() // the receiver has left, and would not close it
	s.mu.Lock()
	if s.mu.closed {
		err = errClosed
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
	s.opts.Log.Info("serving checkpoint to another node", "index", c.Applied.Index, "database", c.Database, "bytes", c.Size())
	return h, nil
}

// ReadCheckpoint implements NodeService. Only the last message has the file's checksum. Errors:
// NOT_FOUND if the checkpoint is gone, INVALID_ARGUMENT for a bad file or offset, INTERNAL if the
// disk fails.
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

// CloseCheckpoint implements NodeService. It closes the checkpoint also while it is read. A
// checkpoint that is gone counts as closed.
func (s *Source) CloseCheckpoint(_ context.Context, req *nodev1.CloseCheckpointRequest) (*nodev1.CloseCheckpointResponse, error) {
	for _, h := range s.take(func(h *heldCheckpoint) bool { return h.id == req.GetCheckpointId() }) {
		s.drop(h, "its receiver is done")
	}
	return &nodev1.CloseCheckpointResponse{}, nil
}

// errForgotten makes a receiver open another checkpoint.
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

// take removes checkpoints from the list; only the caller drops them.
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
		s.opts.Log.Warn("cannot remove files of a checkpoint", "index", h.Applied.Index, "err", err)
	}
	s.free()
	s.opts.Log.Info("checkpoint closed", "index", h.Applied.Index, "because", why)
}
