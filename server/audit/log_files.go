package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
	"google.golang.org/genproto/googleapis/api/httpbody"

	"runlog/projector/tree"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

const (
	typeText  = "text/plain; charset=utf-8"
	typeBytes = "application/octet-stream"
)

// ReadLog returns a file of the transparency log (C2SP tlog-tiles).
func (s *Service) ReadLog(ctx context.Context, req *runlogv1.ReadLogRequest) (*httpbody.HttpBody, error) {
	if req.Path == "checkpoint" {
		return s.newestNote(ctx)
	}
	tile, ok := parseTile(req.Path)
	if !ok {
		return nil, noLogFile(req.Path, "is not checkpoint, tile/LEVEL/NUMBER or tile/entries/NUMBER")
	}
	// A hash for each leaf, or the leaf behind its length.
	grant, err := s.opts.Memory.Acquire(budget.Shared, int64(tree.Width*(2+contract.LeafSize)))
	if err != nil {
		return nil, err
	}
	defer func() { grant.Release() }()
	var data []byte
	now := s.node.Store().Applied()
	err = readTree(ctx, s.opts.Records, now.Position(), func(t *tree.Tree) (err error) {
		if tile.L < 0 {
			data, err = s.entries(ctx, t, tile)
		} else {
			data, err = t.Tile(tile.L, tile.N, tile.W)
		}
		return err
	})
	if errors.Is(err, tree.ErrNotInTree) {
		return nil, noLogFile(req.Path, "is not in the log, or not yet")
	}
	if err != nil {
		return nil, err
	}
	return &httpbody.HttpBody{ContentType: typeBytes, Data: data}, nil
}

func noLogFile(path, why string) error {
	return &contract.Error{Reason: contract.ReasonRouteNotFound, Message: fmt.Sprintf("the file %s of the log %s", contract.Quote(path), why)}
}

// parseTile parses the path of a tile, or of a bundle of entries: then L is -1.
func parseTile(path string) (tlog.Tile, bool) {
	rest, ok := strings.CutPrefix(path, "tile/")
	if !ok || strings.HasPrefix(rest, "data/") {
		return tlog.Tile{}, false
	}
	if number, entries := strings.CutPrefix(rest, "entries/"); entries {
		rest = "data/" + number
	}
	tile, err := tlog.ParseTilePath(fmt.Sprintf("tile/%d/%s", tree.Height, rest))
	return tile, err == nil
}

// newestNote returns the newest checkpoint, with the signatures of witnesses.
func (s *Service) newestNote(ctx context.Context) (*httpbody.HttpBody, error) {
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	last, err := signing.LastCheckpoint(s.node.Store())
	if err != nil {
		return nil, err
	}
	if last.Position == 0 {
		return nil, noLogFile("checkpoint", "is not there yet: the cluster has signed none")
	}
	return &httpbody.HttpBody{ContentType: typeText, Data: []byte(last.Signed())}, nil
}

// entries returns a bundle of leaves: the data of each, behind its length in two bytes.
func (s *Service) entries(ctx context.Context, t *tree.Tree, tile tlog.Tile) ([]byte, error) {
	first := tile.N << tree.Height
	end := first + int64(tile.W)
	if end > t.Size() {
		return nil, tree.ErrNotInTree
	}
	position, index, err := t.SampleBefore(first)
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, tile.W*(2+contract.LeafSize))
	leaf := contract.Leaf{}
	for c, err := range s.node.Store().Follow(storage.Whole).Log(position - 1) {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		if uint64(c.Position) != leaf.Position {
			leaf = contract.Leaf{Position: uint64(c.Position)}
		}
		for i := range c.Records {
			if index == end {
				return data, nil
			}
			if index >= first {
				leaf.Chain, leaf.PersistedAt = c.Records[i].ChainDigest, c.PersistedAt
				data = binary.BigEndian.AppendUint16(data, uint16(contract.LeafSize))
				data = leaf.Append(data)
			}
			index++
			leaf.Offset++
		}
	}
	if index < end {
		return nil, fmt.Errorf("audit: the log ends with record %d, and the tree has %d", index, t.Size())
	}
	return data, nil
}
