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

// Errors of membership changes. The members stay unchanged.
var (
	// ErrUnknownMember means that no member has the name.
	ErrUnknownMember = errors.New("no such member")
	// ErrTaken means that a member has the name, or the address, already.
	ErrTaken = errors.New("taken")
	// ErrRefused means that the change is not allowed.
	ErrRefused = errors.New("refused")
	// ErrAlone means that there is no other voter.
	ErrAlone = errors.New("there is no other voter")
)

// invited are the nodes that were invited and are no members yet, by address.
type invited struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// inviteFor is how long an invited node is shown that does not become a member.
const inviteFor = time.Hour

// Join makes a node a member, or returns the reason why not.
func (s *service) Join(ctx context.Context, req *nodev1.JoinRequest) (*nodev1.JoinResponse, error) {
	c := s.c
	who, _ := peer.From(ctx)
	if err := c.mayAskToJoin(who, req); err != nil {
		return nil, err
	}
	leadership, err := c.Leader()
	if err != nil {
		return nil, status.Error(codes.Unavailable, "the cluster has no leader now: a majority of its voters must be up before a node can join")
	}
	if leadership.Link != nil {
		if req.Forwarded {
			return nil, status.Error(codes.Unavailable, "the node does not lead")
		}
		ctx, done := leadership.Bound(ctx)
		defer done()
		return leadership.Link.node.Join(ctx, &nodev1.JoinRequest{NodeId: req.NodeId, RaftId: req.RaftId, RaftAddress: req.RaftAddress,
			Check: req.Check, WasMember: req.WasMember, FeatureLevel: req.FeatureLevel, Token: req.Token, Forwarded: true})
	}
	resp, err := c.join(ctx, req)
	switch {
	case err == nil:
		return resp, nil
	case errors.Is(err, ErrTaken):
		return nil, status.Error(codes.AlreadyExists, err.Error())
	case errors.Is(err, ErrRefused):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	default:
		return nil, joinError(err)
	}
}

// mayAskToJoin checks the caller: a node joins itself, or forwards another node's request.
func (c *Cluster) mayAskToJoin(who peer.Identity, req *nodev1.JoinRequest) error {
	switch {
	case !req.Forwarded && who.RaftID != req.RaftId:
		return status.Error(codes.PermissionDenied, "a node joins for itself")
	case req.Forwarded && c.member(who) != nil:
		// A restarted leader may not know its members yet; the joiner retries.
		return status.Error(codes.Unavailable, "the leader does not know, or not yet, the member that was asked")
	default:
		return nil
	}
}

