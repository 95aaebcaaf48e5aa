package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
)

// proofs verifies a node's signed statement and the proof of one run, with no more than the
// cluster's first key.
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
	resp, err := w.audits(node).ProveRun(ctx, &runlogv1.ProveRunRequest{RunId: run, Fresh: true})
	if err != nil {
		return fmt.Errorf("proof of %s: %w", run, err)
	}
	p, err := proof.RunProofOf(resp)
	if err == nil {
		_, err = p.Verify(w.clients.firstKey)
	}
	if err == nil && p.Head.LastSeq < ends[run] {
		err = fmt.Errorf("it ends at runSeq %d, the run at %d", p.Head.LastSeq, ends[run])
	}
	if err != nil {
		w.clients.opts.Broken("proof: of %s by %s: %v", run, name, err)
	}
	return nil
}
