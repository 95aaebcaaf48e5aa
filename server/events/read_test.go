package events_test

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
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

func TestListEvents(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		events := servertest.Steps("a", 25)
		for i := range events {
			if i%5 == 0 {
				events[i].EventType = "Rare"
			}
		}
		n.Append("run", events[:10]...)
		n.Append("run", events[10:11]...)
		position := n.Append("run", events[11:]...).Position
		n.Append("other", servertest.Steps("x", 3)...)
		list := func(req *runlogv1.ListEventsRequest) *runlogv1.ListEventsResponse {
			t.Helper()
			if req.RunId == "" {
				req.RunId = "run"
			}
			resp, err := n.Events.ListEvents(n.Context(), req)
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
					servertest.WantEqual(t, "lastSeq", resp.LastSeq, 25)
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
				servertest.WantEqual(t, fmt.Sprint("events after ", after), len(resp.Events), want)
				servertest.WantEqual(t, fmt.Sprint("nextAfterSeq after ", after), resp.NextAfterSeq, 0)
			}
			_, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: "run", PageSize: 1001})
			servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		})

		bubble.Run(t, "READ1_types", func(t testing.TB) {
			servertest.WantEqual(t, "Rare", fmt.Sprint(seqs(list(&runlogv1.ListEventsRequest{Types: []string{"Rare"}}).Events)), "[1 6 11 16 21]")
			servertest.WantEqual(t, "two types", len(list(&runlogv1.ListEventsRequest{Types: []string{"Rare", "Noted"}}).Events), 25)
			servertest.WantEqual(t, "no such type", len(list(&runlogv1.ListEventsRequest{Types: []string{"rare"}}).Events), 0)
			var got []uint64
			for after, first := uint64(0), true; first || after != 0; first = false {
				resp := list(&runlogv1.ListEventsRequest{Types: []string{"Rare"}, PageSize: 2, AfterSeq: after})
				got, after = append(got, seqs(resp.Events)...), resp.NextAfterSeq
			}
			servertest.WantEqual(t, "pages of Rare", fmt.Sprint(got), "[1 6 11 16 21]")
			over := n.Get("/v1/runs/run/events?types=Rare&types=None&pageSize=2&afterSeq=1")
			servertest.WantEqual(t, "over HTTP", fmt.Sprint(len(over["events"].([]any)), " ", over["nextAfterSeq"]), "2 11")
		})

		bubble.Run(t, "READ2_consistency", func(t testing.TB) {
			for _, level := range []runlogv1.Consistency_Level{0, runlogv1.Consistency_LINEARIZABLE, runlogv1.Consistency_LOCAL} {
				resp := list(&runlogv1.ListEventsRequest{Consistency: level})
				servertest.WantEqual(t, level.String(), len(resp.Events), 25)
				at, err := rpc.ParsePosition("", resp.Applied.Position, n.Incarnation())
				least, err2 := rpc.ParsePosition("", position, n.Incarnation())
				if errors.Join(err, err2) != nil || at < least || resp.Applied.PersistedAt == nil {
					t.Errorf("%v: applied %v, the last append was at %v", level, resp.Applied, position)
				}
			}
			if got := n.Get("/v1/runs/run/events?consistency=LOCAL"); got["applied"].(map[string]any)["position"] == "" {
				t.Errorf("no position in %v", got["applied"])
			}
		})

		bubble.Run(t, "READ2_minSeq", func(t testing.TB) {
			done := make(chan *runlogv1.ListEventsResponse, 2)
			for _, run := range []string{"waited", "unborn"} {
				if run == "waited" {
					n.Append(run, servertest.Steps("a", 1)...)
				}
				go func() {
					resp, err := n.Events.ListEvents(context.Background(), &runlogv1.ListEventsRequest{RunId: run, MinSeq: 3})
					if err != nil {
						t.Errorf("waiting for runSeq 3: %v", err)
					}
					done <- resp
				}()
			}
			n.Append("waited", servertest.Steps("b", 1)...)
			n.Append("unborn", servertest.Steps("b", 2)...)
			select {
			case resp := <-done:
				t.Fatalf("answered too early: %v", resp)
			case <-time.After(20 * time.Millisecond):
			}
			n.Append("waited", servertest.Steps("c", 1)...)
			n.Append("unborn", servertest.Steps("c", 1)...)
			for range 2 {
				resp := servertest.Within(t, "reads that wait for runSeq 3", func() *runlogv1.ListEventsResponse { return <-done })
				servertest.WantEqual(t, "events", len(resp.GetEvents()), 3)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_, err := n.Events.ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: "run", MinSeq: 1000})
			servertest.WantEqual(t, "beyond the deadline", status.Code(err), codes.DeadlineExceeded)
		})

		bubble.Run(t, "READ1_large_pages_stay_under_a_client's_limit", func(t testing.TB) {
			for i := range 5 {
				batch := servertest.Steps(fmt.Sprint("l", i, "-"), 20)
				for _, e := range batch {
					servertest.Payload(`{"pad":"` + strings.Repeat("x", 60_000) + `"}`)(e)
				}
				n.Append("large", batch...)
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
			servertest.WantEqual(t, "events", got, 100)
		})

		_, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: "nobody"})
		servertest.WantEqual(t, "run_id", servertest.Refused(t, err, contract.ReasonRunNotFound).Metadata["run_id"], "nobody")
		n.HTTP("GET", "/v1/runs/nobody/events", "").Refused(t, contract.ReasonRunNotFound)
	})
}

