package proof

import (
	"fmt"
	"io"
	"iter"

	"golang.org/x/mod/sumdb/tlog"

	runlogv1 "runlog/proto/runlog/v1"
)

// WriteRun writes the proof of a run whose checkpoint the caller has verified, and verifies what it
// writes. records are the records of the run in the order of runSeq, with the payloads' stored
// bytes; those that the head does not have are not read. prove returns the places of the records
// behind a runSeq, as ProveRecords does. ErrRunFile: the answers prove nothing.
func WriteRun(
	out io.Writer, p *RunProof, verified *Checkpoint, records iter.Seq2[*runlogv1.EventRecord, error],
	prove func(afterSeq, treeSize uint64) (*runlogv1.ProveRecordsResponse, error),
) error {
	w, err := NewRunWriter(out, p, verified)
	if err != nil {
		return err
	}
	if p.Head.LastSeq > 0 {
		if err := w.copy(records, prove); err != nil {
			return err
		}
	}
	return w.End()
}

// copy writes the records up to the end of the head, a block at a time.
func (w *RunWriter) copy(
	records iter.Seq2[*runlogv1.EventRecord, error], prove func(afterSeq, treeSize uint64) (*runlogv1.ProveRecordsResponse, error),
) error {
	var block *runlogv1.RecordPlaces
	at := 0
	for m, err := range records {
		if err != nil {
			return err
		}
		if block == nil {
			resp, err := prove(w.state.lastSeq, w.state.tree.Size)
			if err != nil {
				return err
			}
			block, at = resp.GetPlaces(), 0
		}
		r, err := RecordOf(m)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRunFile, err)
		}
		place, err := PlaceOf(block, at)
		if err != nil {
			return fmt.Errorf("%w: runSeq %d: %w", ErrRunFile, r.RunSeq, err)
		}
		if err := w.Add(&r, place); err != nil {
			return err
		}
		last := r.RunSeq >= w.proof.Head.LastSeq
		if at++; last || at == len(block.GetIndexes()) {
			hashes, err := SplitHashes(block.GetHashes())
			if err == nil {
				err = w.Included(hashes)
			}
			if err != nil {
				return err
			}
			block = nil
		}
		if last {
			return nil
		}
	}
	return nil
}

// PlaceOf returns a place in an answer of the API.
func PlaceOf(places *runlogv1.RecordPlaces, i int) (Place, error) {
	if i >= len(places.GetIndexes()) || i >= len(places.GetPositions()) || i >= len(places.GetOffsets()) {
		return Place{}, fmt.Errorf("%w: there is no proof that it is", ErrInclusion)
	}
	return Place{int64(places.Indexes[i]), places.Positions[i], places.Offsets[i]}, nil
}

// JoinHashes returns hashes one after the other, as the API has them.
func JoinHashes(hashes []tlog.Hash) []byte {
	out := make([]byte, 0, len(hashes)*tlog.HashSize)
	for i := range hashes {
		out = append(out, hashes[i][:]...)
	}
	return out
}

// SplitHashes is the inverse of JoinHashes. The error is ErrInclusion.
func SplitHashes(joined []byte) ([]tlog.Hash, error) {
	if len(joined)%tlog.HashSize != 0 {
		return nil, fmt.Errorf("%w: hashes of %d bytes", ErrInclusion, len(joined))
	}
	hashes := make([]tlog.Hash, len(joined)/tlog.HashSize)
	for i := range hashes {
		hashes[i] = tlog.Hash(joined[i*tlog.HashSize:])
	}
	return hashes, nil
}
