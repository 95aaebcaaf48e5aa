package watch_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestWatchSnapshotsWATCH1: the snapshots of a watch are those that a read gives.
func TestWatchSnapshotsWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 20 * time.Millisecond })
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")))
		const view = runlogv1.WatchView_SNAPSHOT
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run", View: view})
		first := w.Until("the first snapshot", isSnapshot)
		servertest.WantProto(t, "snapshot", first.GetSnapshot(), n.Snapshot("run"))
		servertest.WantEqual(t, "caughtUp", w.Until("caughtUp", servertest.IsCaughtUp).GetCaughtUp().Watermark.LastEventSeq, 2)
		w.Until("a heartbeat", isHeartbeat)
		n.Append("run", servertest.NewEvent("StepCompleted", servertest.Step("a"), servertest.Payload(`{"artifacts":[{"uri":"s3://x","kind":"table"}]}`)))
		live := w.Until("a live snapshot", isSnapshot)
		servertest.WantProto(t, "live snapshot", live.GetSnapshot(), n.Snapshot("run"))
		w.Cancel()
		n.Append("run", servertest.NewEvent("RunCompleted"))
		n.Restart()
		for _, req := range []*runlogv1.WatchRunRequest{
			{RunId: "run", View: view, ResumeToken: live.ResumeToken}, {RunId: "run", View: view, AfterSeq: 3},
		} {
			w := n.Watch(req)
			m := w.Until("the first message", func(*runlogv1.WatchRunResponse) bool { return true })
			servertest.WantProto(t, "snapshot after a restart", m.GetSnapshot(), n.Snapshot("run"))
		}
		w = n.Watch(&runlogv1.WatchRunRequest{RunId: "run", View: view, AfterSeq: 4})
		if m := w.Until("the first message", func(*runlogv1.WatchRunResponse) bool { return true }); m.GetCaughtUp() == nil {
			t.Errorf("nothing new, and yet: %v", m)
		}
		servertest.Refused(t, n.Watch(&runlogv1.WatchRunRequest{RunId: "run", View: 9}).Over(), contract.ReasonInvalidArgumentField)
	})
}

func isSnapshot(m *runlogv1.WatchRunResponse) bool { return m.GetSnapshot() != nil }

// collected are the events of a watch, and the token behind each batch.
type collected struct {
	seqs   []uint64
	tokens map[uint64]string // by the last runSeq of the batch
}

// collect watches events until it has one at last, or the stream ends.
func collect(ctx context.Context, n *servertest.Node, req *runlogv1.WatchRunRequest, last uint64) collected {
	out := collected{tokens: map[uint64]string{}}
	req.View = runlogv1.WatchView_EVENT
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.Projection.WatchRun(ctx, req)
	for err == nil && (len(out.seqs) == 0 || out.seqs[len(out.seqs)-1] < last) {
		var m *runlogv1.WatchRunResponse
		if m, err = stream.Recv(); err == nil {
			for _, e := range m.GetEvents().GetEvents() {
				out.seqs = append(out.seqs, e.RunSeq)
			}
			if m.GetEvents() != nil {
				out.tokens[out.seqs[len(out.seqs)-1]] = m.ResumeToken
			}
		}
	}
	return out
}

func wantSeqs(t testing.TB, what string, got []uint64, from, to uint64) {
	t.Helper()
	var want []uint64
	for seq := from; seq <= to; seq++ {
		want = append(want, seq)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %d events %v…, want %d to %d", what, len(got), got[:min(len(got), 20)], from, to)
	}
}

// TestWatchEventsWATCH1: watches that begin anywhere during appends get every event once, in order.
// From any token they get exactly the rest, after a restart too.
func TestWatchEventsWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		const last = 1201
		var watches sync.WaitGroup
		results := make(chan collected, 100)
		ctx := n.Context()
		next := uint64(1)
		for i := 0; next < last; i++ {
			if i%10 == 0 {
				after := rand.Uint64N(next + 1)
				watches.Go(func() {
					got := collect(ctx, n, &runlogv1.WatchRunRequest{RunId: "run", AfterSeq: after}, last)
					wantSeqs(t, "live", got.seqs, after+1, last)
					results <- got
				})
			}
			count := min(1+rand.IntN(20), int(last-next))
			n.Append("run", servertest.Steps(fmt.Sprint(i, "-"), count)...)
			next += uint64(count)
		}
		watches.Wait()
		close(results)
		n.Restart()
		ctx = n.Context()
		checked, share := 0, 4
		if testing.Short() {
			share = 40
		}
		for got := range results {
			for seq, token := range got.tokens {
				if seq == last || rand.IntN(share) > 0 {
					continue
				}
				rest := collect(ctx, n, &runlogv1.WatchRunRequest{RunId: "run", ResumeToken: token}, last)
				wantSeqs(t, "resumed", rest.seqs, seq+1, last)
				checked++
			}
		}
		t.Logf("%d tokens", checked)
	})
}

