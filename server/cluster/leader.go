package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
	"runlog/storage"
)

// ErrNoLeader means that this node has no leader.
var ErrNoLeader = errors.New("cluster: no leader")

// Leadership is one node's time as the leader, as far as this node has seen. It never changes, but
// it ends: over is done when a call of Leader has found another leader, or the link closed. Its
// waiting callers then ask the next leader.
type Leadership struct {
	// Link to the leader; nil: this node leads.
	Link *Link

	id, address string
	over        context.Context
	end         context.CancelFunc
}

// Bound returns a context that ends with the call's or with the leadership: a caller must not wait
// for the answer of a lost node.
func (r *Leadership) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(r.over, func() { cancel(ErrNoLeader) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

// leaderships has the current one. Each call of Leader compares it with what Raft knows, and
// replaces it if the leader is another one. followLeader calls it at each change, so that the calls
// that wait for a past leader end.
type leaderships struct {
	mu  sync.Mutex
	now *Leadership // guarded by mu
}

// Leader returns the current leadership, or ErrNoLeader. The same leadership is the same pointer.
func (c *Cluster) Leader() (*Leadership, error) {
	r := c.running.Load()
	if r == nil {
		return nil, ErrNoLeader
	}
	address, id := r.node.Leader()
	c.lead.mu.Lock()
	defer c.lead.mu.Unlock()
	now := c.lead.now
	if now == nil || now.id != id || now.address != address || now.Link.closed() {
		if now != nil {
			now.end()
		}
		now = &Leadership{id: id, address: address}
		now.over, now.end = context.WithCancel(c.stopping)
		if id != "" && id != c.selfID() {
			var err error
			if now.Link, err = c.links.to(id, address); err != nil {
				now.end()
				c.lead.now = nil
				return nil, fmt.Errorf("%w: %w", ErrNoLeader, err)
			}
		}
		c.lead.now = now
	}
	// A new leader applies the entries of earlier leaders first.
	if id == "" || id == c.selfID() && !r.node.Leading() {
		return nil, ErrNoLeader
	}
	return now, nil
}

// selfID never changes.
func (c *Cluster) selfID() string { return c.opts.Identity.RaftID() }

// LeaderAddress is the leader's address for clients; empty: no leader, or its address is not known
// yet.
func (c *Cluster) LeaderAddress() string {
	switch r, err := c.Leader(); {
	case err != nil:
		return ""
	case r.Link == nil:
		return c.opts.GRPC
	default:
		return r.Link.GRPCAddress()
	}
}

// leaderStep is the interval of questions to a new leader: it takes over some time after its
// election.
const leaderStep = 5 * time.Millisecond

// AwaitLeader returns in a later leadership than one that has refused or not answered, or when the
// context ends.
func (c *Cluster) AwaitLeader(ctx context.Context, than *Leadership) error {
	r := c.running.Load()
	if r == nil {
		return ErrNoLeader
	}
	for {
		// A caller retries while a leader refuses.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if c.stopping.Err() != nil {
			return ErrNoLeader
		}
		changed := r.node.LeaderChange()
		step := time.Hour
		switch now, err := c.Leader(); {
		case err == nil && now != than:
			return nil
		case err != nil:
			step = leaderStep
		}
		select {
		case <-changed:
		case <-time.After(step):
		case <-c.stopping.Done():
			return ErrNoLeader
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ReadPosition asks the leader for the position that this node must have applied before it answers
// a linearizable read.
func (c *Cluster) ReadPosition(ctx context.Context, r *Leadership) (storage.Position, error) {
	ctx, done := r.Bound(ctx)
	defer done()
	resp, err := r.Link.node.ReadPosition(ctx, &nodev1.ReadPositionRequest{})
	if err != nil {
		return 0, fmt.Errorf("%w: %w", raft.ErrNotLeader, err)
	}
	return storage.Position(resp.Position), nil
}

// followLeader ends past leaderships, and asks each new leader for its client addresses.
func (c *Cluster) followLeader() {
	r := c.running.Load()
	for {
		changed := r.node.LeaderChange()
		step := time.Hour
		if now, err := c.Leader(); err == nil && now.Link != nil && now.Link.about.Load() == nil {
			ctx, cancel := context.WithTimeout(c.stopping, askTimeout)
			if _, err := now.Link.describe(ctx); err != nil {
				step = askStep
			}
			cancel()
		}
		select {
		case <-changed:
		case <-time.After(step):
		case <-c.stopping.Done():
			return
		}
	}
}
