package admin_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestImportIsStampedAPP13: a closed foreign run keeps its runSeq, with its gaps, and is stamped
// with the time of its import. original has what its source said. A retry changes nothing (IDM-6).
// Later appends follow behind it (APP-1).
func TestImportIsStampedAPP13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		before := time.Now()
		var stamped *time.Time
		lines := servertest.WithGaps("old")
		lines[0] = strings.Replace(lines[0], `"runSeq"`, `"appendedBy":"token:cfo","appendedByTokenId":"7","runSeq"`, 1)
		imports := func(persisted bool) {
			t.Helper()
			answer := n.Imports(lines...).OK(t)
			var got []string
			for _, r := range answer["results"].([]any) {
				r := r.(map[string]any)
				if r["persisted"] != persisted || r["idempotent"] == persisted {
					t.Errorf("result %v", r)
				}
				at, err := time.Parse(time.RFC3339Nano, r["persistedAt"].(string))
				if stamped == nil {
					stamped = &at
				}
				if err != nil || at.Before(before) || !at.Equal(*stamped) {
					t.Errorf("stamped %v, want the time of the import for all, also in a retry: %v", r, err)
				}
				got = append(got, fmt.Sprint(r["runSeq"]))
			}
			if want := []string{"1", "2", "5", "7"}; !slices.Equal(got, want) {
				t.Errorf("results %q", got)
			}
		}
		imports(true)
		imports(false)
		check := func() {
			t.Helper()
			var seqs []uint64
			for _, e := range n.List("old") {
				seqs = append(seqs, e.RunSeq)
				source := map[bool]string{true: "token:cfo"}[e.RunSeq == 1]
				if e.RunSeq <= 7 && (!e.PersistedAt.AsTime().Equal(*stamped) || e.Original.GetPersistedAt().AsTime().Year() != 2024 ||
					e.Original.GetSource() != source || e.AppendedBy != nil || e.AppendedByTokenId != nil) {
					t.Errorf("runSeq %d was persisted at %v by %q, originally %v", e.RunSeq, e.PersistedAt.AsTime(), e.GetAppendedBy(), e.Original)
				}
				if e.RunSeq > 7 && e.Original != nil {
					t.Errorf("runSeq %d has original %v", e.RunSeq, e.Original)
				}
			}
			if got := fmt.Sprint(seqs); got != "[1 2 5 7 8]" {
				t.Errorf("runSeq %s", got)
			}
			run, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "old"})
			if err != nil || !run.Run.Imported || !run.Run.CreatedAt.AsTime().Equal(*stamped) || run.Run.Status != runlogv1.RunStatus_COMPLETED {
				t.Errorf("run %v, %v", run, err)
			}
			_, err = n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "old",
				AsOfTime: timestamppb.New(time.Date(2024, 5, 1, 10, 0, 3, 0, time.UTC))})
			servertest.Refused(t, err, contract.ReasonRunNotFound) // It was not here in 2024.
		}
		n.Append("old", servertest.NewEvent("Noted", func(e *runlogv1.EventWrite) { e.TenantId, e.ProjectId, e.EnvironmentId = "t", "p", "e" }))
		check()
		servertest.VerifyChain(t, n.List("old"))
		n.Restart()
		check()
		imports(false)
	})
}

// TestImportIntoClosedWindowsAPP13: no import changes a window that was closed, and a window has an
// imported event at the time of the import, which is what it shows.
func TestImportIntoClosedWindowsAPP13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		window := func(from, to time.Time) *runlogv1.QueryEventsResponse {
			t.Helper()
			resp, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{TenantId: "t", From: timestamppb.New(from), To: timestamppb.New(to)})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		old, begin := time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC), time.Now()
		before := window(old, old.Add(time.Minute))
		n.Imports(servertest.WithGaps("old")...).OK(t)
		time.Sleep(time.Second)
		end := time.Now()
		if after := window(old, old.Add(time.Minute)); !after.Closed || after.Count != 0 || after.Digest != before.Digest {
			t.Errorf("the window of 2024: %v, before the import %v", after, before)
		}
		now := window(begin, end)
		if len(now.Events) != 4 {
			t.Fatalf("the window of the import has %v", now)
		}
		for _, e := range now.Events {
			if at := e.PersistedAt.AsTime(); at.Before(begin) || !at.Before(end) || e.Original.GetPersistedAt().AsTime().Year() != 2024 {
				t.Errorf("runSeq %d is at %v, originally %v", e.RunSeq, at, e.Original)
			}
		}
		servertest.WantEqual(t, "exported", len(n.Export(&runlogv1.ExportEventsRequest{TenantId: "t", From: timestamppb.New(begin), To: timestamppb.New(end)}).Events), 4)
	})
}

