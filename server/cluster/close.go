package cluster

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
	"runlog/storage"
)

// maxAhead is how far ahead of the leader's clock a requested time may be for the leader to wait:
// clocks differ, and a request for "until now" means the leader's now.
const maxAhead = time.Second

// CloseThrough makes the leader guarantee that no later event gets a stamp at or before a time
// (READ-4, D7). It returns the position that this node must have applied. Times are nanoseconds
// since 1970; 0 means the stamp of an event proposed now, which is returned. For a time further
// ahead, the position is that of a linearizable read.
func (c *Cluster) CloseThrough(ctx context.Context, r *Leadership, at int64) (storage.Position, int64, error) {
	if r.Link == nil {
		return c.closeHere(ctx, at)
	}
	ctx, done := r.Bound(ctx)
	defer done()
	resp, err := r.Link.node.CloseThrough(ctx, &nodev1.CloseThroughRequest{Time: at})
	if status.Code(err) == codes.Unimplemented {
		return 0, 0, err
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", raft.ErrNotLeader, err)
	}
	return storage.Position(resp.Position), resp.Time, nil
}

// CloseThrough is asked of the leader.
func (s *service) CloseThrough(ctx context.Context, req *nodev1.CloseThroughRequest) (*nodev1.CloseThroughResponse, error) {
	position, at, err := s.c.closeHere(ctx, req.Time)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &nodev1.CloseThroughResponse{Position: uint64(position), Time: at}, nil
}

func (c *Cluster) closeHere(ctx context.Context, at int64) (storage.Position, int64, error) {
	r := c.running.Load()
	if r == nil {
		return 0, 0, raft.ErrNotLeader
	}
	if at == 0 {
		at = next(r)
	}
	// Stamps may advance more slowly than time.
	for ahead := time.Duration(at - next(r)); ahead > 0 && ahead <= maxAhead; ahead = time.Duration(at - next(r)) {
		select {
		case <-time.After(ahead):
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
	}
	// One tick at a time: it usually closes the times of all waiting callers.
	select {
	case c.closing <- struct{}{}:
		defer func() { <-c.closing }()
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
	if now := r.store.Applied(); now.PersistedAt >= at {
		return now.Position(), at, nil
	}
	if next(r) < at {
		if err := r.node.ConfirmLeader(ctx); err != nil {
			return 0, 0, err
		}
		now := r.store.Applied()
		return now.Position(), at, nil
	}
	position, err := c.tick(ctx, r, at)
	return position, at, err
}

// next is the approximate stamp of a proposal made now (APP-5).
func next(r *running) int64 {
	applied := r.store.Applied()
	return max(r.node.Stamps().Now().UnixNano(), applied.PersistedAt+1)
}

// tick commits an empty proposal that moves the clock to a time that it has reached, or beyond, and
// returns its position.
func (c *Cluster) tick(ctx context.Context, r *running, at int64) (storage.Position, error) {
	me := c.Identity()
	id, err := me.Cluster()
	if err != nil {
		return 0, err
	}
	committed := make(chan error, 1)
	// Members refuse stamps from far ahead. If the last stamp is, apply gives the next nanosecond.
	stamp := r.node.Stamps().Next()
	if at > r.store.Applied().PersistedAt+1 {
		stamp = max(stamp, at)
	}
	err = r.node.Propose(storage.NewProposal(id, 0).Seal(stamp), func(_ []storage.Outcome, err error) { committed <- err })
	if err != nil {
		return 0, err
	}
	select {
	case err = <-committed:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err != nil {
		// Lost or not, the proposal stored nothing that a caller waits for: the caller can ask
		// another leader.
		return 0, fmt.Errorf("%w: %w", raft.ErrNotLeader, err)
	}
	now := r.store.Applied()
	return now.Position(), nil
}
