package snapshots_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire/wiretest"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
	"runlog/testbed/bubble/property"
)

func foldedAt(n *servertest.Node, runID string, seq uint64) *runlogv1.RunSnapshot {
	n.T.Helper()
	return folded(n, &runlogv1.GetSnapshotRequest{RunId: runID, AsOfSeq: &seq})
}

// diff reads all pages of what differs.
func diff(n *servertest.Node, req *runlogv1.DiffRunRequest) *runlogv1.DiffRunResponse {
	n.T.Helper()
	var whole *runlogv1.DiffRunResponse
	for {
		page, err := n.Projection.DiffRun(n.Context(), req)
		if err != nil {
			n.T.Fatalf("%v: %v", req, err)
		}
		if whole == nil {
			whole = page
		} else {
			servertest.WantProto(n.T, "moments of a page", page.To, whole.To)
			wiretest.AddPage(whole, page)
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return whole
		}
	}
}

// explain reads all pages of what explains a step, and returns the step that the first page has.
func explain(n *servertest.Node, req *runlogv1.ExplainStepRequest) (*runlogv1.StepSnapshot, []*runlogv1.ExplainedEvent) {
	n.T.Helper()
	var step *runlogv1.StepSnapshot
	var events []*runlogv1.ExplainedEvent
	for {
		page, err := n.Projection.ExplainStep(n.Context(), req)
		if err != nil {
			n.T.Fatalf("%v: %v", req, err)
		}
		if step != nil {
			servertest.WantProto(n.T, "step of a page", page.Step, step)
		}
		step, events = page.Step, append(events, page.Events...)
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return step, events
		}
	}
}

// someStory appends drawn events to a run.
func someStory(n *servertest.Node, t *rapid.T, runID string) {
	types := []string{
		"RunStarted", "RunPaused", "RunResumed", "RunCompleted", "SignalAccepted", "StepStarted", "StepStarted", "StepFailed", "StepCompleted",
		"StepSkipped", "StepDelayed", "StepWaitingForAttestation", "StepAttested", "Noted",
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "appends") {
		var events []*runlogv1.EventWrite
		for range rapid.IntRange(1, 8).Draw(t, "events") {
			eventType := rapid.SampledFrom(types).Draw(t, "type")
			e := servertest.NewEvent(eventType, servertest.Attempt(rapid.Uint32Range(1, 3).Draw(t, "attempt")))
			e.EngineAttemptId = rapid.Uint32Range(1, 3).Draw(t, "engine attempt")
			if contract.ScopeOf(eventType) != contract.ScopeRun {
				e.StepId = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "step")
			}
			text := "{}"
			switch eventType {
			case "StepFailed":
				text = `{"error":{"code":"E","message":"boom"}}`
			case "StepCompleted":
				text = `{"artifacts":[{"uri":"s3://a","kind":"log"}]}`
			case "StepAttested":
				text = `{"outcome":"SUCCESS","attestedBy":"jane"}`
			case "SignalAccepted":
				text = fmt.Sprintf(`{"signalId":"s-%d","signalType":"PAUSE","decidedBy":"jane","decidedAt":"2026-02-11T10:30:00Z"}`, i)
			case "RunStarted":
				text = `{"engineType":"temporal"}`
			case "StepSkipped":
				text = `{"reason":"why"}`
			}
			events = append(events, e)
			servertest.Payload(text)(e)
		}
		n.Append(runID, events...)
	}
}