func TestReadEventsREAD1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.Steps("a", 600)...)
		read := func(req *runlogv1.ReadEventsRequest) (seqs []uint64) {
			t.Helper()
			req.RunId = "run"
			stream, err := n.Events.ReadEvents(n.Context(), req)
			for err == nil {
				var batch *runlogv1.ReadEventsResponse
				if batch, err = stream.Recv(); err == nil {
					servertest.WantEqual(t, "lastSeq", batch.LastSeq, 600)
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
		answer := n.HTTP("GET", "/v1/runs/run/events:read?afterSeq=590", "")
		servertest.WantEqual(t, "HTTP code", answer.Code, 200)
		lines := bytes.Split(bytes.TrimSpace(answer.Body), []byte("\n"))
		result := servertest.ParseObject(t, lines[0])["result"].(map[string]any)
		servertest.WantEqual(t, "events over HTTP", len(result["events"].([]any)), 10)
		if _, natural := result["events"].([]any)[0].(map[string]any)["payload"]; !natural {
			t.Errorf("no natural payload in %v", result)
		}
		answer = n.HTTP("GET", "/v1/runs/run/events:read?afterSeq=600", "")
		servertest.WantEqual(t, "nothing to read", fmt.Sprint(answer.Code, string(answer.Body)), "200")
		n.HTTP("GET", "/v1/runs/nobody/events:read", "").Refused(t, contract.ReasonRunNotFound)
		stream, err := n.Events.ReadEvents(n.Context(), &runlogv1.ReadEventsRequest{RunId: "nobody"})
		if err == nil {
			_, err = stream.Recv()
		}
		servertest.Refused(t, err, contract.ReasonRunNotFound)
	})
}

