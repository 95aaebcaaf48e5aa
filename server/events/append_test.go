package events_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

func TestAppendDuplicates(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)

		bubble.Run(t, "APP1_APP5_numbered_and_stamped", func(t testing.TB) {
			var last *timestamppb.Timestamp
			for i := range 5 {
				resp := n.Append("numbered", servertest.Steps(fmt.Sprint(i, "-"), 3)...)
				servertest.WantResults(t, "append", resp.Results, "nnn")
				servertest.WantEqual(t, "lastSeq", resp.LastSeq, uint64(3*i+3))
				for k, r := range resp.Results {
					servertest.WantEqual(t, "runSeq", r.RunSeq, uint64(3*i+k+1))
					servertest.WantProto(t, "one stamp a proposal", r.PersistedAt, resp.Results[0].PersistedAt)
				}
				if last != nil && !last.AsTime().Before(resp.Results[0].PersistedAt.AsTime()) {
					t.Errorf("stamp %v after %v", resp.Results[0].PersistedAt.AsTime(), last.AsTime())
				}
				last = resp.Results[0].PersistedAt
			}
		})

		bubble.Run(t, "IDM6_duplicate", func(t testing.TB) {
			e := servertest.NewEvent("StepStarted", servertest.Step("build"), servertest.Payload(`{"a":1,"b":[true,null,"é"]}`))
			first := n.Append("dup", e).Results[0]
			for _, again := range []*runlogv1.EventWrite{
				e,
				servertest.NewEvent("StepStarted", servertest.Step("build"), servertest.Payload(`{ "b" : [true, null, "\u00e9"], "a": 1.0 }`)),
				servertest.NewEvent("StepStarted", servertest.Step("build"), servertest.Payload(`{"a":1e0,"b":[true,null,"é"]}`), func(e *runlogv1.EventWrite) {
					// None of these is content (IDM-7) or part of the key (IDM-4).
					e.EventId = "0b0e7b1c-6f3d-4c43-9e0b-0d8f5a3a1c11"
					e.EngineAttemptId, e.EmittedBy = 7, "someone else"
					e.EmittedAt = &timestamppb.Timestamp{Seconds: 1}
				}),
			} {
				resp := n.Append("dup", again)
				servertest.WantResults(t, "again", resp.Results, "d")
				servertest.SameStored(t, "again", resp.Results[0], first)
				servertest.WantEqual(t, "lastSeq", resp.LastSeq, 1)
			}
			if got := n.List("dup"); len(got) != 1 || got[0].EngineAttemptId != 1 || got[0].EmittedBy != nil {
				t.Errorf("stored: %v", got)
			}
		})

		bubble.Run(t, "IDM7_diverged", func(t testing.TB) {
			first := n.Append("div", servertest.NewEvent("StepStarted", servertest.Step("build"), servertest.Payload(`{"a":1}`))).Results[0]
			for what, change := range map[string]func(*runlogv1.EventWrite){
				"payload":          servertest.Payload(`{"a":2}`),
				"more payload":     servertest.Payload(`{"a":1,"b":2}`),
				"no payload":       func(e *runlogv1.EventWrite) { e.PayloadForm = nil },
				"causedBySignalId": func(e *runlogv1.EventWrite) { e.CausedBySignalId = "sig" },
				"parentEventId":    func(e *runlogv1.EventWrite) { e.ParentEventId = "parent" },
			} {
				resp := n.Append("div", servertest.NewEvent("StepStarted", servertest.Step("build"), servertest.Payload(`{"a":1}`), change))
				servertest.WantResults(t, what, resp.Results, "x")
				servertest.SameStored(t, what, resp.Results[0], first)
			}
			servertest.WantEqual(t, "payload: first write wins", string(n.List("div")[0].GetPayloadJson()), `{"a":1}`)
		})

		bubble.Run(t, "IDM7_over_HTTP", func(t testing.TB) {
			n.Append("http-div", servertest.NewEvent("StepStarted", servertest.Step("build"), servertest.Payload(`{"n": 1.50, "s": "\u00e9", "big": 9007199254740992}`)))
			send := func(payload string) map[string]any {
				resp := n.Post("/v1/runs/http-div/events:append", `{"events":[{"eventType":"StepStarted","tenantId":"tenant",
				"projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1","stepId":"build","logicalAttemptId":1,
				"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z","payload":`+payload+`}]}`)
				return resp["results"].([]any)[0].(map[string]any)
			}
			same := send(`{"big":9007199254740992,"s":"é","n":1.5}`)
			servertest.WantEqual(t, "same payload in another spelling", fmt.Sprint(same["idempotent"], same["persisted"], same["diverged"]), "true false false")
			other := send(`{"big":9007199254740992,"s":"é","n":1.51}`)
			servertest.WantEqual(t, "other payload", fmt.Sprint(other["idempotent"], other["persisted"], other["diverged"]), "true false true")
			servertest.WantEqual(t, "runSeq over HTTP is a decimal string", fmt.Sprintf("%T %v", other["runSeq"], other["runSeq"]), "string 1")

			// The other way round: stored over HTTP, sent again as bytes.
			n.Post("/v1/runs/http-first/events:append", `{"events":[{"eventType":"Noted","tenantId":"tenant",
			"projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,
			"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z","payload":{"z":1,"a":{"y":[1,2.5e3]}}}]}`)
			resp := n.Append("http-first", servertest.NewEvent("Noted", servertest.Payload(`{"a":{"y":[1.0,2500]},"z":1}`)))
			servertest.WantResults(t, "bytes after Struct", resp.Results, "d")
		})

		bubble.Run(t, "IDM8_inside_one_request", func(t testing.TB) {
			a, b := servertest.NewEvent("StepStarted", servertest.Step("a")), servertest.NewEvent("StepStarted", servertest.Step("b"))
			other := servertest.NewEvent("StepStarted", servertest.Step("a"), servertest.Payload(`{"other":true}`))
			resp := n.Append("inner", a, b, a, other)
			servertest.WantResults(t, "one request", resp.Results, "nndx")
			servertest.SameStored(t, "third", resp.Results[2], resp.Results[0])
			servertest.SameStored(t, "fourth", resp.Results[3], resp.Results[0])
			servertest.WantEqual(t, "lastSeq", resp.LastSeq, 2)
			servertest.WantEqual(t, "stored", len(n.List("inner")), 2)
			// The duplicate is compared with the stored event, not with the first request.
			servertest.WantResults(t, "again, other content", n.Append("inner", other, other, a, other).Results, "xxdx")
		})

		bubble.Run(t, "IDM9_recurring_run_events", func(t testing.TB) {
			servertest.WantResults(t, "pauses", n.Append("pauses", servertest.NewEvent("RunPaused"), servertest.NewEvent("RunResumed"),
				servertest.NewEvent("RunPaused", servertest.Attempt(2)), servertest.NewEvent("RunPaused", servertest.Attempt(2))).Results, "nnnd")
		})
	})
}