// TestDiffAndExplainTR7: for any two moments of any run, what differs leads from the snapshot of
// the first one to that of the second one, and for any step at any moment, the changes of the
// events that name it lead to the step of the snapshot. Both in pages of any size.
func TestDiffAndExplainTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, runs := servertest.Start(t), 0
		property.Check(t, func(t *rapid.T) {
			runs++
			runID := fmt.Sprint("run-", runs)
			someStory(n, t, runID)
			records := n.List(runID)
			last := records[len(records)-1].RunSeq
			from := rapid.Uint64Range(0, last).Draw(t, "from")
			to := rapid.Uint64Range(from, last).Draw(t, "to")
			size := rapid.Uint32Range(1, 20).Draw(t, "page size")

			before, after := foldedAt(n, runID, from), foldedAt(n, runID, to)
			whole := diff(n, &runlogv1.DiffRunRequest{RunId: runID, From: fmt.Sprint(from), To: fmt.Sprint(to), PageSize: size})
			if got := wiretest.Applied(t, before, whole); !proto.Equal(got, after) {
				t.Fatalf("the diff %v\ngives %v\nwant %v", whole, got, after)
			}
			for _, want := range after.Steps {
				step, events := explain(n, &runlogv1.ExplainStepRequest{RunId: runID, StepId: want.StepId, AsOfSeq: &to, PageSize: size})
				got := &runlogv1.StepSnapshot{StepId: want.StepId}
				var have, named []uint64
				for _, e := range events {
					wiretest.ApplyStep(t, got, e.Step, e.Attempts...)
					have = append(have, e.RunSeq)
				}
				for _, r := range records {
					if r.GetStepId() == want.StepId && r.RunSeq <= to {
						named = append(named, r.RunSeq)
					}
				}
				if !proto.Equal(got, want) || fmt.Sprint(have) != fmt.Sprint(named) {
					t.Fatalf("the events %v explain %v, want %v of %v", have, got, named, want)
				}
				step.Attempts = want.Attempts
				if !proto.Equal(step, want) {
					t.Fatalf("the explained step is %v, want %v", step, want)
				}
			}
		})
	})
}

// TestDiffNeverChangesTR7: what differs between two moments that have passed is the same forever,
// by runSeq, by time and by position, over gRPC and HTTP, also after further events and a restart.
// Without from it begins before the first event, and without to it ends now.
func TestDiffNeverChangesTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		born := time.Now().Add(-time.Second)
		first := n.Append("run", servertest.NewEvent("RunStarted"))
		second := n.Append("run", servertest.NewEvent("StepStarted", servertest.Step("a")))
		n.Append("run", servertest.NewEvent("StepFailed", servertest.Step("a")))
		stamp := func(a *runlogv1.AppendEventsResponse) string {
			return a.Results[0].PersistedAt.AsTime().Format(time.RFC3339Nano)
		}
		moments := func(from, to string) string {
			n.T.Helper()
			m := diff(n, &runlogv1.DiffRunRequest{RunId: "run", From: from, To: to})
			var steps []string
			for _, s := range m.Steps {
				steps = append(steps, fmt.Sprint(s.StepId, " ", s.From.GetStatus(), " to ", s.To.Status, " ", s.Changed))
			}
			query := url.Values{}
			for name, value := range map[string]string{"from": from, "to": to} {
				if value != "" {
					query.Set(name, value)
				}
			}
			over := n.Get("/v1/runs/run:diff?" + query.Encode())
			if got := over["to"].(map[string]any)["digest"]; got != m.To.Digest || len(over["steps"].([]any)) != len(m.Steps) {
				t.Errorf("over HTTP from %s to %s: %v", from, to, over)
			}
			return fmt.Sprint(m.From.LastEventSeq, " to ", m.To.LastEventSeq, " ", m.Changed, " ", steps)
		}
		const middle = "1 to 2 [] [a VALUE_UNSPECIFIED to RUNNING [status logicalAttemptId engineAttemptId startedAt]]"
		check := func() {
			for _, c := range [][3]string{
				{"1", "2", middle}, {stamp(first), stamp(second), middle}, {first.Position, second.Position, middle}, {"1", second.Position, middle},
				{stamp(first), "2", middle}, {second.Position, stamp(second), "2 to 2 [] []"}, {"3", "3", "3 to 3 [] []"},
				{"2", "3", "2 to 3 [failedSteps failedStepsNow] [a RUNNING to FAILED [status completedAt]]"},
				{"", "1", "0 to 1 [status"}, {"0", "1", "0 to 1 [status"},
				{born.Format(time.RFC3339Nano), stamp(first), "0 to 1 [status"},
				{rpc.FormatPosition(n.Server.Internals().Replica.Store().Incarnation(), 0), "1", "0 to 1 [status"},
			} {
				got := moments(c[0], c[1])
				if got != c[2] && !strings.HasPrefix(got, c[2]+" ") {
					t.Errorf("from %q to %q: %s, want %s", c[0], c[1], got, c[2])
				}
			}
		}
		check()
		if got := moments("", ""); !strings.HasPrefix(got, "0 to 3 ") {
			t.Errorf("without moments: %s", got)
		}
		n.Append("run", servertest.NewEvent("StepStarted", servertest.Step("a"), servertest.Attempt(2)))
		check()
		n.Restart()
		check()
	})
}

