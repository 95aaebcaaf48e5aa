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

// FetchSigningKey asks the other members for the key with a number, one after the other, until take
// says that it has it.
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

// GiveSigningKey has the other members keep a key, but for those that are not in members. It is an
// error if those that do are, with this node, which has it, no majority of the voters.
func (c *Cluster) GiveSigningKey(ctx context.Context, number uint64, seed []byte, members []string) error {
	r := c.running.Load()
	if r == nil {
		return errors.New("the node does not take part in its cluster yet")
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

// give asks all members at once that are in to, until a majority of the voters has taken what there
// is to give.
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
			err := errors.New("has become a member meanwhile")
			if slices.Contains(to, m.ID) {
				err = ask(ctx, m)
			}
			answers <- answer{m, err}
		}()
	}
	var refused []string
	for range all { // also those that are late, each of which ends soon after a majority has it
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
	return fmt.Errorf("of %d voters %d have it; %s", voters, taken, strings.Join(refused, "; "))
}
