package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/testbed/bubble"
)

func TestListEvents(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		events := steps("a", 25)
		for i := range events {
			if i%5 == 0 {
				events[i].EventType = "Rare"
			}
		}
		n.append("run", events[:10]...)
		n.append("run", events[10:11]...)
		position := n.append("run", events[11:]...).Position
		n.append("other", steps("x", 3)...)
		list := func(req *runlogv1.ListEventsRequest) *runlogv1.ListEventsResponse {
			t.Helper()
			if req.RunId == "" {
				req.RunId = "run"
			}
			resp, err := n.events.ListEvents(n.context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		seqs := func(events []*runlogv1.EventRecord) (out []uint64) {
			for _, e := range events {
				out = append(out, e.RunSeq)
			}
			return out
		}

		bubble.Run(t, "READ1_pages", func(t testing.TB) {
			for _, size := range []uint32{1, 4, 24, 25, 26, 1000, 0} {
				var got []uint64
				after := uint64(0)
				for range 30 {
					resp := list(&runlogv1.ListEventsRequest{PageSize: size, AfterSeq: after})
					if size > 0 && len(resp.Events) > int(size) {
						t.Fatalf("%d events in a page of %d", len(resp.Events), size)
					}
					wantEqual(t, "lastSeq", resp.LastSeq, 25)
					got = append(got, seqs(resp.Events)...)
					if after = resp.NextAfterSeq; after == 0 {
						break
					}
				}
				if len(got) != 25 || !slices.IsSorted(got) || got[0] != 1 || got[24] != 25 {
					t.Errorf("pages of %d: %v", size, got)
				}
			}
			for after, want := range map[uint64]int{0: 25, 9: 16, 10: 15, 11: 14, 24: 1, 25: 0, 26: 0, ^uint64(0): 0} {
				resp := list(&runlogv1.ListEventsRequest{AfterSeq: after})
				wantEqual(t, fmt.Sprint("events after ", after), len(resp.Events), want)
				wantEqual(t, fmt.Sprint("nextAfterSeq after ", after), resp.NextAfterSeq, 0)
			}
			_, err := n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: "run", PageSize: 1001})
			refused(t, err, contract.ReasonInvalidArgumentField)
		})

		bubble.Run(t, "READ1_types", func(t testing.TB) {
			wantEqual(t, "Rare", fmt.Sprint(seqs(list(&runlogv1.ListEventsRequest{Types: []string{"Rare"}}).Events)), "[1 6 11 16 21]")
			wantEqual(t, "two types", len(list(&runlogv1.ListEventsRequest{Types: []string{"Rare", "Noted"}}).Events), 25)
			wantEqual(t, "no such type", len(list(&runlogv1.ListEventsRequest{Types: []string{"rare"}}).Events), 0)
			var got []uint64
			for after, first := uint64(0), true; first || after != 0; first = false {
				resp := list(&runlogv1.ListEventsRequest{Types: []string{"Rare"}, PageSize: 2, AfterSeq: after})
				got, after = append(got, seqs(resp.Events)...), resp.NextAfterSeq
			}
			wantEqual(t, "pages of Rare", fmt.Sprint(got), "[1 6 11 16 21]")
			over := n.get("/v1/runs/run/events?types=Rare&types=None&pageSize=2&afterSeq=1")
			wantEqual(t, "over HTTP", fmt.Sprint(len(over["events"].([]any)), " ", over["nextAfterSeq"]), "2 11")
		})

		bubble.Run(t, "READ2_consistency", func(t testing.TB) {
			for _, level := range []runlogv1.Consistency_Level{0, runlogv1.Consistency_LINEARIZABLE, runlogv1.Consistency_LOCAL} {
				resp := list(&runlogv1.ListEventsRequest{Consistency: level})
				wantEqual(t, level.String(), len(resp.Events), 25)
				at, err := rpc.ParsePosition("", resp.Applied.Position)
				least, err2 := rpc.ParsePosition("", position)
				if errors.Join(err, err2) != nil || at < least || resp.Applied.PersistedAt == nil {
					t.Errorf("%v: applied %v, the last append was at %v", level, resp.Applied, position)
				}
			}
			if got := n.get("/v1/runs/run/events?consistency=LOCAL"); got["applied"].(map[string]any)["position"] == "" {
				t.Errorf("no position in %v", got["applied"])
			}
		})

		bubble.Run(t, "READ2_minSeq", func(t testing.TB) {
			done := make(chan *runlogv1.ListEventsResponse, 2)
			for _, run := range []string{"waited", "unborn"} {
				if run == "waited" {
					n.append(run, steps("a", 1)...)
				}
				go func() {
					resp, err := n.events.ListEvents(context.Background(), &runlogv1.ListEventsRequest{RunId: run, MinSeq: 3})
					if err != nil {
						t.Errorf("waiting for runSeq 3: %v", err)
					}
					done <- resp
				}()
			}
			n.append("waited", steps("b", 1)...)
			n.append("unborn", steps("b", 2)...)
			select {
			case resp := <-done:
				t.Fatalf("answered too early: %v", resp)
			case <-time.After(20 * time.Millisecond):
			}
			n.append("waited", steps("c", 1)...)
			n.append("unborn", steps("c", 1)...)
			for range 2 {
				resp := within(t, "reads that wait for runSeq 3", func() *runlogv1.ListEventsResponse { return <-done })
				wantEqual(t, "events", len(resp.GetEvents()), 3)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_, err := n.events.ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: "run", MinSeq: 1000})
			wantEqual(t, "beyond the deadline", status.Code(err), codes.DeadlineExceeded)
		})

		bubble.Run(t, "READ1_large_pages_stay_under_a_client's_limit", func(t testing.TB) {
			for i := range 5 {
				batch := steps(fmt.Sprint("l", i, "-"), 20)
				for _, e := range batch {
					payload(`{"pad":"` + strings.Repeat("x", 60_000) + `"}`)(e)
				}
				n.append("large", batch...)
			}
			got := 0
			for after, first := uint64(0), true; first || after != 0; first = false {
				resp := list(&runlogv1.ListEventsRequest{RunId: "large", AfterSeq: after})
				size := 0
				for _, e := range resp.Events {
					size += len(e.GetPayloadJson())
				}
				if size > 4<<20-100_000 {
					t.Errorf("a page of %d bytes", size)
				}
				got, after = got+len(resp.Events), resp.NextAfterSeq
			}
			wantEqual(t, "events", got, 100)
		})

		_, err := n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: "nobody"})
		wantEqual(t, "run_id", refused(t, err, contract.ReasonRunNotFound).metadata["run_id"], "nobody")
		n.http("GET", "/v1/runs/nobody/events", "").refused(t, contract.ReasonRunNotFound)
	})
}

