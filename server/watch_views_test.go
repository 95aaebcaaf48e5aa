package server

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
	"runlog/testbed/bubble"
)

// TestWatchSnapshotsWATCH1: the snapshots of a watch are those that a read gives.
func TestWatchSnapshotsWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.Heartbeat = 20 * time.Millisecond })
		n.append("run", newEvent("RunStarted"), newEvent("StepStarted", step("a")))
		const view = runlogv1.WatchView_SNAPSHOT
		w := n.watch(&runlogv1.WatchRunRequest{RunId: "run", View: view})
		first := w.until("the first snapshot", isSnapshot)
		wantProto(t, "snapshot", first.GetSnapshot(), n.snapshot("run"))
		wantEqual(t, "caughtUp", w.until("caughtUp", isCaughtUp).GetCaughtUp().Watermark.LastEventSeq, 2)
		w.until("a heartbeat", isHeartbeat)
		n.append("run", newEvent("StepCompleted", step("a"), payload(`{"artifacts":[{"uri":"s3://x","kind":"table"}]}`)))
		live := w.until("a live snapshot", isSnapshot)
		wantProto(t, "live snapshot", live.GetSnapshot(), n.snapshot("run"))
		w.cancel()
		n.append("run", newEvent("RunCompleted"))
		n.restart()
		for _, req := range []*runlogv1.WatchRunRequest{
			{RunId: "run", View: view, ResumeToken: live.ResumeToken}, {RunId: "run", View: view, AfterSeq: 3},
		} {
			w := n.watch(req)
			m := w.until("the first message", func(*runlogv1.WatchRunResponse) bool { return true })
			wantProto(t, "snapshot after a restart", m.GetSnapshot(), n.snapshot("run"))
		}
		w = n.watch(&runlogv1.WatchRunRequest{RunId: "run", View: view, AfterSeq: 4})
		if m := w.until("the first message", func(*runlogv1.WatchRunResponse) bool { return true }); m.GetCaughtUp() == nil {
			t.Errorf("nothing new, and yet: %v", m)
		}
		refused(t, n.watch(&runlogv1.WatchRunRequest{RunId: "run", View: 9}).over(), contract.ReasonInvalidArgumentField)
	})
}

func isSnapshot(m *runlogv1.WatchRunResponse) bool { return m.GetSnapshot() != nil }

// collected are the events of a watch, and the token behind each batch.
type collected struct {
	seqs   []uint64
	tokens map[uint64]string // by the last runSeq of the batch
}

// collect watches events until it has one at last, or the stream ends.
func (n *node) collect(ctx context.Context, req *runlogv1.WatchRunRequest, last uint64) collected {
	out := collected{tokens: map[uint64]string{}}
	req.View = runlogv1.WatchView_EVENT
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.projection.WatchRun(ctx, req)
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
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		const last = 1201
		var watches sync.WaitGroup
		results := make(chan collected, 100)
		ctx := n.context()
		next := uint64(1)
		for i := 0; next < last; i++ {
			if i%10 == 0 {
				after := rand.Uint64N(next + 1)
				watches.Go(func() {
					got := n.collect(ctx, &runlogv1.WatchRunRequest{RunId: "run", AfterSeq: after}, last)
					wantSeqs(t, "live", got.seqs, after+1, last)
					results <- got
				})
			}
			count := min(1+rand.IntN(20), int(last-next))
			n.append("run", steps(fmt.Sprint(i, "-"), count)...)
			next += uint64(count)
		}
		watches.Wait()
		close(results)
		n.restart()
		ctx = n.context()
		checked, share := 0, 4
		if testing.Short() {
			share = 40
		}
		for got := range results {
			for seq, token := range got.tokens {
				if seq == last || rand.IntN(share) > 0 {
					continue
				}
				rest := n.collect(ctx, &runlogv1.WatchRunRequest{RunId: "run", ResumeToken: token}, last)
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
		n := startNode(t, func(o *Options) { o.SlowConsumer = 200 * time.Millisecond })
		n.append("run", newEvent("RunStarted"))
		conn := n.dialWith(grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
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
			n.append("run", steps(fmt.Sprint(i, "-"), 200)...)
		}
		bubble.Until(t, "the subscription is given up", func() bool { return n.metric("runlog_projector_subscriptions") == 0 })
		seqs := []uint64{1}
		for err == nil {
			var m *runlogv1.WatchRunResponse
			if m, err = stream.Recv(); err == nil {
				for _, e := range m.GetEvents().GetEvents() {
					seqs = append(seqs, e.RunSeq)
				}
			}
		}
		r := refused(t, err, contract.ReasonSlowConsumer)
		wantEqual(t, "streams ended as too slow", n.metric("runlog_watch_slow_consumers_total"), 1)
		got := seqs[len(seqs)-1]
		wantSeqs(t, "what was on its way", seqs, 1, got)
		wantEqual(t, "token", r.metadata["resume_token"], n.watchToken("run", got))
		rest := n.collect(n.context(), &runlogv1.WatchRunRequest{RunId: "run", ResumeToken: r.metadata["resume_token"]}, last)
		wantSeqs(t, "resumed", rest.seqs, got+1, last)
	})
}

