package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
	"runlog/raft/witness"
	"runlog/server/peer"
	"runlog/storage"
)

const (
	// meetStep is the interval at which a running node greets the other members.
	meetStep = 2 * time.Second
	// meetWait is how long a starting node waits for the other members. One that does not answer
	// cannot object, and a majority must be able to start without the others.
	meetWait = 2 * time.Second
)

// meetFirst is raft.Options.Meet: before the node takes part, it asks all members that it reaches
// what they remember of it (D3).
func (c *Cluster) meetFirst(store *storage.Store) func(*witness.Witness) error {
	return func(w *witness.Witness) error {
		c.witness.Store(w) // others that start ask this node
		addresses, err := c.acquaintances(store)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.stopping, meetWait)
		defer cancel()
		silent, err := c.meetAll(ctx, w, addresses, askStep)
		if err == nil && len(silent) > 0 {
			// They cannot say whether this directory is an older copy.
			c.log.Info("starting without an answer of other members", "raft", strings.Join(silent, ","), "waited", meetWait)
		}
		return err
	}
}

// acquaintances are the addresses at which members were known before this start.
func (c *Cluster) acquaintances(store *storage.Store) ([]string, error) {
	me := c.Identity()
	applied, err := store.Membership()
	if err != nil {
		return nil, err
	}
	all := addressesOf(me.Founders)
	if applied.Index > 0 {
		all = addressesOf(raft.DecodeMembers(applied.Data))
	}
	all = append(append(all, me.Via...), c.opts.Join...)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(a string) bool { return a == c.opts.Advertise }), nil
}

// keepMeeting greets the other members at intervals, and at once when one of them has started. It
// stops the node if one knows that its data directory is an older copy, or one of two copies.
func (c *Cluster) keepMeeting() {
	r, w := c.running.Load(), c.witness.Load()
	for {
		addresses := slices.DeleteFunc(addressesOf(r.node.Members()), func(a string) bool { return a == c.opts.Advertise })
		ctx, cancel := context.WithTimeout(c.stopping, askTimeout)
		_, err := c.meetAll(ctx, w, addresses, 0)
		cancel()
		if err != nil {
			c.opts.Fail(err)
			return
		}
		select {
		case <-time.After(meetStep):
		case <-c.arrived:
		case <-c.stopping.Done():
			return
		}
	}
}