// TestWatchEventsSlowConsumerWATCH3: the server ends a watch of events whose reader does not read,
// with a token for the rest. Appends do not wait for it.
func TestWatchEventsSlowConsumerWATCH3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.SlowConsumer = 200 * time.Millisecond })
		n.Append("run", servertest.NewEvent("RunStarted"))
		conn := n.DialWith(grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stream, err := runlogv1.NewProjectionServiceClient(conn).WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_EVENT})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		const last = 4001
		for i := range (last - 1) / 200 {
			n.Append("run", servertest.Steps(fmt.Sprint(i, "-"), 200)...)
		}
		bubble.Until(t, "the subscription is given up", func() bool { return n.Metric("runlog_projector_subscriptions") == 0 })
		seqs := []uint64{1}
		for err == nil {
			var m *runlogv1.WatchRunResponse
			if m, err = stream.Recv(); err == nil {
				for _, e := range m.GetEvents().GetEvents() {
					seqs = append(seqs, e.RunSeq)
				}
			}
		}
		r := servertest.Refused(t, err, contract.ReasonSlowConsumer)
		servertest.WantEqual(t, "streams ended as too slow", n.Metric("runlog_watch_slow_consumers_total"), 1)
		got := seqs[len(seqs)-1]
		wantSeqs(t, "what was on its way", seqs, 1, got)
		servertest.WantEqual(t, "token", r.Metadata["resume_token"], n.WatchToken("run", got))
		rest := collect(n.Context(), n, &runlogv1.WatchRunRequest{RunId: "run", ResumeToken: r.Metadata["resume_token"]}, last)
		wantSeqs(t, "resumed", rest.seqs, got+1, last)
	})
}

// TestWatchersThatNeverReadWATCH3: watchers that never read slow no append down, whatever they
// watch, and the node stops in time.
func TestWatchersThatNeverReadWATCH3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		conn := n.DialWith(grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		client := runlogv1.NewProjectionServiceClient(conn)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for range 20 {
			for view := range runlogv1.WatchView_Kind_name {
				if _, err := client.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_Kind(view)}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := client.WatchRuns(ctx, &runlogv1.WatchRunsRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		bubble.Until(t, "all of them have begun", func() bool { return n.Metric("runlog_projector_subscriptions") == 100 })
		for i := range 100 {
			n.Append("run", servertest.Steps(fmt.Sprint(i, "-"), 50)...)
			n.Append(fmt.Sprint("other-", i), servertest.NewEvent("RunStarted"))
		}
		n.Settle()
		servertest.WantEqual(t, "the last event", n.Snapshot("run").LastEventSeq, 5001)
		began := time.Now()
		n.Close()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the node took %v to stop", took)
		}
	})
}

// TestWatchViewsOverHTTPWATCH4: snapshots and events as Server-Sent Events and as lines, resumed by
// the id.
func TestWatchViewsOverHTTPWATCH4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 20 * time.Millisecond })
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a"), servertest.Payload(`{"n":1}`)))
		s := n.OpenEvents("/v1/runs/run:watch?view=SNAPSHOT")
		m := servertest.ParseObject(t, []byte(s.Until("snapshot").Data))["snapshot"].(map[string]any)
		servertest.WantEqual(t, "snapshot", fmt.Sprint(m["lastEventSeq"], m["status"], len(m["steps"].([]any))), "2RUNNING1")
		s = n.OpenEvents("/v1/runs/run:watch?view=EVENT&afterSeq=1")
		first := s.Until("events")
		events := servertest.ParseObject(t, []byte(first.Data))["events"].(map[string]any)["events"].([]any)
		servertest.WantEqual(t, "payload", fmt.Sprint(len(events), events[0].(map[string]any)["payload"]), "1 map[n:1]")
		if s.Until("caughtUp").Retry == "" || s.Until("heartbeat").Comments == 0 {
			t.Error("no retry, or no ping")
		}
		n.Append("run", servertest.NewEvent("StepCompleted", servertest.Step("a")))
		live := s.Until("events")
		n.Append("run", servertest.NewEvent("RunCompleted"))
		s = n.OpenEvents("/v1/runs/run:watch?view=EVENT&afterSeq=1", "Last-Event-ID", live.ID)
		events = servertest.ParseObject(t, []byte(s.Until("events").Data))["events"].(map[string]any)["events"].([]any)
		servertest.WantEqual(t, "resumed", fmt.Sprint(len(events), events[0].(map[string]any)["runSeq"]), "14")

		resp := n.HTTPStream(n.Context(), "GET", "/v1/runs/run:watch?view=EVENT&payloadForm=JSON", "")
		defer resp.Body.Close()
		line, err := bufio.NewReader(resp.Body).ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		result := servertest.ParseObject(t, line)["result"].(map[string]any)
		servertest.WantEqual(t, "events of a line", len(result["events"].(map[string]any)["events"].([]any)), 4)
	})
}
