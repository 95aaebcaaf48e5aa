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
	"runlog/server/peer"
)

const (
	// askTimeout bounds a background question to another node.
	askTimeout = time.Second
	// askStep is the interval of retries to a node without a useful answer.
	askStep = 250 * time.Millisecond
	// voterTries is how often a voter is asked before it counts as down.
	voterTries = 3
	// tellStep is the interval at which the node logs what it waits for.
	tellStep = 10 * time.Second
)

// Form returns once the node belongs to a cluster: its current one; one that it founds, with the
// expected nodes or alone; or one found at a join address, or that has invited it. It waits for
// other nodes until the context ends, and logs what it waits for.
func (c *Cluster) Form(ctx context.Context) error {
	var told time.Time
	for {
		changed := c.changed()
		if me := c.Identity(); me.ClusterID != "" {
			c.wait("")
			if len(me.Founders) > 1 && !me.Started {
				return c.inviteFounders(ctx, me)
			}
			return nil
		}
		waiting, err := c.tryForm(ctx)
		if err != nil {
			if _, ok := status.FromError(err); ok {
				return fmt.Errorf("cluster: %s", explain(err))
			}
			return err
		}
		c.wait(waiting)
		if waiting != "" && time.Since(told) > tellStep {
			c.log.Info("this node belongs to no cluster yet", "why", waiting, "node", c.Identity().NodeID, "raft", c.opts.Advertise)
			told = time.Now()
		}
		select {
		case <-changed:
		case <-time.After(askStep):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// found is another node, as seen at an address.
type seen struct {
	address string
	about   *nodev1.DescribeResponse
	err     error
}

// tryForm asks all addresses once. It returns what the node waits for, empty when it is done, and
// an error that waiting cannot fix.
func (c *Cluster) tryForm(ctx context.Context) (waiting string, err error) {
	if c.opts.Expect <= 1 && len(c.opts.Join) == 0 {
		return "", c.found(nil)
	}
	me := c.Identity()
	others := c.look(ctx, c.opts.Join)
	var faults []string
	strangers := len(others)
	waits := map[string]raft.Member{me.RaftID(): {ID: me.RaftID(), Address: c.opts.Advertise, Voter: true}}
	for _, s := range others {
		switch {
		case s.err != nil:
			if fatal(s.err) {
				return "", s.err
			}
			faults = append(faults, fmt.Sprintf("%s: %v", s.address, explainDial(s.err)))
		case s.about.RaftId == me.RaftID(): // its own address may be in the list
			strangers--
		case s.about.NodeId == me.NodeID:
			return "", fmt.Errorf("cluster: the node at %s is called %s too; give each node a --node-id of its own", s.address, me.NodeID)
		case len(s.about.ClusterId) > 0:
			joined, err := c.tryJoin(ctx, s.address)
			if joined || fatal(err) {
				return "", err
			}
			faults = append(faults, fmt.Sprintf("%s: %v", s.address, explainDial(err)))
		case int(s.about.Expect) != c.opts.Expect:
			faults = append(faults, fmt.Sprintf("%s belongs to no cluster, and expects %d nodes where this one expects %d (--bootstrap-expect)",
				s.address, s.about.Expect, c.opts.Expect))
		default:
			waits[s.about.RaftId] = raft.Member{ID: s.about.RaftId, Address: s.about.RaftAddress, Voter: true}
		}
	}
	if c.opts.Expect < 1 || c.opts.Expect == 1 && strangers > 0 {
		if len(faults) == 0 {
			faults = []string{"--join names no other node than this one"}
		}
		return "waiting for a member to join: " + strings.Join(faults, "; "), nil
	}
	if named := c.named(others); named > c.opts.Expect {
		// Otherwise each node would found a cluster with the first ones that it sees.
		return fmt.Sprintf("--join names %d nodes where %d make a cluster (--bootstrap-expect): name those that are to make it, "+
			"on each of them, and let the others join; %s", named, c.opts.Expect, strings.Join(faults, "; ")), nil
	}
	if len(waits) >= c.opts.Expect {
		founded, err := c.foundWith(waits)
		if founded || err != nil {
			return "", err
		}
		return "waiting for the node that founds the cluster: " + first(waits), nil
	}
	if len(c.opts.Join) == 0 {
		faults = append(faults, "without --join it waits to be invited (runlog cluster add)")
	}
	return fmt.Sprintf("%d of %d nodes are there (--bootstrap-expect); %s", len(waits), c.opts.Expect, strings.Join(faults, "; ")), nil
}

// named counts the nodes of --join, and this one.
func (c *Cluster) named(others []seen) int {
	addresses := map[string]bool{c.opts.Advertise: true}
	for _, s := range others {
		if s.err != nil || s.about.RaftId != c.selfID() {
			addresses[s.address] = true
		}
	}
	return len(addresses)
}

func first(waits map[string]raft.Member) string {
	names := make([]string, 0, len(waits))
	for id := range waits {
		names = append(names, id)
	}
	return NodeIDOf(slices.Min(names))
}

// look asks all addresses concurrently.
func (c *Cluster) look(ctx context.Context, addresses []string) []seen {
	all := make([]seen, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			all[i].address = address
			k, err := c.links.to("", address)
			if err == nil {
				all[i].about, err = k.describe(ctx)
			}
			all[i].err = err
		})
	}
	asked.Wait()
	return all
}

// foundWith founds the cluster if this node's name comes first among the waiting nodes. All nodes
// see the same list eventually; a node invited in the meantime has a cluster.
func (c *Cluster) foundWith(waits map[string]raft.Member) (founded bool, err error) {
	members := make([]raft.Member, 0, len(waits))
	for _, m := range waits {
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b raft.Member) int { return strings.Compare(a.ID, b.ID) })
	members = members[:c.opts.Expect]
	if members[0].ID != c.selfID() {
		return false, nil
	}
	return true, c.found(members)
}

