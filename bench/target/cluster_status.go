package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	runlogv1 "runlog/proto/runlog/v1"
)

// maxStatusBytes bounds the status of a cluster.
const maxStatusBytes = 1 << 20

// status asks a node for its cluster.
func (c *Cluster) status(ctx context.Context, node int) (_ *runlogv1.GetStatusResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	body, err := request(ctx, http.MethodGet, c.nodes[node].http, "/v1/cluster")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(body, maxStatusBytes))
	if err != nil {
		return nil, err
	}
	return parseStatus(text)
}

// parseStatus parses the JSON of a status. It skips unknown fields: the measured program may be
// newer than the bench.
func parseStatus(text []byte) (*runlogv1.GetStatusResponse, error) {
	s := &runlogv1.GetStatusResponse{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("bench: the status of a cluster: %w", err)
	}
	return s, nil
}

var errNoLeader = errors.New("bench: the cluster has no leader")

// leading asks all nodes and returns the status of the node that reports itself as the leader:
// another node's view may be old. Of two, the later term wins.
func (c *Cluster) leading(ctx context.Context) (*runlogv1.GetStatusResponse, error) {
	var latest *runlogv1.GetStatusResponse
	errs := []error{errNoLeader}
	for i := range c.nodes {
		s, err := c.status(ctx, i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if s.LeaderId == s.NodeId && (latest == nil || s.Term > latest.Term) {
			latest = s
		}
	}
	if latest == nil {
		return nil, errors.Join(errs...)
	}
	return latest, nil
}

// leaderOf returns the leader according to a status.
func leaderOf(s *runlogv1.GetStatusResponse) (*runlogv1.Member, error) {
	i := slices.IndexFunc(s.Members, func(m *runlogv1.Member) bool {
		return m.NodeId == s.LeaderId && m.State == runlogv1.MemberState_LEADER
	})
	if s.LeaderId == "" || i < 0 {
		return nil, errNoLeader
	}
	return s.Members[i], nil
}

// behind returns why a cluster of a number of nodes is not in sync, or nil: each node must be a
// voter, and as far as far, an earlier status of the leader. It compares applied indexes with the
// leader's: some entries are Raft's own, and a store never gets them.
func behind(s *runlogv1.GetStatusResponse, nodes int, far *runlogv1.Member) error {
	if _, err := leaderOf(s); err != nil {
		return err
	}
	if len(s.Members) != nodes {
		return fmt.Errorf("bench: the cluster has %d members of %d", len(s.Members), nodes)
	}
	for _, m := range s.Members {
		follows := m.State == runlogv1.MemberState_LEADER || m.State == runlogv1.MemberState_FOLLOWER
		switch {
		case m.Role != runlogv1.MemberRole_VOTER || !follows:
			return fmt.Errorf("bench: %s is %v and %v", m.NodeId, m.Role, m.State)
		case m.CommitIndex < far.GetCommitIndex() || m.AppliedIndex < far.GetAppliedIndex():
			return fmt.Errorf("bench: %s is at %d and has applied %d, of %d and %d", m.NodeId, m.CommitIndex, m.AppliedIndex, far.GetCommitIndex(), far.GetAppliedIndex())
		}
	}
	return nil
}

// leaderAndTerm returns which node leads, and in which term.
func (c *Cluster) leaderAndTerm(ctx context.Context) (node int, term uint64, err error) {
	err = settled(ctx, func() error {
		s, err := c.leading(ctx)
		if err != nil {
			return err
		}
		node = slices.IndexFunc(c.nodes, func(n *Node) bool { return n.options.id == s.LeaderId })
		if term = s.Term; node < 0 {
			return fmt.Errorf("bench: %q leads, which is none of the nodes", s.LeaderId)
		}
		return nil
	})
	return node, term, err
}

// Leader returns the node that leads.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	node, _, err := c.leaderAndTerm(ctx)
	return node, err
}

// InSync returns once all nodes are ready and follow.
func (c *Cluster) InSync(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := n.waitReady(ctx); err != nil {
			return err
		}
		if err := settled(ctx, func() error { return n.ready(ctx) }); err != nil {
			return err
		}
	}
	var far *runlogv1.Member
	return settled(ctx, func() error {
		s, err := c.leading(ctx)
		if err != nil {
			return err
		}
		if m, err := leaderOf(s); err == nil && far == nil {
			far = m
		}
		return behind(s, len(c.nodes), far)
	})
}

// TransferLeadership makes another voter the leader, the most advanced one.
func (c *Cluster) TransferLeadership(ctx context.Context, leader int) error {
	conn := c.routes[leader].links[0].conn
	_, err := runlogv1.NewClusterServiceClient(conn).TransferLeadership(ctx, &runlogv1.TransferLeadershipRequest{})
	return err
}

// settled tries until it succeeds; after clusterSettle the last failure counts.
func settled(ctx context.Context, try func() error) error {
	for deadline := time.Now().Add(ClusterSettle); ; {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("bench: not within %v: %w", ClusterSettle, err)
		}
		if !Pause(ctx, clusterPoll) {
			return context.Cause(ctx)
		}
	}
}
