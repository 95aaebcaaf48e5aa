package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	prun "runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest/procs"
	"runlog/testbed/await"
)

// TestKillNineProjector proves PRJ-13, PRJ-1, PRJ-14, WATCH-1, WATCH-2 and WATCH-3 against SIGKILL:
// a node under load is killed at random moments, also while it rebuilds its projection and while it
// recovers, and between some rounds the projection directory is deleted. After each restart every
// run's snapshot has what was acknowledged and is the fold of its events, also as of any event;
// every run is listed once, with its status; and watchers that go on from their tokens meet every
// event once and in order, no watermark twice or behind another, and the last one of every run.
// TEST_RUNLOG_CRASH_ROUNDS sets the rounds; make crash runs 200.
func TestKillNineProjector(t *testing.T) {
	t.Parallel()
	rounds := 6
	if s := os.Getenv("TEST_RUNLOG_CRASH_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("TEST_RUNLOG_CRASH_ROUNDS: %v", err)
		}
		rounds = n
	}
	b := newKillBed(t)
	for round := range rounds {
		b.round(round)
		if t.Failed() {
			t.FailNow()
		}
	}
	n := spawnNode(t, b.dir)
	conn, end := b.attach(n.ready(t))
	for _, w := range b.writers {
		w.settle(conn)
	}
	b.verify(conn, nil)
	b.awaitWatchers(conn)
	code := n.stop(t)
	end()
	if code != 0 {
		t.Errorf("SIGTERM ended the node with exit code %d:\n%s", code, n.stderr)
	}
	if b.rebuilds.begun.Load() == 0 || b.acked.Load() == 0 {
		t.Fatal("nothing was acknowledged, or rebuilt: the test proved nothing")
	}
	var events uint64
	for _, head := range b.heads {
		events += head
	}
	t.Logf("%d rounds, %d more killed while starting; %d events of %d runs; %d rebuilds begun, %d done", rounds, b.early, events, len(b.heads),
		b.rebuilds.begun.Load(), b.rebuilds.done.Load())
	for _, w := range b.watchers {
		t.Log(w)
	}
}

// killBed is a node that is killed over and over, and what is known about its runs.
type killBed struct {
	t        *testing.T
	ctx      context.Context // ends with the time of the test
	dir      string
	writers  []*runWriter
	watchers []follower
	early    int
	acked    atomic.Int64 // requests
	rebuilds struct{ begun, done atomic.Int64 }
	changed  chan struct{} // receives when one of these has risen

	mu sync.Mutex
	// heads has the highest runSeq of each run that was acknowledged; 0 where the run was, and no
	// event.
	heads map[string]uint64
	// tried has the runs that something was sent to; dirty those since they were verified.
	tried, dirty map[string]bool
	// folds of the runs, as far as they were verified.
	folds map[string]*prun.Snapshot
	// told has what watchers were told, by run and runSeq, and was not verified yet.
	told map[string]map[uint64]*sighting
}

const (
	// followedRuns are written by all writers and in all rounds, and slowly once they are long.
	followedRuns    = 4
	longFollowedRun = 4000
)

func newKillBed(t *testing.T) *killBed {
	b := &killBed{
		t: t, ctx: await.Context(t), dir: t.TempDir(), heads: map[string]uint64{}, tried: map[string]bool{}, dirty: map[string]bool{},
		folds: map[string]*prun.Snapshot{}, told: map[string]map[uint64]*sighting{}, changed: make(chan struct{}, 1),
	}
	for i := range 5 {
		b.writers = append(b.writers, &runWriter{bed: b, number: i})
	}
	for i := range followedRuns {
		run := followedRun(i)
		b.watchers = append(b.watchers, &eventFollower{bed: b, run: run},
			&markFollower{bed: b, run: run, view: runlogv1.WatchView_WATERMARK}, &markFollower{bed: b, run: run, view: runlogv1.WatchView_SNAPSHOT})
	}
	b.watchRuns(&runlogv1.WatchRunsRequest{}, &runlogv1.WatchRunsRequest{TenantId: "acme"},
		&runlogv1.WatchRunsRequest{Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}},
		&runlogv1.WatchRunsRequest{TenantId: "beta", Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_PAUSED}})
	return b
}

func (b *killBed) watchRuns(filters ...*runlogv1.WatchRunsRequest) {
	for _, filter := range filters {
		b.watchers = append(b.watchers, &runsFollower{bed: b, filter: filter, listing: filter.IncludeExisting, marks: map[string]uint64{}, in: map[string]bool{}})
	}
}

func followedRun(n int) string { return fmt.Sprint("followed-", n) }

// tenantOf spreads runs over two tenants.
func tenantOf(run string) string {
	if run[len(run)-1]%2 == 0 {
		return "acme"
	}
	return "beta"
}