// TestDiffRefusedTR7: a moment that is ahead, that is no moment, or of another incarnation is
// refused and named. So are moments in the wrong order. A run that cannot be seen is not found.
func TestDiffRefusedTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		early := time.Now()
		time.Sleep(time.Second)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")))
		in := n.Server.Internals().Replica.Store().Incarnation()
		at := n.List("run")[0].PersistedAt.AsTime()
		applied := n.Server.Internals().Replica.Store().Applied()
		ahead := rpc.FormatPosition(in, applied.Position()+1000) // Closing a time takes positions.
		for _, c := range []struct{ from, to, field, says string }{
			{"3", "", "from", "is 3, and the run is at 2"},
			{"", "3", "to", "is 3, and the run is at 2"},
			{"", time.Now().Add(time.Hour).Format(time.RFC3339), "to", "is in the future"},
			{"yesterday", "", "from", "is no moment"},
			{"2", "1", "to", "is before from"},
			{"2", at.Add(-1).Format(time.RFC3339Nano), "to", ""},
			{at.Add(2).Format(time.RFC3339Nano), at.Add(1).Format(time.RFC3339Nano), "to", "is before from"},
			{at.Format(time.RFC3339Nano), "1", "to", "is before from"},
			{ahead, "", "from", "is ahead of the log"},
			{"", in.String() + "-x", "to", "is not a position"},
		} {
			time.Sleep(time.Millisecond)
			_, err := n.Projection.DiffRun(n.Context(), &runlogv1.DiffRunRequest{RunId: "run", From: c.from, To: c.to})
			if c.says == "" { // The run had not been created.
				servertest.Refused(t, err, contract.ReasonRunNotFound)
				continue
			}
			if e := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); !strings.Contains(e.Fields[c.field], c.says) {
				t.Errorf("from %q to %q: %v, want %s: %s", c.from, c.to, e.Fields, c.field, c.says)
			}
		}
		for _, req := range []*runlogv1.DiffRunRequest{{From: rpc.FormatPosition(storage.Incarnation{9}, 1)}, {PageToken: "0900000000000000-AAAA"}} {
			req.RunId = "run"
			_, err := n.Projection.DiffRun(n.Context(), req)
			servertest.Refused(t, err, contract.ReasonResumeTokenInvalid)
		}
		_, err := n.Projection.DiffRun(n.Context(), &runlogv1.DiffRunRequest{RunId: "run", To: early.Format(time.RFC3339Nano)})
		if e := servertest.Refused(t, err, contract.ReasonRunNotFound); e.Metadata["created_at"] == "" {
			t.Errorf("before the run was created: %v", e.Metadata)
		}
		page, err := n.Projection.DiffRun(n.Context(), &runlogv1.DiffRunRequest{RunId: "run", PageSize: 10_001})
		if e := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); e.Fields["pageSize"] == "" {
			t.Errorf("a large page: %v %v", page, err)
		}
		// LOCAL waits for a position that the node has not applied.
		ctx, cancel := context.WithTimeout(n.Context(), time.Second)
		defer cancel()
		if _, err := n.Projection.DiffRun(ctx, &runlogv1.DiffRunRequest{RunId: "run", From: ahead, Consistency: runlogv1.Consistency_LOCAL}); err == nil {
			t.Error("a position that nothing has reached was answered")
		}
		for _, target := range []string{"/v1/runs/none:diff", "/v1/runs/none/steps/a:explain"} {
			n.HTTP(http.MethodGet, target, "").Refused(t, contract.ReasonRunNotFound)
		}
	})
}