// found makes the cluster of the members, nil: of this node alone.
func (c *Cluster) found(members []raft.Member) error {
	err := c.change(func(i *Identity) error {
		if i.ClusterID != "" {
			return nil // it was invited at the last moment
		}
		if members == nil {
			members = []raft.Member{{ID: i.RaftID(), Address: c.opts.Advertise, Voter: true}}
		}
		i.ClusterID, i.Founders, i.Founding, i.Member = randomHex(16), members, true, true
		return nil
	})
	if err == nil && len(members) > 1 {
		c.log.Info("founding cluster", "cluster", c.Identity().ClusterID, "members", len(members))
	}
	return err
}

// inviteFounders invites the other founders until each has accepted: the cluster exists only then.
// A node that belongs to another cluster by then is not a founder of this one, and would not vote
// in it.
func (c *Cluster) inviteFounders(ctx context.Context, me Identity) error {
	var told time.Time
	left := slices.DeleteFunc(slices.Clone(me.Founders), func(m raft.Member) bool { return m.ID == me.RaftID() })
	for len(left) > 0 {
		var fault error
		left = slices.DeleteFunc(left, func(m raft.Member) bool {
			err := c.invite(ctx, m.ID, m.Address, true)
			if err != nil {
				fault = err
			}
			return err == nil
		})
		if fault == nil {
			break
		}
		c.wait("a founder has not accepted its invitation: " + explainDial(fault))
		if time.Since(told) > tellStep {
			c.log.Warn("founder has not accepted its invitation; retrying", "err", explainDial(fault))
			told = time.Now()
		}
		select {
		case <-time.After(askStep):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.wait("")
	return nil
}

// invite asks a node to belong to this cluster.
func (c *Cluster) invite(ctx context.Context, id, address string, founding bool) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	me := c.self()
	k, err := c.links.to(id, address)
	if err == nil {
		_, err = k.node.Invite(ctx, &nodev1.InviteRequest{ClusterId: me.Cluster[:], RaftAddress: c.opts.Advertise, Founding: founding})
	}
	if refused := refusal(k); err != nil && refused != nil {
		return refused
	}
	return err
}

// tryJoin asks the cluster at an address whether this node may become a member, and takes it over
// if so.
func (c *Cluster) tryJoin(ctx context.Context, address string) (joined bool, err error) {
	resp, err := c.askJoin(ctx, "", address, true)
	if err != nil {
		return false, err
	}
	err = c.change(func(i *Identity) error {
		if i.ClusterID == "" {
			i.ClusterID, i.Via = fmt.Sprintf("%x", resp.ClusterId), slices.Clone(c.opts.Join)
		}
		return nil
	})
	return err == nil, err
}

// askJoin asks through a node.
func (c *Cluster) askJoin(ctx context.Context, id, address string, check bool) (*nodev1.JoinResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	k, err := c.links.to(id, address)
	if err != nil {
		return nil, err
	}
	me := c.Identity()
	req := &nodev1.JoinRequest{
		NodeId: me.NodeID, RaftId: me.RaftID(), RaftAddress: c.opts.Advertise, Check: check, WasMember: me.Member, FeatureLevel: c.opts.FeatureLevel,
	}
	if c.opts.TLS == nil && !me.Member {
		req.Token = c.opts.JoinToken // with TLS, the certificate admits this node
	}
	resp, err := k.node.Join(ctx, req)
	if refused := refusal(k); err != nil && refused != nil {
		return nil, refused
	}
	return resp, err
}

// joinTimeout is more than a change of the members takes.
const joinTimeout = 5 * time.Second

func refusal(k *Link) *peer.RefusedError {
	if k == nil {
		return nil
	}
	return k.refused.Load()
}

// fatal reports whether asking again cannot fix a node's answer.
func fatal(err error) bool {
	var refused *peer.RefusedError
	if errors.As(err, &refused) {
		switch refused.Reason {
		case peer.ForeignCluster, peer.FormatVersion, peer.NodeIDTaken:
			return true
		}
		return false
	}
	switch status.Code(err) {
	case codes.AlreadyExists, codes.FailedPrecondition, codes.PermissionDenied:
		return err != nil
	}
	return false
}

// explain is an error as people read it.
func explain(err error) string {
	if s, ok := status.FromError(err); ok && err != nil {
		return s.Message()
	}
	return fmt.Sprint(err)
}

// explainDial is explain without gRPC's wrapping of a dial error.
func explainDial(err error) string {
	text := explain(err)
	if _, cause, ok := strings.Cut(text, "Error while dialing: "); ok {
		text = strings.TrimSuffix(cause, `"`)
	}
	return strings.TrimPrefix(text, "peer: ")
}