// TestAppendKeys covers IDM-1 to IDM-5.
func TestAppendKeys(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		e := servertest.NewEvent("StepStarted", servertest.Step("Build é"), servertest.Attempt(3))
		derived := contract.DeriveKey(contract.Line2, "keys", "Build é", 3, 1, "StepStarted", "plan", "1")
		n.Append("keys", e)
		servertest.WantEqual(t, "derived key (IDM-5)", n.List("keys")[0].IdempotencyKey, derived)
		servertest.WantResults(t, "explicit key equal to the derived one", n.Append("keys", servertest.NewEvent("StepStarted", servertest.Step("Build é"), servertest.Attempt(3), servertest.Key(derived))).Results, "d")

		_, err := n.TryAppend("keys", servertest.NewEvent("StepStarted", servertest.Step("x")), servertest.NewEvent("StepStarted", servertest.Step("y"), servertest.Key("mine")))
		r := servertest.Refused(t, err, contract.ReasonKeyMismatch)
		servertest.WantEqual(t, "expected key", r.Metadata["expected_key"],
			contract.DeriveKey(contract.Line2, "keys", "y", 1, 1, "StepStarted", "plan", "1"))
		servertest.WantEqual(t, "index", r.Metadata["index"], "1")
		if _, ok := r.Fields["events[1].idempotencyKey"]; !ok {
			t.Errorf("violations %v", r.Fields)
		}

		// 1.1: a key without planId (IDM-3), or an opaque one.
		old := func(change ...func(*runlogv1.EventWrite)) *runlogv1.EventWrite {
			return servertest.NewEvent("RunPaused", append([]func(*runlogv1.EventWrite){servertest.Sparse}, change...)...)
		}
		version := func(e *runlogv1.EventWrite) { e.PlanVersion = "1" }
		resp := n.Append("keys", old(version), old(servertest.Key("pause-keys")), old(servertest.Key("pause-keys"), servertest.Payload(`{"x":1}`)))
		servertest.WantResults(t, "1.1 keys", resp.Results, "nnx")
		records := n.List("keys")
		servertest.WantEqual(t, "1.1 key", records[1].IdempotencyKey, contract.DeriveKey(contract.Line11, "keys", "", 1, 1, "RunPaused", "ignored", "1"))
		servertest.WantEqual(t, "opaque key", records[2].IdempotencyKey, "pause-keys")
		_, err = n.TryAppend("keys", old())
		r = servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		if _, ok := r.Fields["events[0].planVersion"]; !ok {
			t.Errorf("a 1.1 event without key and planVersion: violations %v", r.Fields)
		}
		_, err = n.TryAppend("keys", old(servertest.Key("tab\there")))
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
	})
}

