package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	prun "runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// sighting is what watchers were told of a run at a runSeq. What is zero was not told.
type sighting struct {
	status runlogv1.RunStatus_Value
	digest string // of the snapshot
	chain  string // chainDigest of the event
}

// saw remembers what a watcher was told, for all of them must be told the same.
func (b *killBed) saw(run string, seq uint64, what sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told[run] == nil {
		b.told[run] = map[uint64]*sighting{}
	}
	was := b.told[run][seq]
	if was == nil {
		was = &sighting{}
		b.told[run][seq] = was
	}
	if was.status != 0 && what.status != 0 && was.status != what.status ||
		was.digest != "" && what.digest != "" && was.digest != what.digest ||
		was.chain != "" && what.chain != "" && was.chain != what.chain {
		b.t.Errorf("watchers were told two things of %s at %d: %v, %v (PRJ-1)", run, seq, *was, what)
	}
	was.status, was.digest, was.chain = max(was.status, what.status), max(was.digest, what.digest), max(was.chain, what.chain)
}

// checkTold compares what watchers were told of a run with its fold up to a runSeq.
func (b *killBed) checkTold(s *prun.Snapshot, chain string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.told[s.RunID][s.LastEventSeq]
	if told == nil {
		return
	}
	delete(b.told[s.RunID], s.LastEventSeq)
	if told.status != 0 && told.status != runlogv1.RunStatus_Value(s.Status) {
		b.t.Errorf("%s at %d was told to be %v, and was %v (WATCH-1)", s.RunID, s.LastEventSeq, told.status, s.Status)
	}
	if told.digest != "" && told.digest != digestOf(s) {
		b.t.Errorf("the snapshot of %s that was told at %d is not the fold of its events (PRJ-1)", s.RunID, s.LastEventSeq)
	}
	if told.chain != "" && told.chain != chain {
		b.t.Errorf("the event of %s that was told at %d is not the one that is stored (WATCH-1)", s.RunID, s.LastEventSeq)
	}
}

// verify verifies, while nothing is appended, the runs that something was sent to since they were
// verified last and some of the others, and the list. Without rng it verifies all of them, from
// their first events on.
func (b *killBed) verify(conn *grpc.ClientConn, rng *rand.Rand) {
	b.t.Helper()
	ctx := b.ctx
	runs := slices.Sorted(maps.Keys(b.tried))
	if rng == nil {
		clear(b.folds)
	} else {
		others := 20
		rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		runs = slices.DeleteFunc(runs, func(run string) bool {
			others--
			return !b.dirty[run] && others < 0
		})
	}
	position := ""
	for _, run := range runs {
		if at := b.verifyRun(ctx, conn, run); at != "" {
			position = at
		}
	}
	clear(b.dirty)
	if !b.t.Failed() {
		b.verifyLists(ctx, conn, position)
	}
	if rng != nil {
		return
	}
	for run, told := range b.told {
		for seq := range told {
			if seq > 0 {
				b.t.Errorf("watchers were told of %s at %d, which is not stored", run, seq)
			}
		}
	}
}

// verifyRun compares what is served of a run with the fold of its events, and returns how far the
// node was.
func (b *killBed) verifyRun(ctx context.Context, conn *grpc.ClientConn, run string) (position string) {
	b.t.Helper()
	projection := runlogv1.NewProjectionServiceClient(conn)
	b.mu.Lock()
	head, acked := b.heads[run]
	b.mu.Unlock()
	served, err := projection.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: run})
	if status.Code(err) == codes.NotFound && !acked {
		return ""
	}
	if err != nil {
		b.t.Fatalf("snapshot of %s: %v", run, err)
	}
	fold, ok := b.folds[run]
	if !ok {
		fold = prun.Empty(&storage.Run{RunID: run, PlanID: "plan", PlanVersion: "1",
			Scope: storage.Scope{TenantID: tenantOf(run), ProjectID: "p", EnvironmentID: "e"}})
	}
	records := readRecords(ctx, b.t, conn, run, fold.LastEventSeq)
	for i := range records {
		fold = prun.Reduce(fold, &records[i].Record)
		b.checkTold(fold, records[i].chain)
		if i%97 == 5 {
			wantFold(b.t, "as of an event (PRJ-14)", b.asOf(ctx, projection, fold), fold)
		}
	}
	b.folds[run] = fold
	if fold.LastEventSeq < head {
		b.t.Fatalf("%s: runSeq %d was acknowledged, and %d is the last one stored (APP-2)", run, head, fold.LastEventSeq)
	}
	wantFold(b.t, "served (PRJ-1, PRJ-13)", served.Snapshot, fold)
	if fold.LastEventSeq > 0 {
		wantFold(b.t, "as of the last event (PRJ-14)", b.asOf(ctx, projection, fold), fold)
	}
	again, err := projection.ProjectRun(ctx, &runlogv1.ProjectRunRequest{RunId: run})
	if err != nil {
		b.t.Fatalf("fold %s again: %v", run, err)
	}
	if !again.MatchesStored {
		b.t.Errorf("%s: what is served is not the fold of the log (PRJ-1)", run)
	}
	wantFold(b.t, "folded again (PRJ-1)", again.Snapshot, fold)
	return served.Applied.Position
}

