package raft

import (
	"context"
	"fmt"
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

// AutopilotOptions configure when the leader changes the members by itself.
type AutopilotOptions struct {
	// StableAfter is how long a new member must have kept up before it becomes a voter. Default: 5
	// s.
	StableAfter time.Duration
	// DeadAfter is how long a member may fail to answer before the leader removes it. The leader
	// removes only a minority, and only while MinVoters remain. Default: 10 min; negative: never.
	DeadAfter time.Duration
	// MinVoters must remain when the leader removes a dead member. Default: 3: of three nodes, the
	// leader removes a dead one after a fourth has joined.
	MinVoters uint
	// Every is the interval between two checks. Default: 1 s.
	Every time.Duration
}

func (o *AutopilotOptions) ensureDefaults() {
	if o.StableAfter == 0 {
		o.StableAfter = 5 * time.Second
	}
	if o.DeadAfter == 0 {
		o.DeadAfter = 10 * time.Minute
	}
	if o.MinVoters == 0 {
		o.MinVoters = 3
	}
	if o.Every == 0 {
		o.Every = time.Second
	}
}

const (
	// maxTrailing is how many entries a healthy member may lag.
	maxTrailing = 1000
	// askTimeout bounds one round of questions to the members.
	askTimeout = time.Second
)

// pilot adapts a Node to hashicorp's autopilot. It runs only while this node leads.
type pilot struct {
	n    *Node
	auto *autopilot.Autopilot // run starts it with each leadership, and stops it

	mu struct {
		sync.Mutex
		// answered says when each member gave its last answer, or was first asked for one. run
		// empties it before a leadership, because only answers to this leader count.
		answered map[hraft.ServerID]time.Time
	}
}

var _ autopilot.ApplicationIntegration = (*pilot)(nil)

func newPilot(n *Node) *pilot {
	p := &pilot{n: n}
	p.mu.answered = make(map[hraft.ServerID]time.Time)
	every := n.opts.Autopilot.Every
	p.auto = autopilot.New(promoter{n.raft, p}, p, autopilot.WithLogger(n.library.Logger()),
		autopilot.WithUpdateInterval(every), autopilot.WithReconcileInterval(every))
	return p
}

// promoter is hashicorp/raft with a stricter AddVoter: it promotes only current members, at their
// current addresses, that answer now. Autopilot acts on an older view: it would add a removed node
// again, restore an old address, or promote a member that has died since.
type promoter struct {
	*hraft.Raft
	p *pilot
}

// AddVoter makes a member a voter.
func (p promoter) AddVoter(id hraft.ServerID, _ hraft.ServerAddress, _ uint64, _ time.Duration) hraft.IndexFuture {
	n := p.p.n
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	defer cancel()
	if err := n.takeTurn(ctx); err != nil {
		return changed{err}
	}
	defer n.giveTurn()
	m, known := find(n.Members(), string(id))
	if !known {
		return changed{ErrNotMember}
	}
	if err := p.p.mayVote(ctx, m); err != nil {
		n.opts.Logger.Warn("member may not vote yet; retrying", "member", m.ID, "address", m.Address, "err", err)
		return changed{err}
	}
	return changed{n.change(ctx, p.Raft.AddVoter(id, hraft.ServerAddress(m.Address), 0, changeTimeout))}
}

// mayVote asks a member right before it becomes a voter. A dead second voter would cost a single
// node its majority for good: the two could not even remove it. The member can still die between
// its answer and the change, so a founder should get two more members, not one.
func (p *pilot) mayVote(ctx context.Context, m Member) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := p.n.opts.Ask(ctx, m)
	if err != nil {
		return fmt.Errorf("%w: %s does not answer: %w", errNotReady, m.ID, err)
	}
	own := p.n.Progress()
	if got.LastContact < 0 || got.LastContact > p.contactThreshold() {
		return fmt.Errorf("%w: %s does not hear the leader", errNotReady, m.ID)
	}
	if got.LastTerm != own.LastTerm || got.LastIndex+maxTrailing < own.LastIndex {
		return fmt.Errorf("%w: %s is at entry %d, the leader at %d", errNotReady, m.ID, got.LastIndex, own.LastIndex)
	}
	return nil
}

// changed is the future of a change that is over.
type changed struct{ err error }

func (c changed) Error() error { return c.err }
func (changed) Index() uint64  { return 0 }

