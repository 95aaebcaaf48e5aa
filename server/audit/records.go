package audit

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
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

// ProveRecords proves that records of a run are in the tree of all records (TR-3).
func (s *Service) ProveRecords(ctx context.Context, req *runlogv1.ProveRecordsRequest) (_ *runlogv1.ProveRecordsResponse, err error) {
	v, err := s.node.View(ctx, req.RunId, runlogv1.Consistency_LINEARIZABLE, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := s.opts.Records.Wait(ctx, tree.Name, v.At.Position()); err != nil {
		return nil, err
	}
	// The places, and some ten hashes for each record that lies alone.
	const answer = proof.InclusionBlock * (24 + 16*tlog.HashSize)
	grant, err := s.opts.Memory.Acquire(budget.Shared, answer)
	if err != nil {
		return nil, err
	}
	defer func() { grant.Release() }()
	resp := &runlogv1.ProveRecordsResponse{}
	if _, err := s.opts.Records.Tree(func(t *tree.Tree) error {
		size, err := sizeOf(t, "treeSize", req.TreeSize)
		if err != nil {
			return err
		}
		p := placer{store: s.node.Store(), tree: t}
		var indexes []int64
		for r, err := range v.Events(req.AfterSeq) {
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return err
			}
			at, err := p.place(r)
			if err != nil {
				return err
			}
			if at.Index >= size {
				break
			}
			indexes = append(indexes, at.Index)
			resp.Places = append(resp.Places, &runlogv1.RecordPlace{
				RunSeq: r.RunSeq, Index: uint64(at.Index), Position: at.Position, Offset: at.Offset,
			})
			if len(indexes) == proof.InclusionBlock {
				break
			}
		}
		if len(indexes) == 0 {
			return nil
		}
		hashes, err := proof.ProveInclusion(size, indexes, t)
		resp.Hashes = encodeHashes(hashes)
		return err
	}); err != nil {
		return nil, err
	}
	return resp, nil
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
	now := s.node.Store().Applied()
	if err := s.opts.Records.Wait(ctx, tree.Name, now.Position()); err != nil {
		return nil, err
	}
	hashes, err := s.consistency(req.OldSize, req.NewSize)
	if err != nil {
		return nil, err
	}
	return &runlogv1.ProveConsistencyResponse{Hashes: hashes}, nil
}

// consistency returns the hashes that prove that a tree continues another.
func (s *Service) consistency(earlier, later uint64) (hashes [][]byte, err error) {
	_, err = s.opts.Records.Tree(func(t *tree.Tree) error {
		size, err := sizeOf(t, "newSize", later)
		if err != nil {
			return err
		}
		found, err := proof.ProveConsistency(int64(earlier), size, t)
		hashes = encodeHashes(found)
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

// placer finds records in the tree.
type placer struct {
	store    *storage.Store
	follower *storage.Follower
	tree     *tree.Tree
	// offsets has the numbers of the records of a position: of each run, by runSeq.
	position storage.Position
	offsets  map[runSeq]uint32
}

type runSeq struct {
	run string
	seq uint64
}

// place returns where a whole record is.
func (p *placer) place(r *storage.Record) (at proof.Place, err error) {
	if p.offsets == nil || p.position != r.Position {
		if err := p.read(r.Position); err != nil {
			return at, err
		}
	}
	offset, ok := p.offsets[runSeq{r.RunID, r.RunSeq}]
	if !ok {
		return at, fmt.Errorf("audit: runSeq %d of run %q is not in the log at position %d", r.RunSeq, r.RunID, r.Position)
	}
	leaf := contract.Leaf{Chain: r.ChainDigest, Position: uint64(r.Position), Offset: offset, PersistedAt: r.PersistedAt}
	at = proof.Place{Position: leaf.Position, Offset: offset}
	at.Index, err = p.tree.Find(r.Position, offset, leaf.Hash())
	return at, err
}

// read numbers the records of a position, as the tree does.
func (p *placer) read(position storage.Position) error {
	if p.follower == nil {
		p.follower, p.offsets = p.store.Follow(storage.Facts), map[runSeq]uint32{}
	}
	clear(p.offsets)
	p.position = position
	for c, err := range p.follower.Log(position - 1) {
		if err != nil {
			return err
		}
		if c.Position != position {
			break
		}
		for i := range c.Records {
			p.offsets[runSeq{c.Run.RunID, c.Records[i].RunSeq}] = uint32(len(p.offsets))
		}
	}
	return nil
}
