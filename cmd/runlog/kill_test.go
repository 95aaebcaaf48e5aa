package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestKillNine proves APP-2, APP-1, IDM-6 and APP-11 against SIGKILL: a node under load is killed
// at random moments, also while it recovers; after each restart every acknowledged event is there
// once, with the runSeq and stamp that were acknowledged, sequences have no holes, chains verify,
// and a retry of what had no answer settles it. RUNLOG_CRASH_ROUNDS sets the rounds; make crash
// runs 200.
func TestKillNine(t *testing.T) {
	rounds := 6
	if s := os.Getenv("RUNLOG_CRASH_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("RUNLOG_CRASH_ROUNDS: %v", err)
		}
		rounds = n
	}
	dir := t.TempDir()
	ledgers := make([]*ledger, 8)
	for i := range ledgers {
		ledgers[i] = newLedger(fmt.Sprintf("writer-%d", i))
	}
	var acked, early int
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 9))
		// Most rounds flush, compact and drop log entries all the time; some are an ordinary node.
		var env []string
		if round%4 != 3 {
			env = append(env, smallNode+"="+dir)
		}
		n := spawnNode(t, dir, env...)
		if rng.IntN(8) == 0 {
			// Killed while it starts or recovers: then there is nothing to ask it.
			time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
			n.kill()
			early++
			n = spawnNode(t, dir, env...)
		}
		conn := dialNode(t, n.ready(t).GRPC)
		// Reading everything in every round would take most of the time: the rest comes last.
		recent := fmt.Sprintf("-%d", round-1)
		verifyRuns(t, conn, ledgers, func(run string) bool {
			return strings.HasSuffix(run, recent) || strings.HasSuffix(run, "-all") && round%10 == 0
		})
		kill := time.Duration(30+rng.IntN(400)) * time.Millisecond
		acked += load(t, conn, ledgers, round, func() {
			time.Sleep(kill)
			n.kill()
		})
		_ = conn.Close()
		if t.Failed() {
			t.Fatalf("round %d\n%s", round, n.stderr)
		}
	}
	n := spawnNode(t, dir)
	conn := dialNode(t, n.ready(t).GRPC)
	verifyRuns(t, conn, ledgers, func(string) bool { return true })
	if code := n.stop(t); code != 0 {
		t.Errorf("SIGTERM ended the node with exit code %d:\n%s", code, n.stderr)
	}
	if acked == 0 {
		t.Fatal("no event was acknowledged: the test proved nothing")
	}
	t.Logf("%d rounds, %d more killed while starting, %d events acknowledged and found", rounds, early, acked)
}

// load appends from all writers until the node is gone, and returns how many events were
// acknowledged.
func load(t *testing.T, conn *grpc.ClientConn, ledgers []*ledger, round int, kill func()) int {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var done sync.WaitGroup
	counts := make([]int, len(ledgers))
	for i, l := range ledgers {
		done.Go(func() { counts[i] = l.write(ctx, t, runlogv1.NewEventServiceClient(conn), round) })
	}
	kill()
	done.Wait()
	total := 0
	for _, c := range counts {
		total += c
	}
	return total
}

// ledger is what one writer knows: which events of its runs were acknowledged, and how.
type ledger struct {
	name    string
	acked   map[string]map[string]*runlogv1.AppendResult // run, key
	pending *runlogv1.AppendEventsRequest                // had no answer
	next    int
}

func newLedger(name string) *ledger {
	return &ledger{name: name, acked: map[string]map[string]*runlogv1.AppendResult{}}
}

// runOf spreads a writer's events over a run a round, and one run for all rounds.
func (l *ledger) runOf(round, n int) string {
	if n%3 == 0 {
		return l.name + "-all"
	}
	return fmt.Sprintf("%s-%d", l.name, round)
}

// write appends until the node does not answer any more.
func (l *ledger) write(ctx context.Context, t *testing.T, c runlogv1.EventServiceClient, round int) int {
	rng := rand.New(rand.NewPCG(uint64(round), uint64(len(l.name))+uint64(l.name[len(l.name)-1])))
	acked := 0
	for ctx.Err() == nil {
		req := l.pending
		if req == nil {
			req = l.request(round, rng)
		}
		l.pending = req
		resp, err := c.AppendEvents(ctx, req)
		if err != nil {
			// The same request is sent again in the next round: its key makes that safe (APP-10).
			return acked
		}
		l.pending = nil
		acked += l.acknowledge(t, req, resp)
	}
	return acked
}

func (l *ledger) request(round int, rng *rand.Rand) *runlogv1.AppendEventsRequest {
	run := l.runOf(round, l.next)
	l.next++
	req := &runlogv1.AppendEventsRequest{RunId: run}
	size := 1
	if rng.IntN(4) == 0 {
		size = 1 + rng.IntN(40)
	}
	for i := range size {
		req.Events = append(req.Events, &runlogv1.EventWrite{
			EventType: "StepCompleted", TenantId: "t", ProjectId: "p", EnvironmentId: "e",
			PlanId: "plan", PlanVersion: "1", StepId: fmt.Sprintf("%s/%d/%d", l.name, l.next, i),
			LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
			PayloadForm: &runlogv1.EventWrite_PayloadJson{
				PayloadJson: fmt.Appendf(nil, `{"n":%d,"pad":"%x"}`, l.next, make([]byte, rng.IntN(300))),
			},
		})
	}
	// Sometimes an event that is stored already rides along: it must not be stored again (IDM-6).
	if known := l.acked[run]; len(known) > 0 && rng.IntN(3) == 0 {
		first := proto.CloneOf(req.Events[0])
		for key := range known {
			first.StepId = key
			break
		}
		req.Events = append(req.Events, first)
	}
	return req
}