// round starts the node, verifies what there is, and kills it under load.
func (b *killBed) round(round int) {
	t := b.t
	rng := rand.New(rand.NewPCG(uint64(round), 13))
	var env []string
	if round%4 != 3 {
		env = append(env, smallNode+"="+b.dir)
	}
	if round%3 == 1 {
		if err := os.RemoveAll(filepath.Join(b.dir, "projection")); err != nil {
			t.Fatal(err)
		}
	}
	n := spawnNode(t, b.dir, env...)
	if rng.IntN(4) == 0 {
		procs.Pass(time.Duration(rng.IntN(400)) * time.Millisecond)
		n.kill()
		b.early++
		n = spawnNode(t, b.dir, env...)
	}
	if round == 2 {
		b.watchRuns(&runlogv1.WatchRunsRequest{IncludeExisting: true},
			&runlogv1.WatchRunsRequest{IncludeExisting: true, Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}})
	}
	addresses := n.ready(t)
	conn, end := b.attach(addresses)
	if round == 0 {
		b.awaitWatchers(conn) // to be told of everything from the first event on
	}
	b.verify(conn, rng)
	if rng.IntN(2) == 0 {
		b.awaitWatchers(conn)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var work sync.WaitGroup
	for _, w := range b.writers {
		work.Go(func() { w.write(ctx, conn, round) })
	}
	begin, kill := time.Duration(rng.IntN(200))*time.Millisecond, time.Duration(50+rng.IntN(600))*time.Millisecond
	acked, begun, done := b.acked.Load(), b.rebuilds.begun.Load(), b.rebuilds.done.Load()
	rebuild := round%2 == 0
	if rebuild {
		work.Go(func() {
			procs.Pass(begin)
			b.rebuild(ctx, addresses.Admin)
		})
	}
	// A machine that does much else must not make this a test of idle nodes. What a rebuild that is
	// done leaves on disk is what a killed node goes on from.
	await.Until(t, "appends, and a rebuild", func(ctx context.Context) error {
		select {
		case <-b.changed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, func() bool {
		return b.acked.Load() > acked && (!rebuild || b.rebuilds.begun.Load() > begun) && (round%4 != 0 || b.rebuilds.done.Load() > done)
	})
	procs.Pass(kill)
	n.kill()
	work.Wait()
	end()
	if t.Failed() {
		t.Logf("round %d\n%s", round, n.stderr)
	}
}

// attach lets the watchers follow a node, until the function that it returns is called after the
// node's end.
func (b *killBed) attach(at server.Addresses) (conn *grpc.ClientConn, end func()) {
	b.t.Helper()
	conn, watching := dialNode(b.t, at.GRPC), dialNode(b.t, at.GRPC)
	ctx, cancel := context.WithCancel(b.ctx)
	var gone atomic.Bool
	var streams sync.WaitGroup
	b.t.Cleanup(func() { // if the test stops early
		cancel()
		streams.Wait()
	})
	for _, w := range b.watchers {
		streams.Go(func() {
			await.Poll(b.t, "the end of the node", func() bool {
				known := b.acknowledged()
				if err := w.follow(ctx, runlogv1.NewProjectionServiceClient(watching), known); ctx.Err() == nil {
					b.ended(w, known, err)
				}
				return gone.Load() || ctx.Err() != nil
			})
		})
	}
	return conn, func() {
		// What the node has sent is read to its end: a stream ends with the connection, not before.
		gone.Store(true)
		streams.Wait()
		if b.ctx.Err() != nil {
			b.t.Error("the streams of a node that is gone do not end")
		}
		cancel()
		_, _ = conn.Close(), watching.Close()
	}
}

// count counts something, and wakes the round that waits for it.
func (b *killBed) count(what *atomic.Int64) {
	what.Add(1)
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// rebuild has the projection rebuilt for as long as the node lives; what is served must be right.
func (b *killBed) rebuild(ctx context.Context, admin string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+admin+"/projection/rebuild", nil)
	if err != nil {
		b.t.Error(err)
		return
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return // killed
	}
	defer resp.Body.Close()
	b.count(&b.rebuilds.begun)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var line struct {
			Phase, Error string
			Differing    int
			Different    []string
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return // cut off
		}
		if line.Error != "" || line.Differing > 0 {
			b.t.Errorf("rebuild: %s (PRJ-1, PRJ-13)", lines.Bytes())
		}
		if line.Phase == "done" {
			b.count(&b.rebuilds.done)
		}
	}
}

// runWriter appends to runs of its own, one a round, and to those that all writers share.
type runWriter struct {
	bed     *killBed
	number  int
	sent    uint32
	pending *runlogv1.AppendEventsRequest // had no answer
}

// write appends until the node does not answer any more.
func (w *runWriter) write(ctx context.Context, conn *grpc.ClientConn, round int) {
	rng := rand.New(rand.NewPCG(uint64(round), uint64(w.number)))
	own := fmt.Sprintf("round-%d-%d", round, w.number)
	if rng.IntN(2) == 0 && !w.create(ctx, conn, own) {
		return
	}
	for ctx.Err() == nil {
		if w.pending == nil {
			w.pending = w.request(rng, round, own)
		}
		if !w.send(ctx, conn) {
			return
		}
	}
}

// create makes a run without events, and leaves some of them at that.
func (w *runWriter) create(ctx context.Context, conn *grpc.ClientConn, run string) bool {
	w.bed.try(run)
	_, err := runlogv1.NewRunServiceClient(conn).CreateRun(ctx, &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
		RunId: run, TenantId: tenantOf(run), ProjectId: "p", EnvironmentId: "e",
		PlanRef: &runlogv1.PlanRef{Uri: "s3://plan", SchemaVersion: "1", PlanId: "plan", PlanVersion: "1"},
	}})
	if err == nil {
		w.bed.acknowledge(run, 0)
	}
	return w.bed.answered(err)
}

