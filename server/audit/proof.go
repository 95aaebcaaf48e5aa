package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/checkpoint"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

// maxCheckpoints is the maximum, and the default, of checkpoints in a page.
const maxCheckpoints = 100

// ProveRun ties a run to a signed checkpoint. The leader answers, because it holds the tree.
func (s *Service) ProveRun(ctx context.Context, req *runlogv1.ProveRunRequest) (*runlogv1.ProveRunResponse, error) {
	if fault := contract.StoredNameFault(req.RunId); fault != "" {
		return nil, rpc.Invalid("runId", fault)
	}
	if seen, err := s.hasRun(req.RunId, auth.From(ctx)); err != nil || !seen {
		return nil, cmp.Or(err, error(&storage.RunNotFoundError{RunID: req.RunId}))
	}
	p, err := s.opts.Signer.prove(ctx, req.RunId, req.Fresh)
	if err != nil {
		return nil, signError(err)
	}
	resp := &runlogv1.ProveRunResponse{Checkpoint: p.Note, Leaf: encodeLeaf(&p.Leaf), LeafIndex: p.Index}
	for i := range p.Path {
		resp.Path = append(resp.Path, p.Path[i][:])
	}
	if req.SinceSize > 0 && req.SinceSize <= p.Size { // Else the client sees that it cannot be.
		if resp.Consistency, err = s.consistency(ctx, req.SinceSize, p.Size); err != nil {
			return nil, err
		}
	}
	resp.Keys, err = s.encodeKeys(p.Keys)
	return resp, err
}

// signError converts the cause for which nothing was signed.
func signError(err error) error {
	switch {
	case errors.Is(err, checkpoint.ErrNotGiven): // It may wrap ErrKeyMissing.
		return &contract.Error{Reason: contract.ReasonNoLeader,
			Message: fmt.Sprintf("no signing key was made: %v. Retry once most members are up and can store it", err)}
	case errors.Is(err, checkpoint.ErrKeyMissing):
		return &contract.Error{Reason: contract.ReasonSigningKeyMissing,
			Message: rpc.Helpful(contract.ReasonSigningKeyMissing, "neither the node nor a member that answers has the key with which the cluster signs")}
	case errors.Is(err, checkpoint.ErrClosed):
		return &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping; nothing was signed"}
	default:
		return err
	}
}

func encodeLeaf(h *proof.RunHead) *runlogv1.RunLeaf {
	return &runlogv1.RunLeaf{
		RunId: h.RunID, TenantId: h.TenantID, ProjectId: h.ProjectID, EnvironmentId: h.EnvironmentID,
		PlanId: h.PlanID, PlanVersion: h.PlanVersion, CreatedAt: wire.Timestamp(h.CreatedAt),
		Head: &runlogv1.RunHead{LastSeq: h.LastSeq, PersistedAt: wire.Timestamp(h.PersistedAt), ChainDigest: h.Chain.String()},
	}
}

func (s *Service) encodeKeys(keys []signing.Key) ([]*runlogv1.SigningKey, error) {
	out := make([]*runlogv1.SigningKey, len(keys))
	for i, k := range keys {
		id, err := proof.KeyID(k.PublicKey)
		if err != nil {
			return nil, err
		}
		out[i] = &runlogv1.SigningKey{
			Number: k.Number, PublicKey: k.PublicKey, KeyId: id, CreatedAt: wire.Timestamp(k.CreatedAt), Endorsement: k.Endorsement,
		}
		if cluster, ok := proof.ClusterOf(k.PublicKey); !ok || cluster != s.node.ClusterID() {
			continue // It signed another log, that of a cluster whose backup this one continues.
		}
		if out[i].CheckpointKey, err = proof.CheckpointKey(k.PublicKey, s.node.Store().Incarnation()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ListCheckpoints returns a page of the signed checkpoints, newest first.
func (s *Service) ListCheckpoints(ctx context.Context, req *runlogv1.ListCheckpointsRequest) (*runlogv1.ListCheckpointsResponse, error) {
	size, err := rpc.PageSize(req.PageSize, maxCheckpoints, maxCheckpoints)
	if err != nil {
		return nil, err
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	tokens := newCheckpointTokens(s.node.Store().Incarnation())
	before, err := tokens.parse(req.PageToken)
	if err != nil {
		return nil, err
	}
	list, err := signing.Checkpoints(s.node.Store(), before, size+1)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.ListCheckpointsResponse{}
	if len(list) > size {
		list = list[:size]
		resp.NextPageToken = tokens.format(list[size-1].Position)
	}
	for i := range list {
		c, err := encodeCheckpoint(&list[i], s.node.Store().Incarnation())
		if err != nil {
			return nil, err
		}
		resp.Checkpoints = append(resp.Checkpoints, c)
	}
	return resp, nil
}

func encodeCheckpoint(stored *signing.Checkpoint, in storage.Incarnation) (*runlogv1.Checkpoint, error) {
	c, signers, err := proof.PeekCheckpoint(stored.Note)
	if err != nil || len(signers) == 0 {
		return nil, fmt.Errorf("server: checkpoint of position %d: %w", stored.Position, errors.Join(err, proof.ErrUnsigned))
	}
	return &runlogv1.Checkpoint{
		Note: stored.Signed(), Position: rpc.FormatPosition(in, stored.Position), CompleteThrough: wire.Timestamp(c.CompleteThrough),
		Runs: c.Runs, Records: c.Size, Root: fmt.Sprintf("%x", c.Root[:]), KeyId: signers[0][len(signers[0])-8:], Origin: c.Origin(),
	}, nil
}

// ListSigningKeys returns the public keys with which the cluster has signed, oldest first.
func (s *Service) ListSigningKeys(ctx context.Context, _ *runlogv1.ListSigningKeysRequest) (*runlogv1.ListSigningKeysResponse, error) {
	var keys []signing.Key
	err := s.opts.Signer.awaitKey(ctx, func() (err error) {
		if err := s.node.ReadIndex(ctx); err != nil {
			return err
		}
		if keys, err = signing.Keys(s.node.Store()); err == nil && len(keys) == 0 {
			return checkpoint.ErrKeyMissing
		}
		return err
	})
	if err != nil && !errors.Is(err, checkpoint.ErrKeyMissing) {
		return nil, err
	}
	out, err := s.encodeKeys(keys)
	return &runlogv1.ListSigningKeysResponse{Keys: out}, err
}

// RotateSigningKey makes a new signing key, which the cluster uses from then on.
func (s *Service) RotateSigningKey(ctx context.Context, req *runlogv1.RotateSigningKeyRequest) (*runlogv1.RotateSigningKeyResponse, error) {
	key, err := s.opts.Signer.checkpoints.Rotate(ctx, req.OldKeyIsLost)
	if err != nil {
		return nil, signError(err)
	}
	keys, err := s.encodeKeys([]signing.Key{key})
	if err != nil {
		return nil, err
	}
	return &runlogv1.RotateSigningKeyResponse{Key: keys[0]}, nil
}
