package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
	"runlog/raft/witness"
	"runlog/server/transfer"
	"runlog/storage"
)

// EnsureState transfers the cluster's state to the node's store before the node takes part, if no
// log reaches back far enough (D5). An install while the node takes part would delay its Raft.
func (c *Cluster) EnsureState(ctx context.Context, store *storage.Store) error {
	for {
		from, err := c.needsState(ctx, store.Applied().Index)
		c.wait("")
		if err != nil || from == nil {
			return err
		}
		err = c.pull(ctx, from, store)
		switch {
		case errors.Is(err, storage.ErrOlder):
			// The leader has applied less than this node: it lags itself, or another node will lead
			// soon.
			c.log.Warn("leader has applied less than this node; retrying", "err", err)
		case errors.Is(err, errSourceLost):
			// Another member has the state too. If there is no leader, that may be because this
			// node does not vote in the meantime.
			c.log.Warn("source of the state transfer does not answer; asking others", "from", from.key.address)
		default:
			return err
		}
		select {
		case <-time.After(askStep):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pull pulls the leader's state and makes it the store.
func (c *Cluster) pull(ctx context.Context, from *Link, store *storage.Store) error {
	s := new(received)
	c.receiving.Store(s)
	defer c.receiving.Store(nil)
	ctx, cancel := context.WithCancelCause(ctx)
	var watched sync.WaitGroup
	watched.Go(func() { c.watchSource(ctx, from, cancel) })
	defer watched.Wait()
	defer cancel(nil)
	var told time.Time
	received, err := transfer.Pull(ctx, from.node, store, func(have, total uint64) {
		s.have.Store(have)
		s.total.Store(total)
		if time.Since(told) > tellStep {
			c.log.Info("pulling the cluster's state", "from", from.key.address, "bytes", have, "of", total)
			told = time.Now()
		}
	}, c.log)
	if err != nil {
		return err
	}
	err = received.Install()
	if errors.Is(err, storage.ErrOlder) || errors.Is(err, storage.ErrDiverged) {
		received.Discard()
	}
	if errors.Is(err, storage.ErrDiverged) {
		err = fmt.Errorf("cluster: %w: %w. %s", raft.ErrDiverged, err, witness.KeepIt)
	}
	return err
}

// errSourceLost means that the sending node does not take part, or does not answer.
var errSourceLost = errors.New("cluster: source of the state transfer is lost")

// watchSource cancels a pull when its source is lost for lostAfter.
func (c *Cluster) watchSource(ctx context.Context, from *Link, cancel context.CancelCauseFunc) {
	for heard := time.Now(); ctx.Err() == nil; {
		asking, done := context.WithTimeout(ctx, askTimeout)
		about, err := from.describe(asking)
		done()
		switch {
		case err == nil && about.State == nodev1.NodeState_RUNNING:
			heard = time.Now()
		case time.Since(heard) > lostAfter:
			cancel(errSourceLost)
			return
		}
		select {
		case <-time.After(askStep):
		case <-ctx.Done():
		}
	}
}

// needsState reports whether a node with a given applied index needs a state transfer before it
// takes part, because no log reaches back that far; it returns the link to the source. A node
// without any state waits for a leading member. Other nodes do not wait for members that do not
// answer.
func (c *Cluster) needsState(ctx context.Context, applied uint64) (from *Link, err error) {
	me := c.Identity()
	if me.Founding && applied == 0 {
		return nil, nil // it receives the log from the beginning
	}
	var told time.Time
	for {
		for _, address := range append(slices.Clone(me.Via), c.opts.Join...) {
			if address == c.opts.Advertise {
				continue
			}
			resp, refused := c.askJoin(ctx, "", address, true)
			switch {
			case refused == nil && applied > 0 && resp.FirstIndex <= applied+1:
				return nil, nil
			case refused == nil:
				return c.links.to(resp.LeaderRaftId, resp.LeaderRaftAddress)
			case status.Code(refused) == codes.FailedPrecondition, applied == 0 && fatal(refused):
				return nil, fmt.Errorf("cluster: %s", explain(refused))
			case fatal(refused):
				c.log.Warn("a node that this one was told of is none of its cluster", "address", address, "err", explain(refused))
			}
			err = refused
		}
		if applied > 0 {
			return nil, nil // perhaps there is no leader because this node is missing
		}
		c.wait("waiting for a source of the cluster's state: " + explain(err))
		if time.Since(told) > tellStep {
			c.log.Info("waiting for a source of the cluster's state", "err", explain(err))
			told = time.Now()
		}
		select {
		case <-time.After(askStep):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