// settle sends once more what had no answer.
func (w *runWriter) settle(conn *grpc.ClientConn) {
	if w.pending != nil && !w.send(w.bed.ctx, conn) {
		w.bed.t.Error("the node does not answer")
	}
}

// send sends what is pending; it keeps it when there is no answer, as its keys make that safe
// (APP-10).
func (w *runWriter) send(ctx context.Context, conn *grpc.ClientConn) bool {
	w.bed.try(w.pending.RunId)
	resp, err := runlogv1.NewEventServiceClient(conn).AppendEvents(ctx, w.pending)
	if err != nil {
		return w.bed.answered(err)
	}
	run := w.pending.RunId
	w.pending = nil
	w.bed.count(&w.bed.acked)
	for _, r := range resp.Results {
		w.bed.acknowledge(run, r.RunSeq)
	}
	return true
}

// answered says whether a call was; only a node that is gone may leave it without an answer.
func (b *killBed) answered(err error) bool {
	if err != nil && status.Code(err) != codes.Unavailable {
		b.t.Errorf("refused: %v", err)
	}
	return err == nil
}

func (b *killBed) try(run string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried[run], b.dirty[run] = true, true
}

func (b *killBed) acknowledge(run string, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heads[run] = max(b.heads[run], seq)
}

// acknowledged returns how far all runs are by now.
func (b *killBed) acknowledged() map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.heads)
}

func (w *runWriter) request(rng *rand.Rand, round int, own string) *runlogv1.AppendEventsRequest {
	run := own
	if rng.IntN(2) == 0 {
		run = followedRun(rng.IntN(followedRuns))
	}
	heads := w.bed.acknowledged()
	if heads[run] > longFollowedRun+20*uint64(round) {
		run = own
	}
	head := heads[run]
	req := &runlogv1.AppendEventsRequest{RunId: run}
	size := 1
	if rng.IntN(4) == 0 {
		size += rng.IntN(30)
	}
	for range size {
		req.Events = append(req.Events, w.event(rng, run, head))
	}
	return req
}

var (
	runTypes = []string{
		"RunStarted", "RunStarted", "RunPaused", "RunResumed", "RunPaused", "RunResumed", "RunQueued", "RunApproved",
		"SignalAccepted", "SignalRejected", "StepTeleported", "RunTeleported",
	}
	ends      = []string{"RunCompleted", "RunFailed", "RunCancelled"}
	stepTypes = []string{
		"StepStarted", "StepStarted", "StepCompleted", "StepCompleted", "StepFailed", "StepSkipped", "StepDelayed",
		"StepWaitingForAttestation", "StepAttested",
	}
	payloads = []string{
		`{}`, `{"artifacts":[{"uri":"s3://a","kind":"log"},{"uri":"s3://b","kind":"table"}]}`, `{"reason":"because"}`,
		`{"error":{"code":"X","message":"m","retryable":true}}`, `{"draining":true}`,
		`{"startedAt":"2026-02-11T10:30:00.125+01:00"}`, `{"completedAt":"2026-02-11T10:31:00Z","signalId":"s"}`,
	}
)

// event draws events that a run's state may allow or not, of attempts that may be late, for steps
// that the run has come to lately. Some come again, with another payload at times.
func (w *runWriter) event(rng *rand.Rand, run string, head uint64) *runlogv1.EventWrite {
	w.sent++
	e := &runlogv1.EventWrite{
		TenantId: tenantOf(run), ProjectId: "p", EnvironmentId: "e", PlanId: "plan", PlanVersion: "1",
		EngineAttemptId: 1 + rng.Uint32N(3), EmittedAt: timestamppb.Now(),
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(payloads[rng.IntN(len(payloads))])},
	}
	switch n := rng.IntN(100); {
	case n == 0:
		e.EventType, e.LogicalAttemptId = ends[rng.IntN(len(ends))], 10*w.sent+uint32(w.number)
	case n < 25:
		e.EventType, e.LogicalAttemptId = runTypes[rng.IntN(len(runTypes))], 10*w.sent+uint32(w.number)
	default:
		e.EventType, e.LogicalAttemptId = stepTypes[rng.IntN(len(stepTypes))], 1+rng.Uint32N(3)
		if e.EventType == "StepAttested" {
			e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte([]string{`{"outcome":"SUCCESS"}`, `{"outcome":"FAIL"}`}[rng.IntN(2)])}
		}
		e.StepId = fmt.Sprint("step-", max(0, int(head/5)-rng.IntN(5)))
	}
	return e
}
