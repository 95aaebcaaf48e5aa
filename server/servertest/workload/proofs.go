package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
)

// proofs verifies a node's signed statement, and the proof of one run with each of its records,
// with no more than the cluster's first key and the checkpoint of the proof before.
func (w *worker) proofs(ctx context.Context, node int, statement string, ends map[string]uint64) error {
	name := w.clients.opts.Nodes[node]
	told, err := w.audits(node).ListSigningKeys(ctx, &runlogv1.ListSigningKeysRequest{})
	if err != nil {
		return fmt.Errorf("signing keys: %w", err)
	}
	var keys []proof.Key
	for _, k := range told.GetKeys() {
		keys = append(keys, proof.Key{PublicKey: k.GetPublicKey(), Endorsement: k.GetEndorsement()})
	}
	first := w.clients.opts.OldKeys
	if len(keys) <= first {
		w.clients.opts.Broken("proof: %s knows no signing key of its cluster", name)
		return nil
	}
	if w.clients.firstKey == "" {
		w.clients.firstKey = keys[first].PublicKey
	}
	trusted, err := proof.Trusted(keys[first:], w.clients.firstKey)
	if err == nil {
		_, _, err = proof.Open(statement, trusted...)
	}
	if err != nil {
		w.clients.opts.Broken("proof: statement of %s: %v", name, err)
	}
	if len(ends) == 0 {
		return nil
	}
	runs := slices.Sorted(maps.Keys(ends))
	run := runs[w.rng.IntN(len(runs))]
	if err := w.proofOf(ctx, node, run, ends[run]); errors.Is(err, errUnproved) {
		w.clients.opts.Broken("proof: of %s by %s: %v", run, name, err)
	} else if err != nil {
		return fmt.Errorf("proof of %s: %w", run, err)
	}
	return nil
}

// errUnproved means that a node has answered with a proof that does not hold.
var errUnproved = errors.New("it does not hold")

// proofOf verifies the proof of a run with all of its records, and that the log continues the
// checkpoint of the proof before (TR-3).
func (w *worker) proofOf(ctx context.Context, node int, run string, end uint64) error {
	req := &runlogv1.ProveRunRequest{RunId: run, Fresh: true}
	kept := w.clients.kept
	if kept != nil {
		req.SinceSize = kept.Size
	}
	resp, err := w.audits(node).ProveRun(ctx, req)
	if err != nil {
		return err
	}
	p, err := proof.RunProofOf(resp)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnproved, err)
	}
	newest, _, err := proof.PeekCheckpoint(p.Checkpoint)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errUnproved, err)
	case kept != nil && kept.Origin() == newest.Origin():
		p.Since = kept.Note
	default: // A cluster that was restored may have lost records.
		p.Consistency = nil
	}
	found, err := p.Verify(w.clients.firstKey)
	if err == nil {
		err = p.VerifyHead(found.Checkpoint)
	}
	if err == nil && p.Head.LastSeq < end {
		err = fmt.Errorf("it ends at runSeq %d, the run at %d", p.Head.LastSeq, end)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnproved, err)
	}
	w.clients.kept = &proof.KeptCheckpoint{Checkpoint: *found.Checkpoint, Key: found.Key, Note: p.Checkpoint}
	err = proof.WriteRun(io.Discard, p, found.Checkpoint, w.recordsOf(ctx, node, run), func(after, size uint64) (*runlogv1.ProveRecordsResponse, error) {
		return w.audits(node).ProveRecords(ctx, &runlogv1.ProveRecordsRequest{RunId: run, AfterSeq: after, TreeSize: size})
	})
	if errors.Is(err, proof.ErrRunFile) {
		err = fmt.Errorf("%w: %w", errUnproved, err)
	}
	return err
}

// recordsOf yields the records of a run at a node.
func (w *worker) recordsOf(ctx context.Context, node int, run string) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		for after := uint64(0); ; {
			page, err := w.events(node).ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: run, AfterSeq: after})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range page.GetEvents() {
				if !yield(e, nil) {
					return
				}
			}
			if after = page.GetNextAfterSeq(); after == 0 {
				return
			}
		}
	}
}