func TestAppendConditions(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		appendAt := func(runID string, expected uint64, events ...*runlogv1.EventWrite) (*runlogv1.AppendEventsResponse, error) {
			return n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: runID, Events: events, ExpectedLastSeq: &expected})
		}

		bubble.Run(t, "APP4_expectedLastSeq", func(t testing.TB) {
			first, err := appendAt("cond", 0, servertest.Steps("a", 2)...)
			if err != nil {
				t.Fatal(err)
			}
			again, err := appendAt("cond", 0, servertest.Steps("a", 2)...)
			if err != nil {
				t.Fatalf("a retry of a successful conditional append: %v", err)
			}
			servertest.WantResults(t, "retry", again.Results, "dd")
			servertest.SameStored(t, "retry", again.Results[1], first.Results[1])
			for _, expected := range []uint64{0, 1, 3, math.MaxUint64} {
				_, err := appendAt("cond", expected, servertest.Steps("b", 1)...)
				r := servertest.Refused(t, err, contract.ReasonSequenceConflict)
				servertest.WantEqual(t, "last_seq", r.Metadata["last_seq"], "2")
				servertest.WantEqual(t, "expected_last_seq", r.Metadata["expected_last_seq"], fmt.Sprint(expected))
				servertest.WantEqual(t, "run_id", r.Metadata["run_id"], "cond")
			}
			_, err = appendAt("cond-new", 1, servertest.Steps("a", 1)...)
			servertest.WantEqual(t, "last_seq of a new run", servertest.Refused(t, err, contract.ReasonSequenceConflict).Metadata["last_seq"], "0")
			_, err = n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "cond-new"})
			servertest.Refused(t, err, contract.ReasonRunNotFound)
			if _, err = appendAt("cond", 2, servertest.Steps("b", 1)...); err != nil {
				t.Fatal(err)
			}
			n.HTTP("POST", "/v1/runs/cond/events:append", `{"expectedLastSeq":"7","events":[{"eventType":"Noted","tenantId":"tenant",
			"projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,
			"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"}]}`).Refused(t, contract.ReasonSequenceConflict)
			servertest.WantEqual(t, "stored", len(n.List("cond")), 3)
		})

		bubble.Run(t, "QUE8_fence", func(t testing.TB) {
			appendUnder := func(runID string, fence uint64, events ...*runlogv1.EventWrite) (*runlogv1.AppendEventsResponse, error) {
				return n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: runID, Events: events, Fence: &fence})
			}
			for _, run := range []string{"fenced", "fenced-new"} {
				if run == "fenced" {
					n.Append(run, servertest.Steps("a", 2)...)
				}
				_, err := appendUnder(run, math.MaxUint64, servertest.Steps("b", 1)...)
				r := servertest.Refused(t, err, contract.ReasonLeaseLost)
				servertest.WantEqual(t, "code", r.Code, codes.FailedPrecondition)
				servertest.WantEqual(t, "run_id", r.Metadata["run_id"], run)
				servertest.WantEqual(t, "fence", r.Metadata["fence"], fmt.Sprint(uint64(math.MaxUint64)))
				servertest.WantEqual(t, "current_fence", r.Metadata["current_fence"], "0")
			}
			_, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "fenced-new"})
			servertest.Refused(t, err, contract.ReasonRunNotFound)
			again, err := appendUnder("fenced", 7, servertest.Steps("a", 2)...)
			if err != nil {
				t.Fatalf("duplicates under another fence: %v", err)
			}
			servertest.WantResults(t, "duplicates", again.Results, "dd")
			if _, err := appendUnder("fenced", 0, servertest.Steps("b", 1)...); err != nil {
				t.Fatal(err)
			}
			answer := n.HTTP("POST", "/v1/runs/fenced/events:append", `{"fence":"7","events":[`+servertest.HTTPEvent("c")+`]}`)
			answer.Refused(t, contract.ReasonLeaseLost) // 409, not gRPC's 400
			servertest.WantEqual(t, "stored", len(n.List("fenced")), 3)
		})

		bubble.Run(t, "APP3_one_invalid_event", func(t testing.TB) {
			events := servertest.Steps("ok", 5)
			events[3] = servertest.NewEvent("StepStarted", func(e *runlogv1.EventWrite) { e.PlanId = "" })
			events[4] = servertest.NewEvent("RunStarted", servertest.Step("no"))
			_, err := n.TryAppend("atomic", events...)
			r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
			servertest.WantEqual(t, "index", r.Metadata["index"], "3")
			got := slices.Sorted(maps.Keys(r.Fields))
			want := []string{"events[3].planId", "events[3].stepId", "events[4].stepId"}
			if !slices.Equal(got, want) {
				t.Errorf("violations %v, want all of %v", got, want)
			}
			_, err = n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "atomic"})
			servertest.Refused(t, err, contract.ReasonRunNotFound)
		})

		bubble.Run(t, "APP3_size_of_a_request", func(t testing.TB) {
			_, err := n.TryAppend("size")
			servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
			_, err = n.TryAppend("size", servertest.Steps("x", 1001)...)
			servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
			resp := n.Append("size", servertest.Steps("x", 1000)...)
			servertest.WantEqual(t, "lastSeq", resp.LastSeq, 1000)
			servertest.WantEqual(t, "last runSeq", resp.Results[999].RunSeq, 1000)
		})

		bubble.Run(t, "APP6_scope", func(t testing.TB) {
			n.Append("scope", servertest.NewEvent("RunStarted"))
			for field, change := range map[string]func(*runlogv1.EventWrite){
				"tenantId":      func(e *runlogv1.EventWrite) { e.TenantId = "other" },
				"projectId":     func(e *runlogv1.EventWrite) { e.ProjectId = "other" },
				"environmentId": func(e *runlogv1.EventWrite) { e.EnvironmentId = "other" },
			} {
				_, err := n.TryAppend("scope", servertest.NewEvent("RunCompleted", change))
				servertest.WantEqual(t, "field", servertest.Refused(t, err, contract.ReasonRunScopeMismatch).Metadata["field"], field)
				_, err = n.TryAppend("scope-new", servertest.NewEvent("RunStarted"), servertest.NewEvent("RunCompleted", change))
				servertest.WantEqual(t, "index", servertest.Refused(t, err, contract.ReasonRunScopeMismatch).Metadata["index"], "1")
			}
			answer := n.HTTP("POST", "/v1/runs/scope/events:append", `{"events":[{"eventType":"Noted","tenantId":"other",
			"projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,
			"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"}]}`)
			answer.Refused(t, contract.ReasonRunScopeMismatch) // 409, not gRPC's 400
			servertest.WantEqual(t, "stored", len(n.List("scope")), 1)
		})

		bubble.Run(t, "ENV1_first_event_without_tenant", func(t testing.TB) {
			_, err := n.TryAppend("unscoped", servertest.NewEvent("RunPaused", servertest.Sparse, servertest.Key("k")))
			r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
			for _, f := range []string{"tenantId", "projectId", "environmentId"} {
				if _, ok := r.Fields["events[0]."+f]; !ok {
					t.Errorf("no violation of %s: %v", f, r.Fields)
				}
			}
			_, err = n.TryAppend("unscoped", servertest.NewEvent("RunPaused", func(e *runlogv1.EventWrite) { e.TenantId = "" }))
			servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
			_, err = n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "unscoped"})
			servertest.Refused(t, err, contract.ReasonRunNotFound)
		})

		bubble.Run(t, "ENV1_sparse_events_inherit", func(t testing.TB) {
			started := servertest.NewEvent("RunStarted", servertest.Sparse, servertest.Payload(`{"status":"RUNNING","engineType":"mock","engineRunRef":"e","startedAt":"2026-02-11T10:30:00Z",
			"context":{"tenantId":"T","projectId":"P","environmentId":"E"},
			"planRef":{"uri":"u","sha256":"s","schemaVersion":"v","planId":"PL","planVersion":"7"}}`))
			resp := n.Append("sparse", started, servertest.NewEvent("StepStarted", servertest.Sparse, servertest.Step("s"), servertest.Key("k1")))
			servertest.WantResults(t, "sparse", resp.Results, "nn")
			n.Append("sparse", servertest.NewEvent("StepCompleted", servertest.Sparse, servertest.Step("s"), func(e *runlogv1.EventWrite) { e.PlanVersion = "7" }))
			for _, r := range n.List("sparse") {
				servertest.WantEqual(t, fmt.Sprint("scope and plan of ", r.RunSeq),
					r.TenantId+r.ProjectId+r.EnvironmentId+" "+r.PlanId+r.PlanVersion, "TPE PL7")
				servertest.WantEqual(t, "attempts", fmt.Sprint(r.LogicalAttemptId, r.EngineAttemptId), "1 1")
				servertest.WantEqual(t, "contract", r.ContractVersion, "1.1")
			}
			// A duplicate that names an inherited field does not diverge (IDM-7).
			resp = n.Append("sparse", servertest.NewEvent("StepStarted", servertest.Sparse, servertest.Step("s"), servertest.Key("k1"), func(e *runlogv1.EventWrite) {
				e.TenantId, e.PlanId, e.PlanVersion = "T", "PL", "7"
			}))
			servertest.WantResults(t, "the same, less sparse", resp.Results, "d")
			_, err := n.TryAppend("sparse", servertest.NewEvent("StepStarted", servertest.Sparse, servertest.Step("s2"), servertest.Key("k2"), func(e *runlogv1.EventWrite) { e.TenantId = "other" }))
			servertest.Refused(t, err, contract.ReasonRunScopeMismatch)
		})
	})
}

