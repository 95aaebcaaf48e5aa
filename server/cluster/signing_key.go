package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	if err := s.c.opts.KeepSigningKey(req.Number, req.Seed); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &nodev1.KeepSigningKeyResponse{}, nil
}

// signingKeyTimeout bounds how long one member is asked for the key, or to keep it.
const signingKeyTimeout = time.Second

// FetchSigningKey asks the other members in turn for the key with a number, until take accepts an
// answer.
func (c *Cluster) FetchSigningKey(ctx context.Context, number uint64, take func(seed []byte) bool) {
	r := c.running.Load()
	if r == nil {
		return
	}
	for _, m := range r.node.Members() {
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

// GiveSigningKey has the other members store a key, except those not in members. It fails if the
// voters that store it, this node included, are no majority.
func (c *Cluster) GiveSigningKey(ctx context.Context, number uint64, seed []byte, members []string) error {
	r := c.running.Load()
	if r == nil {
		return errors.New("the node is not ready in its cluster yet")
	}
	req := &nodev1.KeepSigningKeyRequest{Number: number, Seed: seed}
	return give(ctx, r.node.Members(), members, func(ctx context.Context, m raft.Member) error {
		if m.ID == c.selfID() {
			return nil
		}
		k, err := c.links.to(m.ID, m.Address)
		if err == nil {
			_, err = k.node.KeepSigningKey(ctx, req)
		}
		return err
	})
}

// give asks all members in to concurrently, until a majority of the voters has accepted.
func give(ctx context.Context, all []raft.Member, to []string, ask func(context.Context, raft.Member) error) error {
	ctx, cancel := context.WithTimeout(ctx, signingKeyTimeout)
	defer cancel()
	type answer struct {
		m   raft.Member
		err error
	}
	answers := make(chan answer, len(all))
	voters, taken := 0, 0
	for _, m := range all {
		if m.Voter {
			voters++
		}
		go func() {
			err := errors.New("became a member during the change")
			if slices.Contains(to, m.ID) {
				err = ask(ctx, m)
			}
			answers <- answer{m, err}
		}()
	}
	var refused []string
	for range all { // also for late ones, which end soon after a majority has accepted
		a := <-answers
		switch {
		case a.err != nil:
			refused = append(refused, fmt.Sprintf("%s: %s", a.m.ID, cmp.Or(status.Convert(a.err).Message(), a.err.Error())))
		case a.m.Voter:
			if taken++; taken > voters/2 {
				cancel()
			}
		}
	}
	if taken > voters/2 {
		return nil
	}
	slices.Sort(refused)
	return fmt.Errorf("%[2]d of %[1]d voters have the key; %[3]s", voters, taken, strings.Join(refused, "; "))
}