// meetAll greets the nodes at all addresses at once, and again after a pause those that do not
// answer, until the context ends; a pause of 0: once. It returns the addresses without an answer.
// An error means that this node must not go on.
func (c *Cluster) meetAll(ctx context.Context, w *witness.Witness, addresses []string, pause time.Duration) (silent []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, address := range addresses {
		asked.Go(func() {
			answered, fault := c.meet(ctx, w, address)
			for pause > 0 && !answered && fault == nil && ctx.Err() == nil {
				select {
				case <-time.After(pause):
					answered, fault = c.meet(ctx, w, address)
				case <-ctx.Done():
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if fault != nil && err == nil {
				err = fmt.Errorf("cluster: node %s: %w", c.Identity().NodeID, fault)
				cancel()
			}
			if !answered {
				silent = append(silent, address)
			}
		})
	}
	asked.Wait()
	return silent, err
}

// meet greets the node at an address. It reports whether there will be no better answer. An error
// means that this node must not go on.
func (c *Cluster) meet(ctx context.Context, w *witness.Witness, address string) (answered bool, err error) {
	k, _ := c.links.to("", address)
	if k == nil {
		return false, nil // the node closes
	}
	sent := time.Now()
	resp, err := k.node.Meet(ctx, encodeGreeting(w.Greeting()))
	if err != nil {
		// A build of before, or a node of another cluster.
		return status.Code(err) == codes.Unimplemented || fatal(err) || fatalRefusal(k), nil
	}
	return true, w.Judge(decodeAnswer(resp), sent, "the member at "+address)
}

func fatalRefusal(k *Link) bool {
	refused := refusal(k)
	return refused != nil && fatal(refused)
}

// Meet answers another node's greeting.
func (s *service) Meet(ctx context.Context, req *nodev1.MeetRequest) (*nodev1.MeetResponse, error) {
	c := s.c
	who, _ := peer.From(ctx)
	w := c.witness.Load()
	if w == nil || who.Cluster != c.self().Cluster {
		return nil, errDown
	}
	if c.running.Load() != nil {
		if refused := c.member(who); refused != nil {
			return nil, notHere(refused.Message)
		}
	}
	answer, fresh, err := w.Hear(who.RaftID, decodeGreeting(req))
	if err != nil {
		c.opts.Fail(fmt.Errorf("cluster: node %s: %w", c.Identity().NodeID, err))
	}
	if fresh { // it may not have reached this node when it started
		select {
		case c.arrived <- struct{}{}:
		default:
		}
	}
	if err != nil && !errors.Is(err, witness.ErrTwoCopies) {
		return nil, errDown
	}
	return encodeAnswer(answer), nil
}

func encodeGreeting(g witness.Greeting) *nodev1.MeetRequest {
	req := &nodev1.MeetRequest{
		RaftAddress: g.Address, Term: g.Term, LastIndex: g.Index, LastTerm: g.LastTerm, OverruledTerm: g.Overruled,
		LeaderRaftId: g.Leader.ID, LeaderTerm: g.Leader.Term,
	}
	for _, i := range g.Incarnations {
		req.Incarnations = append(req.Incarnations, encodeIncarnation(i))
	}
	return req
}

func decodeGreeting(req *nodev1.MeetRequest) witness.Greeting {
	g := witness.Greeting{Address: req.GetRaftAddress(), Standing: witness.Standing{
		Term: req.GetTerm(), Index: req.GetLastIndex(), LastTerm: req.GetLastTerm(), Overruled: req.GetOverruledTerm(),
	}, Leader: witness.Leader{ID: req.GetLeaderRaftId(), Term: req.GetLeaderTerm()}}
	for _, i := range req.GetIncarnations() {
		g.Incarnations = append(g.Incarnations, decodeIncarnation(i))
	}
	return g
}

func encodeIncarnation(i witness.Incarnation) *nodev1.Incarnation {
	if i.Number == 0 {
		return nil
	}
	return &nodev1.Incarnation{Number: i.Number, Id: i.ID}
}

func decodeIncarnation(i *nodev1.Incarnation) witness.Incarnation {
	return witness.Incarnation{Number: i.GetNumber(), ID: i.GetId()}
}

func encodeAnswer(a witness.Answer) *nodev1.MeetResponse {
	return &nodev1.MeetResponse{
		Incarnation: encodeIncarnation(a.You.Incarnation), Term: a.You.Term, Index: a.You.Index, IndexTerm: a.You.LogTerm,
		SeenNanos: int64(a.Seen), SeenAddress: a.Address,
		Rival: encodeIncarnation(a.Rival), RivalTimes: uint32(a.RivalTimes), RivalSeenNanos: int64(a.RivalSeen), RivalAddress: a.RivalAddress,
		Self: encodeGreeting(a.Self),
	}
}

func decodeAnswer(resp *nodev1.MeetResponse) witness.Answer {
	return witness.Answer{
		You: witness.Recollection{
			Incarnation: decodeIncarnation(resp.GetIncarnation()), Term: resp.GetTerm(), Index: resp.GetIndex(), LogTerm: resp.GetIndexTerm(),
		},
		Seen: time.Duration(resp.GetSeenNanos()), Address: resp.GetSeenAddress(),
		Rival: decodeIncarnation(resp.GetRival()), RivalTimes: int(resp.GetRivalTimes()),
		RivalSeen: time.Duration(resp.GetRivalSeenNanos()), RivalAddress: resp.GetRivalAddress(),
		Self: decodeGreeting(resp.GetSelf()),
	}
}