// TestBatchAppendAPP3: a batch is atomic per run and has an answer per run.
func TestBatchAppendAPP3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		expected := uint64(9)
		resp, err := n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{
			{RunId: "b1", Events: servertest.Steps("a", 3)},
			{RunId: "b2", Events: []*runlogv1.EventWrite{servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted")}},
			{RunId: "b3", Events: servertest.Steps("a", 1), ExpectedLastSeq: &expected},
			{RunId: "b1", Events: servertest.Steps("b", 2)},
			{RunId: "b1", Events: servertest.Steps("a", 1)},
			{RunId: "", Events: servertest.Steps("a", 1)},
			{RunId: "b3", Events: servertest.Steps("a", 1), Fence: &expected},
		}})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantResults(t, "b1", resp.Outcomes[0].Results, "nnn")
		servertest.WantResults(t, "b1 again, in the order of the requests", resp.Outcomes[3].Results, "nn")
		servertest.WantEqual(t, "lastSeq", resp.Outcomes[3].LastSeq, 5)
		servertest.WantResults(t, "duplicate", resp.Outcomes[4].Results, "d")
		for i, want := range map[int]codes.Code{1: codes.InvalidArgument, 2: codes.Aborted, 5: codes.InvalidArgument, 6: codes.FailedPrecondition} {
			o := resp.Outcomes[i]
			if codes.Code(o.GetStatus().GetCode()) != want || len(o.Results) > 0 || len(o.Status.Details) == 0 {
				t.Errorf("outcome %d: %v, want %v with details", i, o, want)
			}
		}
		for _, missing := range []string{"b2", "b3"} {
			_, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: missing})
			servertest.Refused(t, err, contract.ReasonRunNotFound)
		}
		_, err = n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)

		over := n.Post("/v1/events:batchAppend", `{"requests":[{"runId":"b1","events":[`+servertest.HTTPEvent("b9")+`]},{"runId":"b4","events":[{}]}]}`)
		outcomes := over["outcomes"].([]any)
		servertest.WantEqual(t, "lastSeq over HTTP", outcomes[0].(map[string]any)["lastSeq"], "6")
		servertest.WantEqual(t, "status over HTTP", fmt.Sprint(outcomes[1].(map[string]any)["status"].(map[string]any)["code"]), "3")

		many := &runlogv1.BatchAppendRequest{}
		for i := range 300 {
			many.Requests = append(many.Requests, &runlogv1.AppendEventsRequest{RunId: fmt.Sprint("many-", i%100), Events: servertest.Steps(fmt.Sprint(i), 1)})
		}
		resp, err = n.Events.BatchAppend(n.Context(), many)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range resp.Outcomes {
			if o.Status != nil || len(o.Results) != 1 || o.Results[0].RunSeq != uint64(i/100+1) {
				t.Fatalf("outcome %d of many: %v", i, o)
			}
		}
	})
}

