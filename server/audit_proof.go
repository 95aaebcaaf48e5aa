package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/checkpoint"
	"runlog/storage/machine/signing"
)

// maxCheckpoints is the most, and the default, of checkpoints in a page.
const maxCheckpoints = 100

// ProveRun ties a run to a signed checkpoint. The leader answers, who has the tree.
func (a *auditService) ProveRun(ctx context.Context, req *runlogv1.ProveRunRequest) (*runlogv1.ProveRunResponse, error) {
	if fault := contract.NameFault(req.RunId); fault != "" {
		return nil, statusOf(invalid("runId", fault))
	}
	resp, err := atLeader(ctx, a.s, leaderRoute[*runlogv1.ProveRunResponse]{
		here: func() (*runlogv1.ProveRunResponse, error) { return a.proveHere(ctx, req) },
		there: func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) (*runlogv1.ProveRunResponse, error) {
			return runlogv1.NewAuditServiceClient(conn).ProveRun(ctx, req, opts...)
		},
	})
	return resp, statusOf(err)
}

func (a *auditService) proveHere(ctx context.Context, req *runlogv1.ProveRunRequest) (*runlogv1.ProveRunResponse, error) {
	var p *checkpoint.Proof
	if err := a.s.awaitKey(ctx, func() (err error) {
		// What was acknowledged before the call is applied here.
		if err := a.s.node.ConfirmLeader(ctx); err != nil {
			return err
		}
		p, err = a.s.sealer.Load().Prove(ctx, req.RunId, req.Fresh)
		return err
	}); err != nil {
		return nil, sealError(err)
	}
	resp := &runlogv1.ProveRunResponse{Checkpoint: p.Note, Leaf: encodeLeaf(&p.Leaf), LeafIndex: p.Index}
	for i := range p.Path {
		resp.Path = append(resp.Path, p.Path[i][:])
	}
	var err error
	resp.Keys, err = encodeKeys(p.Keys)
	return resp, err
}

// sealError tells a caller why nothing was signed.
func sealError(err error) error {
	switch {
	case errors.Is(err, checkpoint.ErrNotGiven): // also where it is missing for that
		return &contract.Error{Reason: contract.ReasonNoLeader,
			Message: fmt.Sprintf("no signing key was made: %v. Retry once most members are up and keep it", err)}
	case errors.Is(err, checkpoint.ErrKeyMissing):
		return &contract.Error{Reason: contract.ReasonSigningKeyMissing,
			Message: helpful(contract.ReasonSigningKeyMissing, "neither the node nor a member that answers has the key with which the cluster signs")}
	case errors.Is(err, checkpoint.ErrClosed):
		return &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping; nothing was signed"}
	default:
		return err
	}
}

func encodeLeaf(h *proof.RunHead) *runlogv1.RunLeaf {
	return &runlogv1.RunLeaf{
		RunId: h.RunID, TenantId: h.TenantID, ProjectId: h.ProjectID, EnvironmentId: h.EnvironmentID,
		PlanId: h.PlanID, PlanVersion: h.PlanVersion, CreatedAt: timestamp(h.CreatedAt),
		Head: &runlogv1.RunHead{LastSeq: h.LastSeq, PersistedAt: timestamp(h.PersistedAt), ChainDigest: h.Chain.String()},
	}
}

func encodeKeys(keys []signing.Key) ([]*runlogv1.SigningKey, error) {
	out := make([]*runlogv1.SigningKey, len(keys))
	for i, k := range keys {
		id, err := proof.KeyID(k.PublicKey)
		if err != nil {
			return nil, err
		}
		out[i] = &runlogv1.SigningKey{
			Number: k.Number, PublicKey: k.PublicKey, KeyId: id, CreatedAt: timestamp(k.CreatedAt), Endorsement: k.Endorsement,
		}
	}
	return out, nil
}

