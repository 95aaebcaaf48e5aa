package audit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/projector"
	"runlog/projector/tree"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/server/rpc"
	"runlog/storage"
)

// Records is the tree of all records, as this node has folded it (TR-1).
type Records interface {
	// Wait waits until the tree has the log up to a position; name is tree.Name.
	Wait(ctx context.Context, name string, at storage.Position) error
	// Tree lets a caller read it.
	Tree(read func(*tree.Tree) error) (storage.Position, error)
}

// remakeRetry is the time between two looks at a projection that is being rebuilt.
const remakeRetry = 50 * time.Millisecond

// readTree lets a caller read the tree once it has the log up to a position. If the projection
// turns out to be damaged, it is rebuilt from the log, and read again.
func readTree(ctx context.Context, records Records, at storage.Position, read func(*tree.Tree) error) error {
	for {
		err := records.Wait(ctx, tree.Name, at)
		if err == nil {
			_, err = records.Tree(read)
		}
		if !errors.Is(err, projector.ErrRemaking) {
			return err
		}
		select {
		case <-time.After(remakeRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ProveRecords proves that records of a run are in the tree of all records (TR-3).
func (s *Service) ProveRecords(ctx context.Context, req *runlogv1.ProveRecordsRequest) (_ *runlogv1.ProveRecordsResponse, err error) {
	v, err := s.node.View(ctx, req.RunId, runlogv1.Consistency_LINEARIZABLE, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	// The places, and some ten hashes for each record that lies alone.
	const answer = proof.InclusionBlock * (24 + 16*tlog.HashSize)
	grant, err := s.opts.Memory.Acquire(budget.Shared, answer)
	if err != nil {
		return nil, err
	}
	defer func() { grant.Release() }()
	var leaves []contract.Leaf
	for r, err := range v.Events(req.AfterSeq) {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		if leaves = append(leaves, r.Leaf()); len(leaves) == proof.InclusionBlock {
			break
		}
	}
	places, err := s.included(ctx, v.At.Position(), req.TreeSize, leaves)
	return &runlogv1.ProveRecordsResponse{Places: places}, err
}

// included proves that those of some leaves are in the tree of a size that it has at this size. The
// leaves are in the order of the tree.
func (s *Service) included(ctx context.Context, at storage.Position, size uint64, leaves []contract.Leaf) (*runlogv1.RecordPlaces, error) {
	var out *runlogv1.RecordPlaces
	err := readTree(ctx, s.opts.Records, at, func(t *tree.Tree) error {
		out = &runlogv1.RecordPlaces{}
		size, err := sizeOf(t, "treeSize", size)
		if err != nil {
			return err
		}
		var indexes []int64
		for i := range leaves {
			leaf := &leaves[i]
			index, err := t.Find(storage.Position(leaf.Position), leaf.Offset, leaf.Hash())
			if err != nil {
				return err
			}
			if index >= size {
				break
			}
			indexes = append(indexes, index)
			out.Indexes = append(out.Indexes, uint64(index))
			out.Positions = append(out.Positions, leaf.Position)
			out.Offsets = append(out.Offsets, leaf.Offset)
		}
		if len(indexes) == 0 {
			return nil
		}
		hashes, err := proof.ProveInclusion(size, indexes, t)
		out.Hashes = proof.JoinHashes(hashes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ProveConsistency proves that the tree of all records at one size continues that of an earlier
// size (TR-3).
func (s *Service) ProveConsistency(ctx context.Context, req *runlogv1.ProveConsistencyRequest) (*runlogv1.ProveConsistencyResponse, error) {
	if req.OldSize > req.NewSize {
		return nil, rpc.Invalid("oldSize", "is larger than newSize")
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	hashes, err := s.consistency(ctx, req.OldSize, req.NewSize)
	if err != nil {
		return nil, err
	}
	return &runlogv1.ProveConsistencyResponse{Hashes: hashes}, nil
}

// consistency returns the hashes that prove that a tree continues another.
func (s *Service) consistency(ctx context.Context, earlier, later uint64) (hashes [][]byte, err error) {
	now := s.node.Store().Applied()
	found, err := proveConsistency(ctx, s.opts.Records, now.Position(), earlier, later)
	return encodeHashes(found), err
}

// proveConsistency proves that the tree of one size continues that of an earlier one, once it has
// the log up to a position.
func proveConsistency(ctx context.Context, records Records, at storage.Position, earlier, later uint64) (hashes []tlog.Hash, err error) {
	err = readTree(ctx, records, at, func(t *tree.Tree) error {
		size, err := sizeOf(t, "newSize", later)
		if err != nil {
			return err
		}
		hashes, err = proof.ProveConsistency(int64(earlier), size, t)
		return err
	})
	return hashes, err
}

// sizeOf returns the size of a tree that a request names, if the tree has so many records.
func sizeOf(t *tree.Tree, field string, size uint64) (int64, error) {
	if size > math.MaxInt64 || int64(size) > t.Size() {
		return 0, rpc.Invalid(field, fmt.Sprintf("is larger than the tree, which has %d records", t.Size()))
	}
	return int64(size), nil
}

func encodeHashes(hashes []tlog.Hash) (out [][]byte) {
	for i := range hashes {
		out = append(out, hashes[i][:])
	}
	return out
}