func (b *killBed) asOf(ctx context.Context, c runlogv1.ProjectionServiceClient, s *prun.Snapshot) *runlogv1.RunSnapshot {
	b.t.Helper()
	resp, err := c.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: s.RunID, AsOfSeq: proto.Uint64(s.LastEventSeq)})
	if err != nil {
		b.t.Fatalf("%s as of %d: %v", s.RunID, s.LastEventSeq, err)
	}
	return resp.Snapshot
}

func digestOf(s *prun.Snapshot) string { return contract.Digest(s.Digest()).String() }

func wantFold(t *testing.T, what string, got *runlogv1.RunSnapshot, want *prun.Snapshot) {
	t.Helper()
	if got.LastEventSeq != want.LastEventSeq || got.Digest != digestOf(want) || got.Stale {
		t.Errorf("%s: the snapshot %s is at %d with digest %.12s, stale %v; the fold of its events is at %d with %.12s\n%v\n%s",
			want.RunID, what, got.LastEventSeq, got.Digest, got.Stale, want.LastEventSeq, digestOf(want), got, want.CanonicalJSON())
	}
}

// storedEvent is an event as it comes over the wire.
type storedEvent struct {
	storage.Record
	chain string
}

// readRecords reads the events of a run behind a runSeq, for the reducer.
func readRecords(ctx context.Context, t *testing.T, conn *grpc.ClientConn, run string, after uint64) (records []storedEvent) {
	t.Helper()
	stream, err := runlogv1.NewEventServiceClient(conn).ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: run, AfterSeq: after})
	for err == nil {
		var batch *runlogv1.ReadEventsResponse
		batch, err = stream.Recv()
		for _, e := range batch.GetEvents() {
			id, bad := uuid.Parse(e.EventId)
			if after++; bad != nil || e.RunSeq != after {
				t.Fatalf("%s: event %q at runSeq %d, where %d was due (APP-1)", run, e.EventId, e.RunSeq, after)
			}
			records = append(records, storedEvent{chain: e.ChainDigest, Record: storage.Record{Recorded: contract.Recorded{
				Event: contract.Event{
					EventID: contract.EventID(id), Type: e.EventType, RunID: e.RunId,
					TenantID: e.TenantId, ProjectID: e.ProjectId, EnvironmentID: e.EnvironmentId,
					PlanID: e.PlanId, PlanVersion: e.PlanVersion, StepID: e.GetStepId(),
					LogicalAttemptID: e.LogicalAttemptId, EngineAttemptID: e.EngineAttemptId,
					EmittedAt: e.EmittedAt.AsTime().UnixNano(), Payload: e.GetPayloadJson(),
				},
				RunSeq: e.RunSeq, PersistedAt: e.PersistedAt.AsTime().UnixNano(),
			}}})
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("read %s: %v", run, err)
	}
	return records
}

// verifyLists wants every run in the list once, and in that of its status, and nowhere else.
func (b *killBed) verifyLists(ctx context.Context, conn *grpc.ClientConn, position string) {
	b.t.Helper()
	all := b.list(ctx, conn, &runlogv1.ListRunsRequest{MinPosition: position})
	for run, fold := range b.folds {
		if all[run] == nil {
			b.t.Errorf("not listed up to %s: the run whose fold is %+v (READ-6)", position, fold)
		}
	}
	byStatus := 0
	for value := range runlogv1.RunStatus_Value_name {
		if value == 0 {
			continue
		}
		for _, run := range b.list(ctx, conn, &runlogv1.ListRunsRequest{Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_Value(value)}}) {
			byStatus++
			if int32(run.Status) != value {
				b.t.Errorf("%s is %v, and listed as %v", run.RunId, run.Status, runlogv1.RunStatus_Value(value))
			}
		}
	}
	if byStatus != len(all) {
		b.t.Errorf("%d runs are listed, %d of them by their status", len(all), byStatus)
	}
}

// list reads a list, page by page, and compares it with the folds.
func (b *killBed) list(ctx context.Context, conn *grpc.ClientConn, req *runlogv1.ListRunsRequest) map[string]*runlogv1.Run {
	b.t.Helper()
	runs := map[string]*runlogv1.Run{}
	req.PageSize = 7
	if len(b.folds) > 100 {
		req.PageSize = 70
	}
	for {
		page, err := runlogv1.NewRunServiceClient(conn).ListRuns(ctx, req)
		if err != nil {
			b.t.Fatalf("list: %v", err)
		}
		for _, run := range page.Runs {
			if runs[run.RunId] != nil {
				b.t.Errorf("%s is listed twice", run.RunId)
			}
			runs[run.RunId] = run
			fold := b.folds[run.RunId]
			if fold == nil || prun.Status(run.Status) != fold.Status || run.LastSeq != fold.LastEventSeq {
				b.t.Errorf("listed: %v; the fold of its events: %+v", run, fold)
			}
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return runs
		}
	}
}