// TestExplainCausesTR7: an event is explained with its author, its cause, and what it changed. A
// signal is found by its id, and a parent by its eventId. An event that the state did not allow
// says so. The answer is the same over HTTP, and refused tokens and steps are named.
func TestExplainCausesTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepFailed", servertest.Step("a"), servertest.Payload(`{"error":"boom"}`)))
		if _, err := runlogv1.NewSignalServiceClient(n.Conn).SendSignal(n.Context(), &runlogv1.SendSignalRequest{
			RunId: "run", SignalId: "s", SignalType: "RETRY_STEP", StepId: "a",
		}); err != nil {
			t.Fatal(err)
		}
		parent := n.List("run")[1].EventId
		n.Append("run", servertest.NewEvent("StepStarted", servertest.Step("a"), servertest.Attempt(2), func(e *runlogv1.EventWrite) {
			e.CausedBySignalId, e.ParentEventId, e.EmittedBy = "s", parent, "worker"
		}), servertest.NewEvent("StepAttested", servertest.Step("a"), servertest.Attempt(2), servertest.Payload(`{"outcome":"SUCCESS","attestedBy":"jane"}`)),
			servertest.NewEvent("StepWaitingForAttestation", servertest.Step("a"), servertest.Attempt(2), func(e *runlogv1.EventWrite) { e.CausedBySignalId = "none" }))
		_, events := explain(n, &runlogv1.ExplainStepRequest{RunId: "run", StepId: "a", PageSize: 2})
		var lines []string
		for _, e := range events {
			c := e.CausedBy
			line := fmt.Sprint(e.RunSeq, " ", e.EventType, " ", e.Effect, " ", e.Step.GetChanged(), " ", len(e.Attempts), " ", e.GetState())
			if c != nil {
				line += fmt.Sprintf(" signal %q at %d parent %v at %d", c.GetSignalId(), c.GetSignalSeq(), c.GetParentEventId() == parent, c.GetParentSeq())
			}
			if e.RunStatus != nil {
				line += fmt.Sprint(" run ", e.RunStatus.From, " to ", e.RunStatus.To)
			}
			lines = append(lines, line)
		}
		servertest.WantEqual(t, "the step", strings.Join(lines, "\n"), strings.Join([]string{
			`2 StepFailed CHANGED [status logicalAttemptId engineAttemptId completedAt error] 0 `,
			`3 SignalAccepted UNCHANGED [] 0  signal "s" at 0 parent false at 0`,
			`4 StepStarted CHANGED [status logicalAttemptId startedAt completedAt error] 1  signal "s" at 3 parent true at 2`,
			`5 StepAttested INVALID [] 0 a: RUNNING`,
			`6 StepWaitingForAttestation CHANGED [status] 0  signal "none" at 0 parent false at 0 run RUNNING to WAITING`,
		}, "\n"))
		over := n.Get("/v1/runs/run/steps/a:explain?asOfSeq=4&pageSize=1")
		if step := over["step"].(map[string]any); step["status"] != "RUNNING" || len(over["events"].([]any)) != 1 || over["nextPageToken"] == "" {
			t.Errorf("over HTTP: %v", over)
		}
		again := n.Get("/v1/runs/run/steps/a:explain?asOfSeq=4&pageToken=" + over["nextPageToken"].(string))
		if len(again["events"].([]any)) != 2 || again["nextPageToken"] != "" || again["lastEventSeq"] != "4" {
			t.Errorf("the next page: %v", again)
		}
		n.HTTP(http.MethodGet, "/v1/runs/run/steps/a:explain?asOfSeq=5&pageToken="+over["nextPageToken"].(string), "").Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP(http.MethodGet, "/v1/runs/run/steps/b:explain", "").Refused(t, contract.ReasonStepNotFound)
		n.Append("run", servertest.NewEvent("Noted", servertest.Step("c")), servertest.NewEvent("StepAttested", servertest.Step("c"), servertest.Payload(`{"outcome":"SUCCESS","attestedBy":"jane"}`)))
		if step, events := explain(n, &runlogv1.ExplainStepRequest{RunId: "run", StepId: "c"}); step != nil || len(events) != 2 ||
			events[0].Effect != runlogv1.ExplainedEffect_UNCHANGED || events[1].Effect != runlogv1.ExplainedEffect_INVALID {
			t.Errorf("events that make no step: %v, %v", step, events)
		}
		n.HTTP(http.MethodGet, "/v1/runs/run/steps/a:explain?asOfSeq=1", "").Refused(t, contract.ReasonStepNotFound)
		n.HTTP(http.MethodGet, "/v1/runs/run/steps/a%7Cb:explain", "").Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP(http.MethodGet, "/v1/runs/run/steps/a:explain?asOfSeq=1&asOfPosition=x", "").Refused(t, contract.ReasonInvalidArgumentField)
	})
}