// join is Join at the leader.
func (c *Cluster) join(ctx context.Context, req *nodev1.JoinRequest) (*nodev1.JoinResponse, error) {
	r := c.running.Load()
	if r == nil {
		return nil, ErrNoLeader
	}
	id := c.self().Cluster
	now := r.node.Status()
	resp := &nodev1.JoinResponse{ClusterId: id[:], LeaderRaftId: c.selfID(), LeaderRaftAddress: c.opts.Advertise, FirstIndex: now.FirstIndex}
	members := r.node.Members()
	if !isMember(members, req.RaftId) && !req.WasMember {
		// First: a node without an admission learns nothing else.
		if err := c.opts.Admission.Check(ctx, req.RaftId, req.Token); err != nil {
			return nil, err
		}
	}
	known, err := mayJoin(members, req)
	if err != nil {
		// A node that learns that it was removed ends. A deposed leader does not know later
		// members, so it must confirm its leadership first.
		if r.node.ConfirmLeader(ctx) != nil {
			return nil, ErrNoLeader
		}
		return nil, err
	}
	release, err := c.holdLevel(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := levelFault(r, req.NodeId, req.FeatureLevel); err != nil {
		return nil, err
	}
	resp.Member = known
	if !known {
		if err := c.opts.Admission.Admit(ctx, req.RaftId, req.Token); err != nil {
			return nil, err
		}
	}
	if req.Check {
		return resp, nil
	}
	// Checked again: another node may have joined in the meantime.
	may := func(now []raft.Member) error {
		_, err := mayJoin(now, req)
		return err
	}
	if err := r.node.Add(ctx, req.RaftId, req.RaftAddress, may); err != nil {
		return nil, err
	}
	if !known {
		c.log.Info("member added", "node", req.NodeId, "raft", req.RaftAddress)
		if err := c.opts.Admission.End(ctx, req.RaftId); err != nil {
			c.log.Warn("admission of a new member not ended; it ends by its time", "node", req.NodeId, "err", err)
		}
	}
	resp.Member = true
	return resp, nil
}

// mayJoin reports whether a node is a member already, or why it may not join.
func mayJoin(members []raft.Member, req *nodev1.JoinRequest) (known bool, err error) {
	known = isMember(members, req.RaftId)
	if !known && req.WasMember {
		return false, fmt.Errorf("node %s: %w: it was removed from the cluster. Its data directory cannot join again: "+
			"to join as a new node, start it with --join and another, new --data-dir",
			req.NodeId, ErrRefused)
	}
	for _, m := range members {
		switch {
		case m.ID == req.RaftId:
		case NodeIDOf(m.ID) == req.NodeId:
			return false, fmt.Errorf("node id %s: %w: a member with another data directory has it (%s at %s). Where that one is lost, "+
				"remove it first: runlog cluster remove %s; else choose another --node-id", req.NodeId, ErrTaken, m.ID, m.Address, req.NodeId)
		case m.Address == req.RaftAddress:
			return false, fmt.Errorf("address %s: %w: member %s has it. Where that one is lost, remove it first: runlog cluster remove %s",
				m.Address, ErrTaken, NodeIDOf(m.ID), NodeIDOf(m.ID))
		}
	}
	return known, nil
}

// Add invites the node at an address, and returns its name. The node joins by itself from there.
func (c *Cluster) Add(ctx context.Context, address string) (nodeID string, err error) {
	r := c.running.Load()
	if r == nil || !r.node.Leading() {
		return "", raft.ErrNotLeader
	}
	s := c.look(ctx, []string{address})[0]
	if s.err != nil {
		return "", fmt.Errorf("no node at %s: %w: %s", address, ErrRefused, explainDial(s.err))
	}
	members := r.node.Members()
	if _, err := mayJoin(members, &nodev1.JoinRequest{NodeId: s.about.NodeId, RaftId: s.about.RaftId, RaftAddress: s.about.RaftAddress}); err != nil {
		return "", err
	}
	if err := levelFault(r, s.about.NodeId, s.about.FeatureLevel); err != nil {
		return "", err
	}
	me := c.Identity()
	id := fmt.Sprintf("%x", s.about.ClusterId)
	switch {
	case isMember(members, s.about.RaftId):
		return "", fmt.Errorf("node %s: %w: it is a member already", s.about.NodeId, ErrTaken)
	case id != "" && id != me.ClusterID:
		return "", fmt.Errorf("node %s at %s: %w: it belongs to cluster %s, not to %s", s.about.NodeId, address, ErrRefused, id, me.ClusterID)
	}
	// It may join as soon as it is invited.
	if err := c.opts.Admission.Invite(ctx, s.about.RaftId); err != nil {
		return "", err
	}
	if err := c.invite(ctx, s.about.RaftId, address, false); err != nil {
		return "", fmt.Errorf("node %s at %s: %w: %s", s.about.NodeId, address, ErrRefused, explain(err))
	}
	c.invited.mu.Lock()
	defer c.invited.mu.Unlock()
	if c.invited.until == nil || len(c.invited.until) > maxLinks {
		c.invited.until = make(map[string]time.Time)
	}
	c.invited.until[address] = time.Now().Add(inviteFor)
	return s.about.NodeId, nil
}

// byName returns the member with a name or a Raft ID.
func byName(members []raft.Member, name string) (raft.Member, error) {
	for _, m := range members {
		if NodeIDOf(m.ID) == name || m.ID == name {
			return m, nil
		}
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = NodeIDOf(m.ID)
	}
	return raft.Member{}, fmt.Errorf("%w: %q; the members are %s", ErrUnknownMember, name, strings.Join(names, ", "))
}

// Remove removes a member from the cluster. A leader that is to remove itself transfers its
// leadership first and returns ErrNotLeader; the new leader removes it.
func (c *Cluster) Remove(ctx context.Context, name string) error {
	r := c.running.Load()
	if r == nil || !r.node.Leading() {
		return raft.ErrNotLeader
	}
	members := r.node.Members()
	m, err := byName(members, name)
	if err != nil {
		return unknownMember(r.node, name, err)
	}
	if m.Voter {
		if err := c.survives(ctx, members, m); err != nil {
			return err
		}
	}
	if m.ID == c.selfID() {
		if err := c.Transfer(ctx, ""); err != nil {
			return err
		}
		return raft.ErrNotLeader
	}
	if err := r.node.Remove(ctx, m.ID); err != nil {
		return err
	}
	c.log.Info("member removed", "node", name, "raft", m.ID)
	return nil
}

// unknownMember returns the error of a removal for a name that no member has.
func unknownMember(node *raft.Node, name string, noMember error) error {
	committed, err := node.CommittedMembers()
	if err != nil {
		return err
	}
	if m, err := byName(committed, name); err == nil {
		return node.NotMember(m.ID)
	}
	return noMember
}

// survives reports whether a majority of the remaining voters answers. Without one the cluster
// could commit nothing more, not even this change. A busy voter is asked again before it counts as
// down.
func (c *Cluster) survives(ctx context.Context, members []raft.Member, without raft.Member) error {
	left := slices.DeleteFunc(slices.Clone(members), func(m raft.Member) bool { return !m.Voter || m.ID == without.ID })
	if len(left) == 0 {
		return fmt.Errorf("node %s: %w: it is the last voter, and the cluster would be gone without it", NodeIDOf(without.ID), ErrRefused)
	}
	var down []string
	for try := range voterTries {
		if try > 0 {
			select {
			case <-time.After(askStep):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		down = nil
		for i, s := range c.look(ctx, addressesOf(left)) {
			if s.err != nil || s.about.RaftId != left[i].ID {
				down = append(down, NodeIDOf(left[i].ID))
			}
		}
		if len(left)-len(down) > len(left)/2 {
			return nil
		}
	}
	return fmt.Errorf("node %s: %w: of the %d voters that would be left, %s would not answer, and the cluster would take no more appends. "+
		"Bring them back or remove them first", NodeIDOf(without.ID), ErrRefused, len(left), strings.Join(down, " and "))
}

func addressesOf(members []raft.Member) []string {
	addresses := make([]string, len(members))
	for i, m := range members {
		addresses[i] = m.Address
	}
	return addresses
}

// Transfer makes another voter the leader: the named one, or the most advanced one.
func (c *Cluster) Transfer(ctx context.Context, name string) error {
	r := c.running.Load()
	if r == nil || !r.node.Leading() {
		return raft.ErrNotLeader
	}
	members := r.node.Members()
	voters := slices.DeleteFunc(slices.Clone(members), func(m raft.Member) bool { return !m.Voter || m.ID == c.selfID() })
	if name == "" && len(voters) == 0 {
		return ErrAlone
	}
	if name != "" {
		m, err := byName(members, name)
		switch {
		case err != nil:
			return err
		case m.ID == c.selfID():
			return nil
		case !m.Voter:
			return fmt.Errorf("node %s: %w: it is no voter yet", name, ErrRefused)
		}
		return r.node.Transfer(ctx, m.ID)
	}
	best, furthest := "", uint64(0)
	for i, s := range c.look(ctx, addressesOf(voters)) {
		if s.err == nil && s.about.RaftId == voters[i].ID && s.about.State == nodev1.NodeState_RUNNING && s.about.LastIndex >= furthest {
			best, furthest = voters[i].ID, s.about.LastIndex
		}
	}
	if best == "" {
		return fmt.Errorf("%w: there is no other voter that answers", ErrRefused)
	}
	return r.node.Transfer(ctx, best)
}
