package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server/cluster"
	"runlog/storage"
)

// askAgainAfter is the delay before a leader that has refused is asked again, if no other node
// leads.
const askAgainAfter = 50 * time.Millisecond

// AtLeader calls do with the leader, and again with the next one if do returns an error that wraps
// raft.ErrNotLeader. While the cluster has no leader it waits, at most Options.LeaderWait, and
// leaves time to answer before the call's deadline. Then it returns NotLeader.
func (r *Replica) AtLeader(ctx context.Context, do func(*cluster.Leadership) error) error {
	waiting, cancel := r.leaderWait(ctx)
	defer cancel()
	var refused *cluster.Leadership
	for {
		if r.opts.Cluster.AwaitLeader(waiting, refused) != nil {
			return r.NotLeader()
		}
		leadership, err := r.opts.Cluster.Leader()
		if err != nil {
			continue
		}
		if err = do(leadership); err == nil || !errors.Is(err, raft.ErrNotLeader) {
			return err
		}
		refused = r.otherThan(waiting, leadership)
	}
}

// leaderWait bounds the wait for a leader.
func (r *Replica) leaderWait(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := r.opts.LeaderWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)*9/10)
	}
	return context.WithTimeout(ctx, wait)
}

// otherThan waits briefly for another leader than one that has refused. It returns nil if there is
// none: the same leader may be asked again.
func (r *Replica) otherThan(ctx context.Context, refused *cluster.Leadership) *cluster.Leadership {
	ctx, cancel := context.WithTimeout(ctx, askAgainAfter)
	defer cancel()
	if r.opts.Cluster.AwaitLeader(ctx, refused) == nil {
		return refused
	}
	return nil
}

// NotLeader returns the error of a call that only the leader can answer: the leader's address, or
// that there is no leader.
func (r *Replica) NotLeader() error {
	if ahead := r.stamps.Ahead(); ahead > 0 && r.node.Leading() {
		return &contract.Error{Reason: contract.ReasonNoLeader, Message: fmt.Sprintf(
			"the leader takes no appends, because its clock is %v ahead of a majority of the voters, "+
				"and no other node has taken over yet; nothing was stored; synchronise the clocks", ahead.Round(time.Second))}
	}
	address := r.opts.Cluster.LeaderAddress()
	if address == "" || address == r.opts.GRPCAddress {
		return &contract.Error{Reason: contract.ReasonNoLeader,
			Message: "the cluster has no leader now, because nodes are down or one is being elected; nothing was stored"}
	}
	return &contract.Error{Reason: contract.ReasonNotLeader,
		Message:  fmt.Sprintf("the leader is at %s; nothing was stored", address),
		Metadata: map[string]string{"leader": address}}
}

// OtherLeader is the address for clients of another node that leads; empty: this one leads, or none
// is known.
func (r *Replica) OtherLeader() string {
	if r.Leading() {
		return ""
	}
	return r.opts.Cluster.LeaderAddress()
}

// WaitLeading returns when this node leads, and has applied the entries of earlier leaders.
func (r *Replica) WaitLeading(ctx context.Context) error { return r.node.WaitLeading(ctx) }

// LeaderChange returns a channel that is closed when the leader changes, or this node starts or
// stops leading.
func (r *Replica) LeaderChange() <-chan struct{} { return r.node.LeaderChange() }

// AwaitLeader waits until there is a leader, or ctx ends.
func (r *Replica) AwaitLeader(ctx context.Context) error { return r.opts.Cluster.AwaitLeader(ctx, nil) }

// ReadIndex returns once everything that was acknowledged before the call is applied here (READ-2,
// D8). A read of this node's store that begins then is linearizable, on a follower too:
//
//	this node   asks the leader for a position, after the call has begun
//	leader      confirms that it still leads (raft.Node.ConfirmLeader). By then it has applied all
//	            that any node may have acknowledged; its applied position is the answer
//	this node   waits until it has applied that position
//
// A leader that was deposed cannot confirm, so AtLeader asks its successor. A link that breaks
// tells nothing about the leader: the question has no effect, and is asked again.
func (r *Replica) ReadIndex(ctx context.Context) error {
	return r.AtLeader(ctx, func(leadership *cluster.Leadership) error {
		if leadership.Link == nil {
			return r.node.ConfirmLeader(ctx)
		}
		position, err := r.opts.Cluster.ReadPosition(ctx, leadership)
		if err != nil {
			return err
		}
		return r.Await(ctx, position)
	})
}

// CloseThrough asks the leader to guarantee that no event will be stamped at or before a time any
// more (READ-4, D7); 0 is now. It returns the time, and the position that this node must have
// applied to have all events of that time.
func (r *Replica) CloseThrough(ctx context.Context, at int64) (position storage.Position, to int64, err error) {
	err = r.AtLeader(ctx, func(leadership *cluster.Leadership) (err error) {
		position, to, err = r.opts.Cluster.CloseThrough(ctx, leadership, at)
		return err
	})
	return position, to, err
}
