//go:build unix

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// verify ends the load, settles it, and holds what every node has against what was acknowledged.
// All nodes must be up.
func (l *clusterLoad) verify() {
	l.t.Helper()
	l.settle()
	if l.t.Failed() {
		l.t.FailNow()
	}
	l.c.level()
	nodes := l.c.all()
	streams := make([]map[string][32]byte, len(nodes))
	var read sync.WaitGroup
	for i, n := range nodes {
		read.Go(func() { streams[i] = l.verifyNode(n) })
	}
	read.Wait()
	if l.t.Failed() {
		l.t.FailNow()
	}
	for i := range nodes[1:] {
		for run, sum := range streams[0] {
			if streams[i+1][run] != sum {
				l.t.Errorf("%s: %s and %s have other records", run, nodes[0].name, nodes[i+1].name)
			}
		}
	}
	for _, n := range nodes {
		read.Go(func() { l.verifyRetries(n) })
	}
	read.Wait()
	if !l.t.Failed() && l.ledger.count() == 0 {
		l.t.Error("nothing was acknowledged: the test proved nothing")
	}
	l.t.Logf("%d events of %d runs, %d linearizable reads; refused: %v", l.ledger.count(), len(l.ledger.runs), l.ledger.reads, l.ledger.refused)
}

// verifyNode reads all runs as one node has them, and returns a hash over the records of each. The
// first node's are held against the ledger.
func (l *clusterLoad) verifyNode(n *clusterNode) map[string][32]byte {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	sums := map[string][32]byte{}
	for run, known := range l.ledger.runs {
		records, err := readRunAt(ctx, n, run)
		if err != nil {
			l.t.Errorf("%s: read %s: %v", n.name, run, err)
			return nil
		}
		hash := sha256.New()
		for _, r := range records {
			text, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
			if err != nil {
				l.t.Error(err)
			}
			hash.Write(text)
		}
		sums[run] = [32]byte(hash.Sum(nil))
		verifyRecords(l.t, n.name, run, known, records)
		last := int64(0)
		for _, r := range records {
			at := r.PersistedAt.AsTime().UnixNano()
			if at < last {
				l.t.Errorf("%s: %s: persistedAt goes back at runSeq %d (APP-5)", n.name, run, r.RunSeq)
			}
			last = at
		}
	}
	return sums
}

// readRunAt reads all of a run that a node has.
func readRunAt(ctx context.Context, n *clusterNode, run string) ([]*runlogv1.EventRecord, error) {
	stream, err := runlogv1.NewEventServiceClient(n.conn).ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: run, Consistency: runlogv1.Consistency_LOCAL})
	if err != nil {
		return nil, err
	}
	var records []*runlogv1.EventRecord
	for {
		batch, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF), status.Code(err) == codes.NotFound:
			return records, nil
		case err != nil:
			return nil, err
		}
		records = append(records, batch.Events...)
	}
}

// verifyRecords holds a run's records against what was acknowledged of it: each event once, with
// the answer that was given (APP-2, IDM-6), nothing that was refused or never sent, sequences
// without holes (APP-1) and chains that fit (APP-11).
func verifyRecords(t *testing.T, node, run string, known *knownRun, records []*runlogv1.EventRecord) {
	found := map[string]bool{}
	var chain contract.Digest
	for i, r := range records {
		step := r.GetStepId()
		was := known.acked[step]
		switch {
		case r.RunSeq != uint64(i)+1:
			t.Errorf("%s: %s: runSeq %d where %d was due (APP-1)", node, run, r.RunSeq, i+1)
			return
		case found[step]:
			t.Errorf("%s: %s: %s is stored twice (IDM-6)", node, run, step)
		case known.never[step] != "":
			t.Errorf("%s: %s: %s is stored at %d, and was refused with %s, which says that it was not (APP-10)", node, run, step, r.RunSeq, known.never[step])
		case was == nil:
			t.Errorf("%s: %s: %s was never acknowledged nor tried", node, run, step)
		case was.result.RunSeq != r.RunSeq || was.result.EventId != r.EventId || !proto.Equal(was.result.PersistedAt, r.PersistedAt):
			t.Errorf("%s: %s: %s was acknowledged as %v and is stored as %v (APP-2)", node, run, step, was.result, r)
		}
		found[step] = true
		if chain = verifyDigests(t, chain, r); t.Failed() {
			return
		}
	}
	for step, was := range known.acked {
		if !found[step] {
			t.Errorf("%s: %s: acknowledged event is lost (APP-2): %s, %v", node, run, step, was.result)
			return
		}
	}
}

// verifyRetries sends every acknowledged event again through a node: the answer is the same
// (IDM-6).
func (l *clusterLoad) verifyRetries(n *clusterNode) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for run, known := range l.ledger.runs {
		for steps := range slices.Chunk(slices.Sorted(maps.Keys(known.acked)), 1000) {
			req := &runlogv1.AppendEventsRequest{RunId: run}
			for _, step := range steps {
				req.Events = append(req.Events, known.acked[step].event)
			}
			resp, err := runlogv1.NewEventServiceClient(n.conn).AppendEvents(ctx, req)
			// who leads may change still
			for status.Code(err) == codes.Unavailable && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
				resp, err = runlogv1.NewEventServiceClient(n.conn).AppendEvents(ctx, req)
			}
			if err != nil {
				l.t.Errorf("%s: retry %s: %v", n.name, run, err)
				return
			}
			for i, step := range steps {
				l.ledger.wantSame(n.name+": "+run, step, known.acked[step].result, resp.Results[i])
			}
		}
	}
}