// TestSchemasENV5: a payload that does not match its type's schema is refused with the path of each
// fault, and nothing of the request is stored. Unknown members are stored.
func TestSchemasENV5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		bad := servertest.NewEvent("StepAttested", servertest.Step("s"), servertest.Payload(`{"extra":1}`))
		_, err := n.TryAppend("run", servertest.NewEvent("RunStarted"), bad)
		r := servertest.Refused(t, err, contract.ReasonSchemaValidationFailed)
		servertest.WantEqual(t, "index", r.Metadata["index"], "1")
		if _, ok := r.Fields["events[1].payload/outcome"]; !ok {
			t.Errorf("violations %v, want the JSON Pointer of the member", r.Fields)
		}
		n.HTTP("POST", "/v1/runs/run/events:append", `{"events":[{"eventType":"StepAttested","stepId":"s","tenantId":"tenant","projectId":"project",
		"environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z",
		"payload":{}}]}`).Refused(t, contract.ReasonSchemaValidationFailed)
		_, err = n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "run"})
		servertest.Refused(t, err, contract.ReasonRunNotFound)
		n.Append("run", servertest.NewEvent("StepAttested", servertest.Step("s"), servertest.Payload(`{"outcome":"SUCCESS","extra":[1,2]}`)))
		servertest.WantEqual(t, "stored", string(n.List("run")[0].GetPayloadJson()), `{"outcome":"SUCCESS","extra":[1,2]}`)
	})
}

