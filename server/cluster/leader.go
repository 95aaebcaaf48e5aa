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

// ErrNoLeader means that this node knows of nobody who leads.
var ErrNoLeader = errors.New("cluster: nobody leads")

// Leadership is the time in which one node leads, as far as this node knows.
type Leadership struct {
	// Link to the leader; nil: this node leads.
	Link *Link

	id, address string
	over        context.Context
	end         context.CancelFunc
}

// Bound returns a context that ends with the call's or with the leadership, so that nobody waits for an
// answer of a node that is gone.
func (r *Leadership) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(r.over, func() { cancel(ErrNoLeader) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

// reigns has the one that is.
type reigns struct {
	mu  sync.Mutex
	now *Leadership
}

// Leader returns whose leadership it is, or ErrNoLeader. The same leadership is the same pointer.
func (c *Cluster) Leader() (*Leadership, error) {
	r := c.running.Load()
	if r == nil {
		return nil, ErrNoLeader
	}
	address, id := r.node.Leader()
	c.reigns.mu.Lock()
	defer c.reigns.mu.Unlock()
	now := c.reigns.now
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
				c.reigns.now = nil
				return nil, fmt.Errorf("%w: %w", ErrNoLeader, err)
			}
		}
		c.reigns.now = now
	}
	// This node applies what earlier leaders left before it leads.
	if id == "" || id == c.selfID() && !r.node.Leading() {
		return nil, ErrNoLeader
	}
	return now, nil
}

// selfID never changes.
func (c *Cluster) selfID() string { return c.opts.Identity.RaftID() }

// LeaderAddress is where clients reach the leader; empty: nobody leads, or it has not said so yet.
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

// leaderStep is how often a new leader is asked whether it has taken over: that comes some time
// after it was elected.
const leaderStep = 5 * time.Millisecond

// AwaitLeader returns in another leadership than one that has refused or not answered, or when the
// context ends.
func (c *Cluster) AwaitLeader(ctx context.Context, than *Leadership) error {
	r := c.running.Load()
	if r == nil {
		return ErrNoLeader
	}
	for {
		// A caller asks again and again while somebody leads that refuses.
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

// followLeader ends reigns when they are over, and asks each new leader where clients reach it.
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
