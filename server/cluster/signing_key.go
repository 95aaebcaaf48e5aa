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
)

// FetchSigningKey gives a member the key with which the cluster signs.
func (s *service) FetchSigningKey(_ context.Context, req *nodev1.FetchSigningKeyRequest) (*nodev1.FetchSigningKeyResponse, error) {
	seed, ok := s.c.opts.SigningKey(req.Number)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "node %s does not have signing key %d", s.c.Identity().NodeID, req.Number)
	}
	return &nodev1.FetchSigningKeyResponse{Seed: seed}, nil
}

// KeepSigningKey keeps a key that a member is about to propose.
func (s *service) KeepSigningKey(_ context.Context, req *nodev1.KeepSigningKeyRequest) (*nodev1.KeepSigningKeyResponse, error) {
	if err := s.c.opts.KeepSigningKey(req.Number, req.Seed, req.MemberRaftIds); err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "node %s does not keep signing key %d: %v", s.c.Identity().NodeID, req.Number, err)
	}
	return &nodev1.KeepSigningKeyResponse{}, nil
}

// signingKeyTimeout bounds how long one member is asked for the key, or to keep it.
const signingKeyTimeout = time.Second

// FetchSigningKey asks the other members for the key with a number, one after the other, until take says that it has it.
func (c *Cluster) FetchSigningKey(ctx context.Context, number uint64, take func(seed []byte) bool) {
	for _, m := range c.members() {
		if m.ID == c.selfID() {
			continue
		}
		k, err := c.links.to(m.ID, m.Address)
		if err != nil {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, signingKeyTimeout)
		resp, err := k.node.FetchSigningKey(asked, &nodev1.FetchSigningKeyRequest{Number: number})
		cancel()
		if err == nil && take(resp.Seed) {
			return
		}
	}
}

// GiveSigningKey has the other members keep a key, but for those that are not in members. It is an error if those that do are, with
// this node, which has it, no majority of the voters.
func (c *Cluster) GiveSigningKey(ctx context.Context, number uint64, seed []byte, members []string) error {
	ctx, cancel := context.WithTimeout(ctx, signingKeyTimeout)
	defer cancel()
	req := &nodev1.KeepSigningKeyRequest{Number: number, Seed: seed, MemberRaftIds: members}
	all := c.members()
	refused := make([]error, len(all))
	var asked sync.WaitGroup
	for i, m := range all {
		switch {
		case m.ID == c.selfID():
		case slices.Contains(members, m.ID):
			asked.Go(func() { refused[i] = c.give(ctx, m, req) })
		default:
			refused[i] = fmt.Errorf("%s has become a member meanwhile", m.ID)
		}
	}
	asked.Wait()
	voters, keep := 0, 0
	for i, m := range all {
		if m.Voter {
			voters++
			if refused[i] == nil {
				keep++
			}
		}
	}
	if keep <= voters/2 {
		return fmt.Errorf("of %d voters %d keep it: %w", voters, keep, errors.Join(refused...))
	}
	return nil
}

func (c *Cluster) give(ctx context.Context, m raft.Member, req *nodev1.KeepSigningKeyRequest) error {
	k, err := c.links.to(m.ID, m.Address)
	if err == nil {
		_, err = k.node.KeepSigningKey(ctx, req)
	}
	return err
}

// members are all, as far as this node knows; none while it does not take part.
func (c *Cluster) members() []raft.Member {
	if r := c.running.Load(); r != nil {
		return r.node.Members()
	}
	return nil
}
