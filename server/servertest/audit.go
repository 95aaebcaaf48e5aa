package servertest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"google.golang.org/protobuf/proto"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
)

// Exported is an export, read to its end.
type Exported struct {
	Events  []*runlogv1.EventRecord
	Summary *runlogv1.ExportSummary
	tokens  []string // of the messages
}

// Bytes returns the whole answer without the statement, whose signature may be by another key.
func (e *Exported) Bytes(t testing.TB) []byte {
	t.Helper()
	summary := proto.CloneOf(e.Summary)
	summary.Statement = ""
	var all bytes.Buffer
	for _, m := range e.Events {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%d %x\n", len(b), b)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(summary)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&all, "summary %x\n", b)
	return all.Bytes()
}

// Export reads an export to its end.
func (n *Node) Export(req *runlogv1.ExportEventsRequest) *Exported {
	n.T.Helper()
	e, err := n.TryExport(req)
	if err != nil {
		n.T.Fatalf("export: %v", err)
	}
	return e
}

// TryExport reads an export until it ends or breaks.
func (n *Node) TryExport(req *runlogv1.ExportEventsRequest) (*Exported, error) {
	stream, err := n.Audit.ExportEvents(n.Context(), req)
	if err != nil {
		return nil, err
	}
	var e Exported
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) && e.Summary != nil {
			return &e, nil
		}
		if err != nil {
			return nil, err
		}
		e.Events = append(e.Events, m.Events...)
		e.tokens = append(e.tokens, m.ResumeToken)
		e.Summary = m.Summary
	}
}

// Audits returns a client of AuditService.
func (n *Node) Audits() runlogv1.AuditServiceClient { return runlogv1.NewAuditServiceClient(n.Conn) }

// HaveKey makes the cluster create its signing key, which it otherwise does at the first signature.
func (n *Node) HaveKey() {
	n.T.Helper()
	if _, signed, err := n.Server.Internals().Signer.Load().Sign(n.Context(), &proof.Statement{Title: "a test"}); err != nil || !signed {
		n.T.Fatalf("signed: %t, %v", signed, err)
	}
}

// Seldom makes checkpoints on demand only, after the first.
func Seldom(_ int, o *server.Options) { o.CheckpointInterval = time.Hour }

// Prove gets the proof of a run, verifies it as an auditor would, and returns the leaf and the
// checkpoint.
func (n *Node) Prove(runID string, fresh bool) (*runlogv1.RunLeaf, *proof.Checkpoint) {
	n.T.Helper()
	resp, err := n.Audits().ProveRun(n.Context(), &runlogv1.ProveRunRequest{RunId: runID, Fresh: fresh})
	if err != nil {
		n.T.Fatalf("prove %q: %v", runID, err)
	}
	var keys []proof.Key
	for _, k := range resp.Keys {
		keys = append(keys, proof.Key{PublicKey: k.PublicKey, Endorsement: k.Endorsement})
	}
	_, signer, err := proof.OpenCheckpoint(resp.Checkpoint, keys[len(keys)-1].PublicKey)
	if err != nil {
		n.T.Fatal(err)
	}
	lineage := proof.Lineage(keys, signer)
	trusted, err := proof.Trusted(lineage, lineage[0].PublicKey)
	if err != nil {
		n.T.Fatal(err)
	}
	c, _, err := proof.OpenCheckpoint(resp.Checkpoint, trusted...)
	if err != nil {
		n.T.Fatal(err)
	}
	events, chain, seq := n.List(runID), contract.Digest{}, uint64(0)
	for _, e := range events[:resp.Leaf.Head.LastSeq] {
		seq++
		if e.RunSeq != seq {
			n.T.Fatalf("run %q has runSeq %d as number %d", runID, e.RunSeq, seq)
		}
		if seq == resp.Leaf.Head.LastSeq && e.ChainDigest != resp.Leaf.Head.ChainDigest {
			n.T.Fatalf("the leaf of %q has chain digest %s, its record %s", runID, resp.Leaf.Head.ChainDigest, e.ChainDigest)
		}
	}
	if _, err := hex.Decode(chain[:], []byte(resp.Leaf.Head.ChainDigest)); err != nil {
		n.T.Fatal(err)
	}
	l := resp.Leaf
	head := proof.RunHead{
		RunID: l.RunId, TenantID: l.TenantId, ProjectID: l.ProjectId, EnvironmentID: l.EnvironmentId, PlanID: l.PlanId, PlanVersion: l.PlanVersion,
		CreatedAt: l.CreatedAt.AsTime().UnixNano(), LastSeq: l.Head.LastSeq, Chain: chain,
	}
	if l.Head.PersistedAt != nil {
		head.PersistedAt = l.Head.PersistedAt.AsTime().UnixNano()
	}
	var path tlog.RecordProof
	for _, h := range resp.Path {
		path = append(path, tlog.Hash(h))
	}
	if err := tlog.CheckRecord(path, int64(c.Runs), c.Root, int64(resp.LeafIndex), head.Leaf()); err != nil {
		n.T.Fatalf("the path of %q: %v", runID, err)
	}
	return l, c
}

// SigningKeys returns the keys of the cluster, as ListSigningKeys does.
func (n *Node) SigningKeys() []*runlogv1.SigningKey {
	n.T.Helper()
	resp, err := n.Audits().ListSigningKeys(n.Context(), &runlogv1.ListSigningKeysRequest{})
	if err != nil {
		n.T.Fatal(err)
	}
	return resp.Keys
}