// TestPayloadsENV7ENV8: payloads up to the limit are stored byte for byte, and read so over HTTP.
func TestPayloadsENV7ENV8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxPayloadBytes = 2000 })
		texts := []string{
			`{}`,
			"{ \"spaces\" :\t1 ,\n \"é\" : \"\\u00e9\", \"zeros\": 1.000, \"big\": 123456789012345678901234567890 }",
			`{"":null,"emoji":"😀","combining":"é","deep":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`,
			`{"pad":"` + strings.Repeat("x", 1990) + `"}`,
		}
		for i, text := range texts {
			n.Append("bytes", servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(i)), servertest.Payload(text)))
		}
		for i, r := range n.List("bytes") {
			servertest.WantEqual(t, fmt.Sprint("payload ", i), string(r.GetPayloadJson()), texts[i])
		}
		n.Append("bytes", servertest.NewEvent("Noted", servertest.Step("none"), func(e *runlogv1.EventWrite) { e.PayloadForm = nil }))
		servertest.WantEqual(t, "no payload", string(n.List("bytes")[len(texts)].GetPayloadJson()), "{}")

		resp, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: "bytes", PayloadForm: runlogv1.PayloadForm_STRUCT})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "as Struct", resp.Events[1].GetPayload().Fields["é"].GetStringValue(), "é")
		if body := n.HTTP("GET", "/v1/runs/bytes/events", "").Body; !bytes.Contains(body, []byte(`"payload":`+texts[1])) {
			t.Errorf("over HTTP: %s", body)
		}
		bytesOver := n.Get("/v1/runs/bytes/events?payloadForm=JSON")["events"].([]any)[0].(map[string]any)
		servertest.WantEqual(t, "as base64 when asked for", fmt.Sprint(bytesOver["payloadJson"]), "e30=")

		_, err = n.TryAppend("bytes", servertest.NewEvent("Noted", servertest.Step("large"), servertest.Payload(`{"pad":"`+strings.Repeat("x", 1991)+`"}`)))
		r := servertest.Refused(t, err, contract.ReasonPayloadTooLarge)
		servertest.WantEqual(t, "max_bytes", r.Metadata["max_bytes"], "2000")
		for _, bad := range []string{``, `[]`, `"x"`, `{`, `{"a":1}{}`, "{\"a\":\"\xff\"}", strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)} {
			_, err := n.TryAppend("bytes", servertest.NewEvent("Noted", servertest.Step("bad"), servertest.Payload(bad)))
			if bad == "" {
				continue // absent, and so an empty object
			}
			servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		}
	})
}

// TestOddPayloadsAreReadableENV8: JSON that a Struct cannot hold is still stored, and its run stays
// readable in natural form.
func TestOddPayloadsAreReadableENV8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		odd := []string{`{"n":1e400}`, `{"a":1,"a":2}`, `{"n":-1e999999999999}`}
		for i, text := range odd {
			n.Append("odd", servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(i)), servertest.Payload(text)))
		}
		n.Append("odd", servertest.NewEvent("Noted", servertest.Step("last"), servertest.Payload(`{"fine":true}`)))
		events := n.Get("/v1/runs/odd/events")["events"].([]any)
		if len(events) != len(odd)+1 {
			t.Fatalf("%d events over HTTP, want %d", len(events), len(odd)+1)
		}
		servertest.WantEqual(t, "the event after them", fmt.Sprint(events[len(odd)].(map[string]any)["payload"]), "map[fine:true]")
		for i, text := range odd {
			servertest.WantEqual(t, text, string(n.List("odd")[i].GetPayloadJson()), text)
		}
	})
}
