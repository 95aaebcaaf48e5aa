package servertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/audit/proof"
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

// Prove gets the proof of a run with all its records, verifies it as an auditor would, and returns
// the leaf and the checkpoint.
func (n *Node) Prove(runID string, fresh bool) (*runlogv1.RunLeaf, *proof.Checkpoint) {
	n.T.Helper()
	resp, err := n.Audits().ProveRun(n.Context(), &runlogv1.ProveRunRequest{RunId: runID, Fresh: fresh})
	if err != nil {
		n.T.Fatalf("prove %q: %v", runID, err)
	}
	p, err := proof.RunProofOf(resp)
	if err != nil {
		n.T.Fatal(err)
	}
	found, err := p.Verify(p.Keys[0].PublicKey)
	if err != nil {
		n.T.Fatal(err)
	}
	var file bytes.Buffer
	records := func(yield func(*runlogv1.EventRecord, error) bool) {
		for after := uint64(0); ; {
			page, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: runID, AfterSeq: after})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			if after = page.NextAfterSeq; after == 0 {
				return
			}
		}
	}
	if err := proof.WriteRun(&file, p, found.Checkpoint, records, func(afterSeq, treeSize uint64) (*runlogv1.ProveRecordsResponse, error) {
		return n.Audits().ProveRecords(n.Context(), &runlogv1.ProveRecordsRequest{RunId: runID, AfterSeq: afterSeq, TreeSize: treeSize})
	}); err != nil {
		n.T.Fatalf("prove the records of %q: %v", runID, err)
	}
	if _, err := proof.VerifyRunFile(&file, p.Keys[0].PublicKey); err != nil {
		n.T.Fatalf("the proof of %q: %v", runID, err)
	}
	return resp.Leaf, found.Checkpoint
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