// TestWatchersThatNeverReadWATCH3: watchers that never read slow no append down, whatever they
// watch, and the node stops in time.
func TestWatchersThatNeverReadWATCH3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		conn := n.dialWith(grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
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
		bubble.Until(t, "all of them have begun", func() bool { return n.metric("runlog_projector_subscriptions") == 100 })
		for i := range 100 {
			n.append("run", steps(fmt.Sprint(i, "-"), 50)...)
			n.append(fmt.Sprint("other-", i), newEvent("RunStarted"))
		}
		n.settle()
		wantEqual(t, "the last event", n.snapshot("run").LastEventSeq, 5001)
		began := time.Now()
		n.close()
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
		n := startNode(t, func(o *Options) { o.Heartbeat = 20 * time.Millisecond })
		n.append("run", newEvent("RunStarted"), newEvent("StepStarted", step("a"), payload(`{"n":1}`)))
		s := n.openEvents("/v1/runs/run:watch?view=SNAPSHOT")
		m := parseObject(t, []byte(s.until("snapshot").data))["snapshot"].(map[string]any)
		wantEqual(t, "snapshot", fmt.Sprint(m["lastEventSeq"], m["status"], len(m["steps"].([]any))), "2RUNNING1")
		s = n.openEvents("/v1/runs/run:watch?view=EVENT&afterSeq=1")
		first := s.until("events")
		events := parseObject(t, []byte(first.data))["events"].(map[string]any)["events"].([]any)
		wantEqual(t, "payload", fmt.Sprint(len(events), events[0].(map[string]any)["payload"]), "1 map[n:1]")
		if s.until("caughtUp").retry == "" || s.until("heartbeat").comments == 0 {
			t.Error("no retry, or no ping")
		}
		n.append("run", newEvent("StepCompleted", step("a")))
		live := s.until("events")
		n.append("run", newEvent("RunCompleted"))
		s = n.openEvents("/v1/runs/run:watch?view=EVENT&afterSeq=1", "Last-Event-ID", live.id)
		events = parseObject(t, []byte(s.until("events").data))["events"].(map[string]any)["events"].([]any)
		wantEqual(t, "resumed", fmt.Sprint(len(events), events[0].(map[string]any)["runSeq"]), "14")

		resp := n.httpStream(n.context(), "GET", "/v1/runs/run:watch?view=EVENT&payloadForm=JSON", "")
		defer resp.Body.Close()
		line, err := bufio.NewReader(resp.Body).ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		result := parseObject(t, line)["result"].(map[string]any)
		wantEqual(t, "events of a line", len(result["events"].(map[string]any)["events"].([]any)), 4)
	})
}