// ListCheckpoints returns a page of the signed checkpoints, newest first.
func (a *auditService) ListCheckpoints(ctx context.Context, req *runlogv1.ListCheckpointsRequest) (*runlogv1.ListCheckpointsResponse, error) {
	resp, err := a.listCheckpoints(ctx, req)
	return resp, statusOf(err)
}

func (a *auditService) listCheckpoints(ctx context.Context, req *runlogv1.ListCheckpointsRequest) (*runlogv1.ListCheckpointsResponse, error) {
	size, err := pageSize(req.PageSize, maxCheckpoints, maxCheckpoints)
	if err != nil {
		return nil, err
	}
	tokens := newCheckpointTokens(a.s.clusterID)
	before, err := tokens.parse(req.PageToken)
	if err != nil {
		return nil, err
	}
	if err := a.s.readable(ctx, runlogv1.Consistency_LINEARIZABLE); err != nil {
		return nil, err
	}
	list, err := signing.Checkpoints(a.s.store, before, size+1)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.ListCheckpointsResponse{}
	if len(list) > size {
		list = list[:size]
		resp.NextPageToken = tokens.format(list[size-1].Position)
	}
	for i := range list {
		c, err := encodeCheckpoint(&list[i])
		if err != nil {
			return nil, err
		}
		resp.Checkpoints = append(resp.Checkpoints, c)
	}
	return resp, nil
}

func encodeCheckpoint(stored *signing.Checkpoint) (*runlogv1.Checkpoint, error) {
	c, signers, err := proof.PeekCheckpoint(stored.Note)
	if err != nil || len(signers) == 0 {
		return nil, fmt.Errorf("server: checkpoint of position %d: %w", stored.Position, errors.Join(err, proof.ErrUnsigned))
	}
	return &runlogv1.Checkpoint{
		Note: stored.Note, Position: formatPosition(stored.Position), CompleteThrough: timestamp(c.CompleteThrough),
		Runs: c.Runs, Events: c.Events, Root: fmt.Sprintf("%x", c.Root[:]), KeyId: signers[0][len(signers[0])-8:],
	}, nil
}

// ListSigningKeys returns the public keys with which the cluster has signed, oldest first.
func (a *auditService) ListSigningKeys(ctx context.Context, _ *runlogv1.ListSigningKeysRequest) (*runlogv1.ListSigningKeysResponse, error) {
	if err := a.s.readable(ctx, runlogv1.Consistency_LINEARIZABLE); err != nil {
		return nil, statusOf(err)
	}
	keys, err := signing.Keys(a.s.store)
	if err != nil {
		return nil, statusOf(err)
	}
	out, err := encodeKeys(keys)
	return &runlogv1.ListSigningKeysResponse{Keys: out}, statusOf(err)
}

// RotateSigningKey makes a new key with which the cluster signs from now on.
func (a *auditService) RotateSigningKey(ctx context.Context, req *runlogv1.RotateSigningKeyRequest) (*runlogv1.RotateSigningKeyResponse, error) {
	resp, err := atLeader(ctx, a.s, leaderRoute[*runlogv1.RotateSigningKeyResponse]{
		here: func() (*runlogv1.RotateSigningKeyResponse, error) { return a.rotateHere(ctx, req) },
		there: func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) (*runlogv1.RotateSigningKeyResponse, error) {
			return runlogv1.NewAuditServiceClient(conn).RotateSigningKey(ctx, req, opts...)
		},
	})
	return resp, statusOf(err)
}

func (a *auditService) rotateHere(ctx context.Context, req *runlogv1.RotateSigningKeyRequest) (*runlogv1.RotateSigningKeyResponse, error) {
	key, err := a.s.sealer.Load().Rotate(ctx, req.OldKeyIsLost)
	if err != nil {
		return nil, sealError(err)
	}
	keys, err := encodeKeys([]signing.Key{key})
	if err != nil {
		return nil, err
	}
	return &runlogv1.RotateSigningKeyResponse{Key: keys[0]}, nil
}