func TestReadEventsREAD1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", steps("a", 600)...)
		read := func(req *runlogv1.ReadEventsRequest) (seqs []uint64) {
			t.Helper()
			req.RunId = "run"
			stream, err := n.events.ReadEvents(n.context(), req)
			for err == nil {
				var batch *runlogv1.ReadEventsResponse
				if batch, err = stream.Recv(); err == nil {
					wantEqual(t, "lastSeq", batch.LastSeq, 600)
					for _, e := range batch.Events {
						seqs = append(seqs, e.RunSeq)
					}
				}
			}
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return seqs
		}
		for _, c := range []struct{ after, limit, first, count uint64 }{
			{0, 0, 1, 600}, {0, 1, 1, 1}, {0, 256, 1, 256}, {0, 257, 1, 257}, {599, 0, 600, 1}, {100, 300, 101, 300},
			{600, 0, 0, 0}, {0, 600, 1, 600}, {0, 9999, 1, 600},
		} {
			got := read(&runlogv1.ReadEventsRequest{AfterSeq: c.after, Limit: c.limit})
			if uint64(len(got)) != c.count || c.count > 0 && (got[0] != c.first || !slices.IsSorted(got)) {
				t.Errorf("after %d, limit %d: %d events", c.after, c.limit, len(got))
			}
		}
		answer := n.http("GET", "/v1/runs/run/events:read?afterSeq=590", "")
		wantEqual(t, "HTTP code", answer.code, 200)
		lines := bytes.Split(bytes.TrimSpace(answer.body), []byte("\n"))
		result := parseObject(t, lines[0])["result"].(map[string]any)
		wantEqual(t, "events over HTTP", len(result["events"].([]any)), 10)
		if _, natural := result["events"].([]any)[0].(map[string]any)["payload"]; !natural {
			t.Errorf("no natural payload in %v", result)
		}
		answer = n.http("GET", "/v1/runs/run/events:read?afterSeq=600", "")
		wantEqual(t, "nothing to read", fmt.Sprint(answer.code, string(answer.body)), "200")
		n.http("GET", "/v1/runs/nobody/events:read", "").refused(t, contract.ReasonRunNotFound)
		stream, err := n.events.ReadEvents(n.context(), &runlogv1.ReadEventsRequest{RunId: "nobody"})
		if err == nil {
			_, err = stream.Recv()
		}
		refused(t, err, contract.ReasonRunNotFound)
	})
}

