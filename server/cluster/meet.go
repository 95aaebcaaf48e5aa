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
	"runlog/server/cluster/greeting"
	"runlog/server/peer"
	"runlog/storage"
)

const (
	// meetStep is the interval at which a running node greets the other members.
	meetStep = 2 * time.Second
	// meetWait is how long a starting node waits for the other members. One that does not answer
	// cannot object, and a majority must be able to start without the others.
	meetWait = 2 * time.Second
	// absentWait is how long it waits for a member that does not run: its host refuses connections.
	// It may be starting too.
	absentWait = 500 * time.Millisecond
)

// meetFirst is raft.Options.Meet: before the node takes part, it asks all members that it reaches
// what they remember of it (D3). While it waits it takes no entries either: a deposed leader that
// does not know yet could commit with the entries that an older copy has forgotten.
func (c *Cluster) meetFirst(store *storage.Store) func(*witness.Witness, []raft.Member, bool) error {
	return func(w *witness.Witness, ahead []raft.Member, fresh bool) error {
		c.witness.Store(w) // others that start ask this node
		members, hints, err := c.acquaintances(store, w, ahead)
		if err != nil {
			return err
		}
		c.wait("it asks the other members whether its data directory is an older copy")
		defer c.wait("")
		silent, err := c.meetAll(c.stopping, append(members, hints...), func(ctx context.Context, address string) (bool, error) {
			wait := meetWait
			if len(members) > 0 && slices.Contains(hints, address) || fresh {
				wait = askStep // these addresses are only hints
			}
			return c.meetWithin(ctx, w, address, wait)
		})
		if err == nil && len(silent) > 0 {
			// They cannot say whether this directory is an older copy.
			c.log.Info("starting without an answer of other members", "raft", strings.Join(silent, ","))
		}
		return err
	}
}

// acquaintances are the addresses of the members that were known before this start, and others at
// which members may be found. ahead are members that the log names and the store does not have yet.
func (c *Cluster) acquaintances(store *storage.Store, w *witness.Witness, ahead []raft.Member) (members, hints []string, err error) {
	me := c.Identity()
	applied, err := store.Membership()
	if err != nil {
		return nil, nil, err
	}
	known := slices.Clone(me.Founders)
	switch {
	case w.Alone() > store.Applied().Index: // what it has applied names those that were lost
		known = nil
	case applied.Index > 0:
		if known, err = raft.DecodeMembers(applied); err != nil {
			return nil, nil, err
		}
	}
	for _, m := range append(known, ahead...) {
		if m.ID != me.RaftID() && m.Address != c.opts.Advertise && !slices.Contains(members, m.Address) {
			members = append(members, m.Address)
		}
	}
	hints = append(slices.Clone(me.Via), c.opts.Join...)
	slices.Sort(hints)
	return members, slices.DeleteFunc(slices.Compact(hints), func(a string) bool { return a == c.opts.Advertise || slices.Contains(members, a) }), nil
}

// keepMeeting greets the other members at intervals, and at once when one of them has started. It
// stops the node if one knows that its data directory is an older copy, or one of two copies.
func (c *Cluster) keepMeeting() {
	r, w := c.running.Load(), c.witness.Load()
	for {
		addresses := slices.DeleteFunc(addressesOf(r.node.Members()), func(a string) bool { return a == c.opts.Advertise })
		ctx, cancel := context.WithTimeout(c.stopping, askTimeout)
		_, err := c.meetAll(ctx, addresses, func(ctx context.Context, address string) (bool, error) {
			answered, _, err := c.meet(ctx, w, address)
			return answered, err
		})
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

// meetAll greets the nodes at all addresses at once. It returns the addresses without an answer. An
// error means that this node must stop.
func (c *Cluster) meetAll(ctx context.Context, addresses []string, meet func(context.Context, string) (bool, error)) (silent []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, address := range addresses {
		asked.Go(func() {
			answered, fault := meet(ctx, address)
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

// meetWithin greets the node at an address until it answers, but no longer than wait.
func (c *Cluster) meetWithin(ctx context.Context, w *witness.Witness, address string, wait time.Duration) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for begun := time.Now(); ; {
		answered, absent, err := c.meet(ctx, w, address)
		if answered || err != nil || absent && time.Since(begun) >= absentWait {
			return answered, err
		}
		select {
		case <-time.After(askStep):
		case <-ctx.Done():
			return false, nil
		}
	}
}

// meet greets the node at an address. It reports whether there will be no better answer, and
// whether no node runs there. An error means that this node must stop.
func (c *Cluster) meet(ctx context.Context, w *witness.Witness, address string) (answered, absent bool, err error) {
	k, _ := c.links.to("", address)
	if k == nil {
		return false, true, nil // this node closes
	}
	sent := time.Now()
	resp, err := k.node.Meet(ctx, greeting.Encode(w.Greeting()))
	if err != nil {
		// A build of before, or a node of another cluster.
		return status.Code(err) == codes.Unimplemented || fatal(err) || fatalRefusal(k), k.absent.Load(), nil
	}
	return true, false, w.Judge(greeting.DecodeAnswer(resp), sent, "the member at "+address)
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
	g := greeting.Decode(req)
	var members []string
	if r := c.running.Load(); r != nil {
		for _, m := range r.node.Members() {
			members = append(members, m.ID)
		}
	}
	// This node may not know or reach a member that remembers it.
	var answer witness.Answer
	fresh, err := false, w.JudgeBy(g, who.RaftID, members)
	var stranger *peer.RefusedError
	if len(members) > 0 {
		stranger = c.member(who)
	}
	if err == nil && stranger == nil {
		answer, fresh, err = w.Hear(who.RaftID, g)
	}
	if err != nil {
		c.opts.Fail(fmt.Errorf("cluster: node %s: %w", c.Identity().NodeID, err))
	}
	if stranger != nil {
		return nil, notHere(stranger.Message)
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
	return greeting.EncodeAnswer(answer), nil
}
