package proof

import (
	"fmt"
	"io"
	"iter"

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
	var block *runlogv1.ProveRecordsResponse
	at := 0
	for m, err := range records {
		if err != nil {
			return err
		}
		if block == nil {
			if block, err = prove(w.state.lastSeq, w.state.tree.Size); err != nil {
				return err
			}
			at = 0
		}
		r, err := RecordOf(m)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRunFile, err)
		}
		if at >= len(block.GetPlaces()) || block.Places[at].GetRunSeq() != r.RunSeq {
			return fmt.Errorf("%w: there is no proof that runSeq %d is in the tree", ErrRunFile, r.RunSeq)
		}
		place := block.Places[at]
		if err := w.Add(&r, Place{int64(place.GetIndex()), place.GetPosition(), place.GetOffset()}); err != nil {
			return err
		}
		last := r.RunSeq >= w.proof.Head.LastSeq
		if at++; last || at == len(block.Places) {
			hashes, err := HashesOf(block.Hashes)
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
