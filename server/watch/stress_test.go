package watch_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestWatchersComeAndGoWATCH1 opens and leaves streams of all kinds, read or not, during appends. A
// watcher that resumes with a token gets every event once and in order (WATCH-1), and no watermark
// twice or out of order (WATCH-2, WATCH-3). At the end no resource of the streams is left.
func TestWatchersComeAndGoWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		// A reader that waits for one more message gets it, also when the last append was before.
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 20 * time.Millisecond })
		const runs, appends = 5, 120
		runID := func(run int) string { return fmt.Sprint("run-", run) }
		for run := range runs {
			n.Append(runID(run), servertest.NewEvent("RunStarted"))
		}
		begin := n.WatchRuns(&runlogv1.WatchRunsRequest{}).Want("caughtUp").ResumeToken
		ctx, stop := context.WithTimeout(context.Background(), servertest.Patience)
		defer stop()
		var writers, watchers sync.WaitGroup
		writing := make(chan struct{})
		for w := range 3 {
			writers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 1))
				for i := range appends {
					if _, err := n.TryAppend(runID(rng.IntN(runs)), servertest.Steps(fmt.Sprint(w, "-", i, "-"), 1+rng.IntN(5))...); err != nil {
						t.Error(err)
					}
				}
			})
		}
		go func() {
			writers.Wait()
			close(writing)
		}()
		over := func() bool {
			select {
			case <-writing:
				return true
			default:
				return ctx.Err() != nil
			}
		}
		for run := range runs {
			c := comer{n: n, ctx: ctx, rng: rand.New(rand.NewPCG(uint64(run), 2)), marks: map[string]uint64{}}
			watchers.Go(func() {
				for !over() {
					c.events(runID(run), 1+c.rng.IntN(8), 0)
				}
				c.events(runID(run), 1<<30, n.Snapshot(runID(run)).LastEventSeq)
			})
		}
		all := comer{n: n, ctx: ctx, rng: rand.New(rand.NewPCG(1, 3)), marks: map[string]uint64{}, token: begin}
		watchers.Go(func() {
			for !over() {
				all.watermarks(1 + all.rng.IntN(8))
			}
			all.watermarks(1 << 30)
		})
		for who := range 4 {
			rng := rand.New(rand.NewPCG(uint64(who), 4))
			watchers.Go(func() {
				for !over() {
					leave(ctx, n, rng, runID(rng.IntN(runs)))
				}
			})
		}
		watchers.Wait()
		for run := range runs {
			if last := n.Snapshot(runID(run)).LastEventSeq; all.marks[runID(run)] != last {
				t.Errorf("%s was told to be at %d, and is at %d (WATCH-2)", runID(run), all.marks[runID(run)], last)
			}
		}
		bubble.Until(t, "nothing is left of the streams", func() bool { return n.Metric("runlog_projector_subscriptions") <= 1 })
	})
}

// comer leaves a stream after some messages and comes back with its token.
type comer struct {
	n     *servertest.Node
	ctx   context.Context
	rng   *rand.Rand
	token string
	last  uint64
	marks map[string]uint64
}

// events reads some messages of a run's events; with last, until it has that one.
func (c *comer) events(runID string, messages int, last uint64) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stream, err := c.n.Projection.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: runID, View: runlogv1.WatchView_EVENT, ResumeToken: c.token})
	for ; err == nil && messages > 0 && (last == 0 || c.last < last); messages-- {
		var m *runlogv1.WatchRunResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		for _, e := range m.GetEvents().GetEvents() {
			if e.RunSeq != c.last+1 {
				c.n.T.Errorf("%s: event %d after %d (WATCH-1)", runID, e.RunSeq, c.last)
			}
			c.last = e.RunSeq
		}
		c.token = m.ResumeToken
		if last == 0 && m.GetCaughtUp() != nil && c.rng.IntN(2) == 0 {
			return
		}
	}
	if err != nil {
		c.n.T.Errorf("%s: %v", runID, err)
	}
}

// watermarks reads some messages about all runs, up to caughtUp at the most half of the time.
func (c *comer) watermarks(messages int) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stream, err := c.n.Projection.WatchRuns(ctx, &runlogv1.WatchRunsRequest{ResumeToken: c.token})
	last := messages == 1<<30
	for ; err == nil && messages > 0; messages-- {
		var m *runlogv1.WatchRunsResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		if w := m.GetWatermark(); w != nil {
			if w.LastEventSeq <= c.marks[w.RunId] {
				c.n.T.Errorf("%s at %d after %d (WATCH-3)", w.RunId, w.LastEventSeq, c.marks[w.RunId])
			}
			c.marks[w.RunId] = w.LastEventSeq
		}
		c.token = m.ResumeToken
		if m.GetCaughtUp() != nil && (last || c.rng.IntN(2) == 0) {
			return
		}
	}
	if err != nil {
		c.n.T.Errorf("all runs: %v", err)
	}
}