// run starts autopilot whenever this node leads, and stops it afterwards, until the node closes.
func (p *pilot) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-p.n.stop
		cancel()
	}()
	// A node that closes may lead until its last loop has ended, and this is one of them.
	for ctx.Err() == nil && p.n.WaitLeading(ctx) == nil {
		// A member is not dead because it did not answer an earlier leader.
		p.mu.Lock()
		clear(p.mu.answered)
		p.mu.Unlock()
		p.auto.Start(ctx)
		_ = p.n.WaitFollowing(ctx)
		<-p.auto.Stop()
		p.n.metrics.tolerance.clear()
	}
}

// AutopilotConfig implements autopilot.ApplicationIntegration.
func (p *pilot) AutopilotConfig() *autopilot.Config {
	o := &p.n.opts.Autopilot
	return &autopilot.Config{
		CleanupDeadServers: o.DeadAfter > 0, LastContactThreshold: p.contactThreshold(),
		MaxTrailingLogs: maxTrailing, MinQuorum: o.MinVoters, ServerStabilizationTime: o.StableAfter,
	}
}

// contactThreshold is the silence after which a member is not healthy.
func (p *pilot) contactThreshold() time.Duration { return 2 * p.n.opts.ElectionTimeout }

// NotifyState implements autopilot.ApplicationIntegration.
func (p *pilot) NotifyState(s *autopilot.State) {
	p.n.metrics.tolerance.set(float64(s.FailureTolerance))
}

// KnownServers implements autopilot.ApplicationIntegration: the members, of which those are dead
// that have not answered for too long.
func (p *pilot) KnownServers() map[hraft.ServerID]*autopilot.Server {
	_, leader := p.n.Leader()
	known := make(map[hraft.ServerID]*autopilot.Server)
	for _, m := range p.n.Members() {
		id := hraft.ServerID(m.ID)
		known[id] = &autopilot.Server{
			ID: id, Name: m.ID, Address: hraft.ServerAddress(m.Address), NodeStatus: p.health(id),
			RaftVersion: int(hraft.ProtocolVersionMax), IsLeader: m.ID == leader, NodeType: autopilot.NodeVoter,
		}
	}
	return known
}

func (p *pilot) health(id hraft.ServerID) autopilot.NodeStatus {
	after := p.n.opts.Autopilot.DeadAfter
	p.mu.Lock()
	defer p.mu.Unlock()
	at, asked := p.mu.answered[id]
	if string(id) != p.n.opts.NodeID && asked && after > 0 && time.Since(at) > after {
		return autopilot.NodeFailed
	}
	return autopilot.NodeAlive
}

// FetchServerStats implements autopilot.ApplicationIntegration: it asks all members at once.
func (p *pilot) FetchServerStats(ctx context.Context, servers map[hraft.ServerID]*autopilot.Server,
) map[hraft.ServerID]*autopilot.ServerStats {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var asked sync.WaitGroup
	var mu sync.Mutex
	stats := make(map[hraft.ServerID]*autopilot.ServerStats, len(servers))
	for id, s := range servers {
		p.mu.Lock()
		if _, known := p.mu.answered[id]; !known {
			p.mu.answered[id] = time.Now()
		}
		silent := time.Since(p.mu.answered[id])
		p.mu.Unlock()
		asked.Go(func() {
			got, err := p.ask(ctx, s)
			if err != nil && silent > p.contactThreshold() {
				// Autopilot would keep the member's last answer, and with it the member's health.
				mu.Lock()
				stats[id] = &autopilot.ServerStats{LastContact: silent}
				mu.Unlock()
			}
			if err != nil {
				return
			}
			mu.Lock()
			stats[id] = &autopilot.ServerStats{LastContact: got.LastContact, LastTerm: got.LastTerm, LastIndex: got.LastIndex}
			mu.Unlock()
			p.mu.Lock()
			p.mu.answered[id] = time.Now()
			p.mu.Unlock()
		})
	}
	asked.Wait()
	return stats
}

func (p *pilot) ask(ctx context.Context, s *autopilot.Server) (Progress, error) {
	if string(s.ID) == p.n.opts.NodeID {
		return p.n.Progress(), nil
	}
	return p.n.opts.Ask(ctx, Member{ID: string(s.ID), Address: string(s.Address)})
}

// RemoveFailedServer implements autopilot.ApplicationIntegration. It must not block.
func (p *pilot) RemoveFailedServer(s *autopilot.Server) {
	p.n.opts.Logger.Warn("removing unresponsive member", "member", s.ID, "limit", p.n.opts.Autopilot.DeadAfter)
	p.n.done.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
		defer cancel()
		if err := p.n.Remove(ctx, string(s.ID)); err != nil {
			p.n.opts.Logger.Warn("cannot remove dead member; retrying", "member", s.ID, "err", err)
		}
	})
}