// TestDigestsAPP11 recomputes every digest from docs/formats.md and the answers of the API only.
func TestDigestsAPP11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		for _, file := range []string{"analytics-pipeline", "flat-1.1", "unknown-types"} {
			s := readStory(t, file)
			n.appendStory(s)
			verifyChain(t, n.list(s.runID))
		}
		n.append("mixed", newEvent("RunStarted", func(e *runlogv1.EventWrite) {
			e.EmittedBy, e.CausedBySignalId, e.ParentEventId = "me", "sig", "parent"
			e.EmittedAt.Seconds, e.EmittedAt.Nanos = -1000, 5
		}))
		n.append("mixed", newEvent("RunPaused", sparse, key("p1")), newEvent("RunStarted"),
			newEvent("RunResumed", sparse, key("p2"), func(e *runlogv1.EventWrite) { e.TenantId, e.PlanVersion = "tenant", "1" }))
		n.post("/v1/runs/mixed/events:append", `{"events":[`+httpEvent("h")+`]}`)
		records := n.list("mixed")
		verifyChain(t, records)
		wantEqual(t, "inherited", strings.Join(records[1].Inherited, " "), "tenantId projectId environmentId planId planVersion")
		wantEqual(t, "inherited in part", strings.Join(records[2].Inherited, " "), "projectId environmentId planId")
		wantEqual(t, "inherited by a whole event", len(records[0].Inherited), 0)
		n.restart()
		verifyChain(t, n.list("mixed"))
	})
}

func TestGetSnapshotREAD2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"), newEvent("StepStarted", step("a")))
		s := n.snapshot("run")
		wantEqual(t, "status", s.Status, runlogv1.RunStatus_RUNNING)
		wantEqual(t, "lastEventSeq right after the append", s.LastEventSeq, 2)
		// Every snapshot asked for after an append has seen it.
		for i := range 150 {
			last := n.append("run", newEvent("Noted", step(fmt.Sprint(i)))).LastSeq
			for _, level := range []runlogv1.Consistency_Level{runlogv1.Consistency_LINEARIZABLE, runlogv1.Consistency_LOCAL} {
				resp, err := n.projection.GetSnapshot(n.context(), &runlogv1.GetSnapshotRequest{RunId: "run", Consistency: level, MinSeq: last})
				if err != nil {
					t.Fatal(err)
				}
				if resp.Snapshot.LastEventSeq < last || resp.Applied == nil {
					t.Fatalf("%v snapshot at %d after an append at %d", level, resp.Snapshot.LastEventSeq, last)
				}
			}
		}
		got := make(chan uint64, 1)
		go func() {
			resp, err := n.projection.GetSnapshot(context.Background(), &runlogv1.GetSnapshotRequest{RunId: "run", MinSeq: 154})
			if err != nil {
				t.Error(err)
			}
			got <- resp.GetSnapshot().GetLastEventSeq()
		}()
		n.append("run", newEvent("StepCompleted", step("a")))
		n.append("run", newEvent("RunCompleted"))
		wantEqual(t, "waited for", within(t, "GetSnapshot with minSeq", func() uint64 { return <-got }), 154)
		over := n.get("/v1/runs/run/snapshot?minSeq=154")["snapshot"].(map[string]any)
		wantEqual(t, "over HTTP", fmt.Sprint(over["status"], " ", over["lastEventSeq"], " ", len(over["steps"].([]any))), "COMPLETED 154 1")
		wantEqual(t, "stale", over["stale"], any(false))

		_, err := n.projection.GetSnapshot(n.context(), &runlogv1.GetSnapshotRequest{RunId: "nobody"})
		refused(t, err, contract.ReasonRunNotFound)
		_, err = n.projection.GetSnapshot(n.context(), &runlogv1.GetSnapshotRequest{})
		refused(t, err, contract.ReasonInvalidArgumentField)
		n.http("GET", "/v1/runs/nobody/snapshot", "").refused(t, contract.ReasonRunNotFound)
	})
}

// TestInconsistenciesPRJ8 shows an invalid transition in the snapshot and in the metric.
func TestInconsistenciesPRJ8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"), newEvent("RunCompleted"), newEvent("RunResumed"))
		n.append("fine", newEvent("RunStarted"))
		s := n.snapshot("run")
		wantEqual(t, "status", s.Status, runlogv1.RunStatus_COMPLETED)
		wantEqual(t, "lastEventSeq", s.LastEventSeq, 3)
		if len(s.Inconsistencies) != 1 || s.InconsistencyCount != 1 {
			t.Fatalf("inconsistencies %v", s.Inconsistencies)
		}
		i := s.Inconsistencies[0]
		wantEqual(t, "entry", fmt.Sprint(i.Kind, " ", i.RunSeq, " ", i.State, " ", i.Attempted), "INVALID_TRANSITION 3 COMPLETED RunResumed")
		wantEqual(t, "eventId", i.EventId, n.list("run")[2].EventId)
		wantEqual(t, "other run", n.snapshot("fine").InconsistencyCount, 0)
		bubble.Until(t, "the metric counts it", func() bool { return n.metric("runlog_projector_inconsistencies_total") == 1 })
	})
}