// TestMomentsOfAllNodesTR7: every node of a cluster answers the same about a time that no event has
// got, also after later events, because the leader closes the time first. A LOCAL answer says how
// far its node is.
func TestMomentsOfAllNodesTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		nodes := servertest.StartNodes(t, 3)
		nodes[0].Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")))
		time.Sleep(time.Minute)
		at := time.Now().UTC().Format(time.RFC3339Nano)
		time.Sleep(time.Second)
		var want *runlogv1.DiffRunResponse
		for range 2 {
			for _, n := range nodes {
				got := diff(n, &runlogv1.DiffRunRequest{RunId: "run", From: "1", To: at})
				local := diff(n, &runlogv1.DiffRunRequest{RunId: "run", From: "1", To: at, Consistency: runlogv1.Consistency_LOCAL})
				if local.Applied.PersistedAt.AsTime().Format(time.RFC3339Nano) < at {
					t.Errorf("the node is at %v, before the time that it has answered for: %s", local.Applied, at)
				}
				got.Applied, local.Applied = nil, nil
				if want == nil {
					want = got
				}
				servertest.WantProto(t, "what differs", got, want)
				servertest.WantProto(t, "what differs, LOCAL", local, want)
			}
			nodes[0].Append("run", servertest.NewEvent("StepCompleted", servertest.Step("a")))
		}
	})
}

// TestLongRunTR7READ8: of a run of 100,000 events, a stock client with default limits reads what
// differs and what explains a step, page by page.
func TestLongRunTR7READ8(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		appendSteps(n, "run", 50_000)
		for from := uint32(1); from <= 25_000; from += 500 {
			var events []*runlogv1.EventWrite
			for attempt := from; attempt < from+500; attempt++ {
				events = append(events, servertest.NewEvent("StepStarted", servertest.Step("again"), servertest.Attempt(attempt)),
					servertest.NewEvent("StepFailed", servertest.Step("again"), servertest.Attempt(attempt), servertest.Payload(`{"error":{"code":"E","message":"`+strings.Repeat("x", 100)+`"}}`)))
			}
			n.Append("run", events...)
		}
		client, pages := stock(n), 0
		var whole *runlogv1.DiffRunResponse
		for req := (&runlogv1.DiffRunRequest{RunId: "run"}); whole == nil || req.PageToken != ""; pages++ {
			page, err := client.DiffRun(n.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if whole == nil {
				whole = page
			} else {
				wiretest.AddPage(whole, page)
			}
			req.PageToken = page.NextPageToken
		}
		if len(whole.Steps) != 50_001 || len(whole.Attempts) != 24_999 || pages > 20 {
			t.Errorf("%d steps and %d attempts on %d pages", len(whole.Steps), len(whole.Attempts), pages)
		}
		servertest.WantEqual(t, "digest", whole.To.Digest, n.Snapshot("run").Digest)
		var events int
		pages = 0
		for req := (&runlogv1.ExplainStepRequest{RunId: "run", StepId: "again", PageSize: 10_000}); pages == 0 || req.PageToken != ""; pages++ {
			page, err := client.ExplainStep(n.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			events, req.PageToken = events+len(page.Events), page.NextPageToken
		}
		if events != 50_000 || pages > 20 {
			t.Errorf("%d events on %d pages", events, pages)
		}
	})
}