// TestDigestsAPP11 recomputes every digest from docs/formats.md and the answers of the API only.
func TestDigestsAPP11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for _, file := range []string{"analytics-pipeline", "flat-1.1", "unknown-types"} {
			s := servertest.ReadStory(t, file)
			n.AppendStory(s)
			servertest.VerifyChain(t, n.List(s.RunID))
		}
		n.Append("mixed", servertest.NewEvent("RunStarted", func(e *runlogv1.EventWrite) {
			e.EmittedBy, e.CausedBySignalId, e.ParentEventId = "me", "sig", "parent"
			e.EmittedAt.Seconds, e.EmittedAt.Nanos = -1000, 5
		}))
		n.Append("mixed", servertest.NewEvent("RunPaused", servertest.Sparse, servertest.Key("p1")), servertest.NewEvent("RunStarted"),
			servertest.NewEvent("RunResumed", servertest.Sparse, servertest.Key("p2"), func(e *runlogv1.EventWrite) { e.TenantId, e.PlanVersion = "tenant", "1" }))
		n.Post("/v1/runs/mixed/events:append", `{"events":[`+servertest.HTTPEvent("h")+`]}`)
		records := n.List("mixed")
		servertest.VerifyChain(t, records)
		servertest.WantEqual(t, "inherited", strings.Join(records[1].Inherited, " "), "tenantId projectId environmentId planId planVersion")
		servertest.WantEqual(t, "inherited in part", strings.Join(records[2].Inherited, " "), "projectId environmentId planId")
		servertest.WantEqual(t, "inherited by a whole event", len(records[0].Inherited), 0)
		n.Restart()
		servertest.VerifyChain(t, n.List("mixed"))
	})
}

func TestGetSnapshotREAD2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")))
		s := n.Snapshot("run")
		servertest.WantEqual(t, "status", s.Status, runlogv1.RunStatus_RUNNING)
		servertest.WantEqual(t, "lastEventSeq right after the append", s.LastEventSeq, 2)
		// Every snapshot asked for after an append has seen it.
		for i := range 150 {
			last := n.Append("run", servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(i)))).LastSeq
			for _, level := range []runlogv1.Consistency_Level{runlogv1.Consistency_LINEARIZABLE, runlogv1.Consistency_LOCAL} {
				resp, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", Consistency: level, MinSeq: last})
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
			resp, err := n.Projection.GetSnapshot(context.Background(), &runlogv1.GetSnapshotRequest{RunId: "run", MinSeq: 154})
			if err != nil {
				t.Error(err)
			}
			got <- resp.GetSnapshot().GetLastEventSeq()
		}()
		n.Append("run", servertest.NewEvent("StepCompleted", servertest.Step("a")))
		n.Append("run", servertest.NewEvent("RunCompleted"))
		servertest.WantEqual(t, "waited for", servertest.Within(t, "GetSnapshot with minSeq", func() uint64 { return <-got }), 154)
		over := n.Get("/v1/runs/run/snapshot?minSeq=154")["snapshot"].(map[string]any)
		servertest.WantEqual(t, "over HTTP", fmt.Sprint(over["status"], " ", over["lastEventSeq"], " ", len(over["steps"].([]any))), "COMPLETED 154 1")
		servertest.WantEqual(t, "stale", over["stale"], any(false))

		_, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "nobody"})
		servertest.Refused(t, err, contract.ReasonRunNotFound)
		_, err = n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		n.HTTP("GET", "/v1/runs/nobody/snapshot", "").Refused(t, contract.ReasonRunNotFound)
	})
}

// TestInconsistenciesPRJ8 shows an invalid transition in the snapshot and in the metric.
func TestInconsistenciesPRJ8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("RunCompleted"), servertest.NewEvent("RunResumed"))
		n.Append("fine", servertest.NewEvent("RunStarted"))
		s := n.Snapshot("run")
		servertest.WantEqual(t, "status", s.Status, runlogv1.RunStatus_COMPLETED)
		servertest.WantEqual(t, "lastEventSeq", s.LastEventSeq, 3)
		if len(s.Inconsistencies) != 1 || s.InconsistencyCount != 1 {
			t.Fatalf("inconsistencies %v", s.Inconsistencies)
		}
		i := s.Inconsistencies[0]
		servertest.WantEqual(t, "entry", fmt.Sprint(i.Kind, " ", i.RunSeq, " ", i.State, " ", i.Attempted), "INVALID_TRANSITION 3 COMPLETED RunResumed")
		servertest.WantEqual(t, "eventId", i.EventId, n.List("run")[2].EventId)
		servertest.WantEqual(t, "other run", n.Snapshot("fine").InconsistencyCount, 0)
		bubble.Until(t, "the metric counts it", func() bool { return n.Metric("runlog_projector_inconsistencies_total") == 1 })
	})
}