func (l *ledger) acknowledge(t *testing.T, req *runlogv1.AppendEventsRequest, resp *runlogv1.AppendEventsResponse) int {
	if len(resp.Results) != len(req.Events) {
		t.Errorf("%s: %d results for %d events", req.RunId, len(resp.Results), len(req.Events))
		return 0
	}
	known := l.acked[req.RunId]
	if known == nil {
		known = map[string]*runlogv1.AppendResult{}
		l.acked[req.RunId] = known
	}
	fresh := 0
	for i, r := range resp.Results {
		step := req.Events[i].StepId
		if was := known[step]; was != nil {
			if was.RunSeq != r.RunSeq || was.EventId != r.EventId || !proto.Equal(was.PersistedAt, r.PersistedAt) || !r.Idempotent || r.Persisted {
				t.Errorf("%s: the answer to a duplicate changed (IDM-6):\n was %v\n  is %v", req.RunId, was, r)
			}
			continue
		}
		known[step] = r
		fresh++
	}
	return fresh
}

// verifyRuns reads the chosen runs and compares them with what was acknowledged.
func verifyRuns(t *testing.T, conn *grpc.ClientConn, ledgers []*ledger, chosen func(run string) bool) {
	t.Helper()
	c := runlogv1.NewEventServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, l := range ledgers {
		for run, acked := range l.acked {
			if chosen(run) {
				verifyRun(ctx, t, c, run, acked, l.pending)
			}
		}
	}
}

// verifyRun reads a whole run and recomputes its chain from the wire (APP-11).
func verifyRun(ctx context.Context, t *testing.T, c runlogv1.EventServiceClient, run string, acked map[string]*runlogv1.AppendResult, pending *runlogv1.AppendEventsRequest) {
	t.Helper()
	stream, err := c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: run})
	if err != nil {
		t.Fatal(err)
	}
	maybe := map[string]bool{}
	if pending.GetRunId() == run {
		for _, e := range pending.Events {
			maybe[e.StepId] = true
		}
	}
	found := map[string]bool{}
	var seq uint64
	var chain contract.Digest
	var last time.Time
	for {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.Events {
			seq++
			if e.RunSeq != seq {
				t.Fatalf("%s: runSeq %d where %d was due (APP-1)", run, e.RunSeq, seq)
			}
			if at := e.PersistedAt.AsTime(); at.Before(last) {
				t.Fatalf("%s: persistedAt went back at runSeq %d (APP-5)", run, seq)
			} else {
				last = at
			}
			chain = verifyDigests(t, chain, e)
			step := e.GetStepId()
			if found[step] {
				t.Fatalf("%s: step %s is stored twice (IDM-6)", run, step)
			}
			found[step] = true
			was := acked[step]
			switch {
			case was == nil && !maybe[step]:
				t.Fatalf("%s: step %s was never acknowledged nor tried", run, step)
			case was != nil && (was.RunSeq != e.RunSeq || was.EventId != e.EventId || !proto.Equal(was.PersistedAt, e.PersistedAt)):
				t.Fatalf("%s: step %s was acknowledged as %v and is stored as %v (APP-2)", run, step, was, e)
			}
		}
	}
	for step, was := range acked {
		if !found[step] {
			t.Fatalf("%s: acknowledged event is lost (APP-2): step %s, %v", run, step, was)
		}
	}
	stored := 0
	for step := range maybe {
		if found[step] {
			stored++
		}
	}
	if fresh := len(maybe) - duplicates(maybe, acked); stored != len(maybe) && stored != len(maybe)-fresh {
		t.Fatalf("%s: a request is stored in part (APP-3): %d of %d events", run, stored, len(maybe))
	}
}

func duplicates(steps map[string]bool, acked map[string]*runlogv1.AppendResult) int {
	n := 0
	for step := range steps {
		if acked[step] != nil {
			n++
		}
	}
	return n
}

func verifyDigests(t *testing.T, chain contract.Digest, e *runlogv1.EventRecord) contract.Digest {
	t.Helper()
	event, bad := contract.Validate(&runlogv1.EventWrite{
		EventId: e.EventId, EventType: e.EventType, RunId: e.RunId, TenantId: e.TenantId, ProjectId: e.ProjectId,
		EnvironmentId: e.EnvironmentId, PlanId: e.PlanId, PlanVersion: e.PlanVersion, StepId: e.GetStepId(),
		LogicalAttemptId: e.LogicalAttemptId, EngineAttemptId: e.EngineAttemptId, IdempotencyKey: e.IdempotencyKey,
		EmittedAt: e.EmittedAt, EmittedBy: e.GetEmittedBy(), ContractVersion: e.ContractVersion,
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: e.GetPayloadJson()},
	}, contract.Options{})
	if len(bad) > 0 {
		t.Fatalf("stored event is not valid: %v", bad)
	}
	payload := sha256.Sum256(e.GetPayloadJson())
	record := sha256.Sum256(append(event.AppendCanonical(nil), payload[:]...))
	chain = contract.ChainDigest(chain, record, e.RunSeq, e.PersistedAt.AsTime().UnixNano())
	if hex.EncodeToString(payload[:]) != e.PayloadDigest || hex.EncodeToString(record[:]) != e.RecordDigest || chain.String() != e.ChainDigest {
		t.Fatalf("%s: digests of runSeq %d do not verify (APP-11)", e.RunId, e.RunSeq)
	}
	return chain
}
