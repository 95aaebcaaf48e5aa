package cluster

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "runlog/proto/node/v1"
)

// FetchSigningKey gives a member the key with which the cluster signs.
func (s *service) FetchSigningKey(ctx context.Context, req *nodev1.FetchSigningKeyRequest) (*nodev1.FetchSigningKeyResponse, error) {
	seed, ok := s.c.opts.SigningKey(ctx, req.Number)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "node %s does not have signing key %d", s.c.Identity().NodeID, req.Number)
	}
	return &nodev1.FetchSigningKeyResponse{Seed: seed}, nil
}

// signingKeyTimeout bounds how long one member is asked for the key.
const signingKeyTimeout = time.Second

// FetchSigningKey asks the other members for the key with a number, one after the other, until take says that it has it.
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
