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
	"runlog/server/transfer"
	"runlog/storage"
)

// EnsureState gives the store of a node the cluster's state, where it lacks what no log goes back
// to any more, before the node takes part (D5). Installing while it takes part would hold up its
// Raft.
func (c *Cluster) EnsureState(ctx context.Context, store *storage.Store) error {
	for {
		from, err := c.needsState(ctx, store.Applied().Index)
		if err != nil || from == nil {
			return err
		}
		err = c.pull(ctx, from, store)
		switch {
		case errors.Is(err, storage.ErrOlder):
			// Who leads has applied less than this node: it is behind itself, or is led by another
			// soon.
			c.log.Warn("the leader has applied less than this node, asking again", "err", err)
		case errors.Is(err, errSourceLost):
			// Another has the state, too. Where nobody leads, that may be because this node does
			// not vote meanwhile.
			c.log.Warn("the node that the state comes from does not answer, asking others", "from", from.key.address)
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
	s := new(seeding)
	c.seeding.Store(s)
	defer c.seeding.Store(nil)
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
			c.log.Info("the cluster's state is coming", "from", from.key.address, "bytes", have, "of", total)
			told = time.Now()
		}
	}, c.log)
	if err != nil {
		return err
	}
	if err = received.Install(); errors.Is(err, storage.ErrOlder) {
		received.Discard()
	}
	return err
}

// errSourceLost means that the node from which the state comes does not take part, or does not
// answer.
var errSourceLost = errors.New("cluster: the node that the state comes from is gone")

// watchSource cancels a pull when its source is gone for lostAfter.
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

// needsState tells whether a node that has applied everything up to an index has to be given the
// cluster's state before it takes part, because no log goes back so far: then it returns the link
// to the node to have it from. A node that has applied nothing waits for a member that leads; any
// other is not held up by members that do not answer.
func (c *Cluster) needsState(ctx context.Context, applied uint64) (from *Link, err error) {
	me := c.Identity()
	if me.Founding && applied == 0 {
		return nil, nil // it hears everything from the beginning
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
			return nil, nil // perhaps nobody leads because this node is missing
		}
		if time.Since(told) > tellStep {
			c.log.Info("waiting for a member to have the cluster's state from", "err", explain(err))
			told = time.Now()
		}
		select {
		case <-time.After(askStep):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