// TestStaleWatchPRJ12: while the projector reads a run again after a gap, snapshots and watches of
// the run are STALE. Then they recover.
func TestStaleWatchPRJ12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		inHole, goOn := make(chan struct{}), make(chan struct{})
		n := servertest.Start(t, func(o *server.Options) {
			o.Logger = slog.New(alertHandler{slog.DiscardHandler, func(alert string) {
				if alert == "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED" {
					close(inHole)
					<-goOn
				}
			}})
		})
		lines := servertest.WithGaps("old")
		n.Imports(lines[:2]...).OK(t)
		n.Settle()
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "old"})
		w.Until("caught up", servertest.IsCaughtUp)
		n.Imports(lines[2:]...).OK(t)
		<-inHole
		stale := w.Until("STALE", func(m *runlogv1.WatchRunResponse) bool { return m.GetWatermark().GetStale() })
		if got := stale.GetWatermark().LastEventSeq; got != 2 {
			t.Errorf("STALE at %d, want 2", got)
		}
		if s := n.Snapshot("old"); !s.Stale || s.LastEventSeq != 7 {
			t.Errorf("the snapshot is stale %v, at %d; it is whole by the log", s.Stale, s.LastEventSeq)
		}
		close(goOn)
		if back := w.Until("back", servertest.Reaches(7)); back.GetWatermark().Stale {
			t.Error("STALE behind the hole")
		}
		if n.Snapshot("old").Stale {
			t.Error("the snapshot is STALE behind the hole")
		}
		if n.Metric("runlog_projector_holes_total") != 2 {
			t.Errorf("%v holes, want 2", n.Metric("runlog_projector_holes_total"))
		}
	})
}

// TestLagOfImportsPRJ11: the lag of an old event that is imported now counts from the import.
func TestLagOfImportsPRJ11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		lines := servertest.WithGaps("old")
		n.Imports(lines[:2]...).OK(t)
		n.Settle()
		one, many := n.Watch(&runlogv1.WatchRunRequest{RunId: "old"}), n.WatchRuns(&runlogv1.WatchRunsRequest{})
		one.Until("caught up", servertest.IsCaughtUp)
		many.Want("caughtUp")
		n.Imports(lines[2:]...).OK(t)
		if m := one.Until("the run", servertest.Reaches(7)).GetWatermark(); m.LagMs > 60_000 {
			t.Errorf("a watch of the run tells a lag of %d ms", m.LagMs)
		}
		if m := many.Want("old@7 COMPLETED").GetWatermark(); m.LagMs > 60_000 {
			t.Errorf("a watch of runs tells a lag of %d ms", m.LagMs)
		}
	})
}

type alertHandler struct {
	slog.Handler
	see func(alert string)
}

func (a alertHandler) Enabled(context.Context, slog.Level) bool { return true }

func (a alertHandler) WithAttrs([]slog.Attr) slog.Handler { return a }

func (a alertHandler) WithGroup(string) slog.Handler { return a }

func (a alertHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "alert" {
			a.see(attr.Value.String())
		}
		return true
	})
	return nil
}