// leave opens a stream of any kind and leaves it, sometimes before anything came.
func leave(ctx context.Context, n *servertest.Node, rng *rand.Rand, runID string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := rng.IntN(4)
	wait := func() {
		if read == 0 {
			time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
		}
	}
	switch kind := rng.IntN(4); kind {
	case 0:
		resp := n.HTTPStream(ctx, "GET", "/v1/runs/"+runID+":watch?view="+[]string{"WATERMARK", "SNAPSHOT", "EVENT"}[rng.IntN(3)], "", "Accept", "text/event-stream")
		defer resp.Body.Close()
		wait()
		for lines := bufio.NewScanner(resp.Body); read > 0 && lines.Scan(); read-- {
		}
	case 1:
		resp := n.HTTPStream(ctx, "GET", "/v1/runs:watch?includeExisting=true", "")
		defer resp.Body.Close()
		wait()
		for lines := bufio.NewScanner(resp.Body); read > 0 && lines.Scan(); read-- {
		}
	case 2:
		stream, err := n.Projection.WatchRuns(ctx, &runlogv1.WatchRunsRequest{IncludeExisting: true, Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}})
		wait()
		for ; err == nil && read > 0; read-- {
			_, err = stream.Recv()
		}
		if err != nil {
			n.T.Errorf("WatchRuns: %v", err)
		}
	default:
		stream, err := n.Projection.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: runID, View: runlogv1.WatchView_Kind(rng.IntN(4))})
		wait()
		for ; err == nil && read > 0; read-- {
			_, err = stream.Recv()
		}
		if err != nil {
			n.T.Errorf("WatchRun: %v", err)
		}
	}
}

// TestClientThatOpensStreamsWithoutEndD12: streams beyond the limit are refused with a retry delay.
// Existing streams, appends and reads continue. A stream that ends makes room (APP-9).
func TestClientThatOpensStreamsWithoutEndD12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		const limit, room, opened = 100_000, 20, 60
		for range limit - room {
			s, err := n.Server.Internals().Projector.Subscribe("another", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
		}
		var began []*servertest.Watcher
		refusals := 0
		for range opened {
			w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run"})
			first := servertest.Within(t, "an answer", func() *runlogv1.WatchRunResponse { return <-w.Messages })
			if first != nil {
				began = append(began, w)
				continue
			}
			if r := servertest.Refused(t, w.Over(), contract.ReasonOverloaded); r.RetryAfter <= 0 {
				t.Error("no retry delay")
			}
			refusals++
		}
		servertest.WantEqual(t, "streams", len(began), room)
		servertest.WantEqual(t, "refusals", refusals, opened-room)
		n.Append("run", servertest.NewEvent("RunCompleted"))
		servertest.WantEqual(t, "a read", n.Snapshot("run").Status, runlogv1.RunStatus_COMPLETED)
		for _, w := range began {
			w.Until("the append", servertest.Reaches(2))
		}
		began[0].Cancel()
		bubble.Until(t, "a stream that ended makes room", func() bool { return n.Metric("runlog_projector_subscriptions") == limit-1 })
		n.Watch(&runlogv1.WatchRunRequest{RunId: "run"}).Until("caughtUp", servertest.IsCaughtUp)
	})
}

// TestAsOfBeforeTheFirstEventPRJ14: a run that was made without events has a snapshot as of then,
// and none as of before.
func TestAsOfBeforeTheFirstEventPRJ14(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		made, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
			RunId: "run", TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{Uri: "s3://p", PlanId: "plan", PlanVersion: "1"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		empty := n.Snapshot("run")
		created := made.Run.CreatedAt.AsTime()
		time.Sleep(time.Until(created.Add(2 * time.Millisecond)))
		n.Append("run", servertest.NewEvent("RunStarted"))
		resp, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", AsOfTime: timestamppb.New(created)})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantProto(t, "as of its making", resp.Snapshot, empty)
		_, err = n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", AsOfTime: timestamppb.New(created.Add(-1))})
		servertest.Refused(t, err, contract.ReasonRunNotFound)
	})
}