// TestImportRefusals: each refusal has its reason and the line, and nothing of the request is
// stored.
func TestImportRefusals(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("live", servertest.NewEvent("RunStarted"))
		n.Imports(servertest.WithGaps("old")...).OK(t)
		salt := `,"payloadSalt":"` + strings.Repeat("0f", 16) + `"`
		for name, test := range map[string]struct {
			lines  []string
			code   int
			reason string
			says   string
		}{
			"nothing":           {nil, 400, "INVALID_ARGUMENT_FIELD", "has 0 events"},
			"no JSON":           {[]string{"{"}, 400, "INVALID_ARGUMENT_FIELD", "events[0]"},
			"no runSeq":         {[]string{strings.Replace(servertest.Foreign("r", 1, 1, "Noted", ""), "runSeq", "engineSeq", 1)}, 400, "INVALID_ARGUMENT_FIELD", "events[0].runSeq"},
			"no eventId":        {[]string{strings.Replace(servertest.Foreign("r", 1, 1, "Noted", ""), `"eventId":"0190b5a4-3c2e-7d11-8a4f-000000000001",`, "", 1)}, 400, "INVALID_ARGUMENT_FIELD", "events[0].eventId"},
			"runSeq 0":          {[]string{servertest.Foreign("r", 0, 1, "Noted", "")}, 400, "INVALID_ARGUMENT_FIELD", "from 1"},
			"no room (APP-13)":  {[]string{far("r", contract.MaxImportedSeq+1, 1, "Noted", "")}, 400, "INVALID_ARGUMENT_FIELD", "events[0].runSeq"},
			"no time":           {[]string{strings.Replace(servertest.Foreign("r", 1, 1, "Noted", ""), "10:00:01.5Z", "noon", 1)}, 400, "INVALID_ARGUMENT_FIELD", "events[0].persistedAt"},
			"invalid event":     {[]string{servertest.Foreign("r", 1, 1, "StepStarted", "")}, 400, "INVALID_ARGUMENT_FIELD", "events[0].stepId"},
			"two runs":          {[]string{servertest.Foreign("r", 1, 1, "Noted", ""), servertest.Foreign("s", 2, 2, "Noted", "")}, 400, "INVALID_ARGUMENT_FIELD", "events[1].runId"},
			"goes back":         {[]string{servertest.Foreign("r", 2, 1, "Noted", ""), servertest.Foreign("r", 1, 2, "Noted", `,"stepId":"b"`)}, 409, "SEQUENCE_CONFLICT", "events[1].runSeq"},
			"a key twice":       {[]string{servertest.Foreign("r", 1, 1, "Noted", ""), servertest.Foreign("r", 2, 2, "Noted", "")}, 409, "RUN_ALREADY_EXISTS", "events[1].idempotencyKey"},
			"into a hole":       {[]string{servertest.Foreign("old", 3, 2, "Noted", "")}, 409, "SEQUENCE_CONFLICT", "above 7"},
			"a changed record":  {[]string{strings.Replace(servertest.WithGaps("old")[3], `"runSeq":"7"`, `"runSeq":"9"`, 1)}, 409, "RUN_ALREADY_EXISTS", "another event"},
			"into a live run":   {[]string{servertest.Foreign("live", 9, 1, "Noted", "")}, 409, "RUN_SCOPE_MISMATCH", "tenant"},
			"into a run of its": {[]string{strings.NewReplacer(`"t"`, `"tenant"`, `"p"`, `"project"`, `"e"`, `"prod"`).Replace(servertest.Foreign("live", 9, 1, "Noted", ""))}, 409, "RUN_ALREADY_EXISTS", "not imported"},
			"a changed digest":  {[]string{servertest.Foreign("r", 1, 1, "Noted", salt+`,"recordDigest":"00"`)}, 400, "INVALID_ARGUMENT_FIELD", "events[0].recordDigest"},
			"no salt":           {[]string{servertest.Foreign("r", 1, 1, "Noted", `,"recordDigest":"00"`)}, 400, "INVALID_ARGUMENT_FIELD", "events[0].payloadSalt"},
			"a salt too short":  {[]string{servertest.Foreign("r", 1, 1, "Noted", `,"payloadSalt":"00"`)}, 400, "INVALID_ARGUMENT_FIELD", "events[0].payloadSalt"},
		} {
			bubble.Run(t, name, func(t testing.TB) {
				before := n.Server.Internals().Replica.Store().Applied().Events
				answer := n.Imports(test.lines...)
				if answer.Code != test.code || !strings.Contains(string(answer.Body), test.reason) || !strings.Contains(string(answer.Body), test.says) {
					t.Errorf("HTTP %d %s\nwant %d, %s, %q", answer.Code, answer.Body, test.code, test.reason, test.says)
				}
				if after := n.Server.Internals().Replica.Store().Applied().Events; after != before {
					t.Errorf("%d events were stored", after-before)
				}
			})
		}
		req, err := http.NewRequestWithContext(n.Context(), http.MethodPost, "http://"+n.Server.Addresses().Admin+"/import", strings.NewReader(servertest.Foreign("r", 1, 1, "Noted", "")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "text/plain")
		resp, err := n.HTTPClient().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("what a web page may send unasked: HTTP %d", resp.StatusCode)
		}
	})
}
