package server

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// wantResults compares the results of the events: n new, d duplicate, x diverged duplicate.
func wantResults(t testing.TB, what string, results []*runlogv1.AppendResult, want string) {
	t.Helper()
	var got strings.Builder
	for _, r := range results {
		switch {
		case r.Persisted && !r.Idempotent && !r.Diverged:
			got.WriteByte('n')
		case r.Idempotent && !r.Persisted && r.Diverged:
			got.WriteByte('x')
		case r.Idempotent && !r.Persisted:
			got.WriteByte('d')
		default:
			got.WriteByte('?')
		}
	}
	if got.String() != want {
		t.Errorf("%s: results are %q, want %q", what, &got, want)
	}
}

// sameStored wants two answers to name the same stored event (IDM-6).
func sameStored(t testing.TB, what string, got, want *runlogv1.AppendResult) {
	t.Helper()
	if got.EventId != want.EventId || got.RunSeq != want.RunSeq || !proto.Equal(got.PersistedAt, want.PersistedAt) {
		t.Errorf("%s: names %v, want %v", what, got, want)
	}
}

func TestAppendDuplicates(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)

		bubble.Run(t, "APP1_APP5_numbered_and_stamped", func(t testing.TB) {
			var last *timestamppb.Timestamp
			for i := range 5 {
				resp := n.append("numbered", steps(fmt.Sprint(i, "-"), 3)...)
				wantResults(t, "append", resp.Results, "nnn")
				wantEqual(t, "lastSeq", resp.LastSeq, uint64(3*i+3))
				for k, r := range resp.Results {
					wantEqual(t, "runSeq", r.RunSeq, uint64(3*i+k+1))
					wantProto(t, "one stamp a proposal", r.PersistedAt, resp.Results[0].PersistedAt)
				}
				if last != nil && !last.AsTime().Before(resp.Results[0].PersistedAt.AsTime()) {
					t.Errorf("stamp %v after %v", resp.Results[0].PersistedAt.AsTime(), last.AsTime())
				}
				last = resp.Results[0].PersistedAt
			}
		})

		bubble.Run(t, "IDM6_duplicate", func(t testing.TB) {
			e := newEvent("StepStarted", step("build"), payload(`{"a":1,"b":[true,null,"é"]}`))
			first := n.append("dup", e).Results[0]
			for _, again := range []*runlogv1.EventWrite{
				e,
				newEvent("StepStarted", step("build"), payload(`{ "b" : [true, null, "\u00e9"], "a": 1.0 }`)),
				newEvent("StepStarted", step("build"), payload(`{"a":1e0,"b":[true,null,"é"]}`), func(e *runlogv1.EventWrite) {
					// None of these is content (IDM-7) or part of the key (IDM-4).
					e.EventId = "0b0e7b1c-6f3d-4c43-9e0b-0d8f5a3a1c11"
					e.EngineAttemptId, e.EmittedBy = 7, "someone else"
					e.EmittedAt = &timestamppb.Timestamp{Seconds: 1}
				}),
			} {
				resp := n.append("dup", again)
				wantResults(t, "again", resp.Results, "d")
				sameStored(t, "again", resp.Results[0], first)
				wantEqual(t, "lastSeq", resp.LastSeq, 1)
			}
			if got := n.list("dup"); len(got) != 1 || got[0].EngineAttemptId != 1 || got[0].EmittedBy != nil {
				t.Errorf("stored: %v", got)
			}
		})

		bubble.Run(t, "IDM7_diverged", func(t testing.TB) {
			first := n.append("div", newEvent("StepStarted", step("build"), payload(`{"a":1}`))).Results[0]
			for what, change := range map[string]func(*runlogv1.EventWrite){
				"payload":          payload(`{"a":2}`),
				"more payload":     payload(`{"a":1,"b":2}`),
				"no payload":       func(e *runlogv1.EventWrite) { e.PayloadForm = nil },
				"causedBySignalId": func(e *runlogv1.EventWrite) { e.CausedBySignalId = "sig" },
				"parentEventId":    func(e *runlogv1.EventWrite) { e.ParentEventId = "parent" },
			} {
				resp := n.append("div", newEvent("StepStarted", step("build"), payload(`{"a":1}`), change))
				wantResults(t, what, resp.Results, "x")
				sameStored(t, what, resp.Results[0], first)
			}
			wantEqual(t, "payload: first write wins", string(n.list("div")[0].GetPayloadJson()), `{"a":1}`)
		})

		bubble.Run(t, "IDM7_over_HTTP", func(t testing.TB) {
			n.append("http-div", newEvent("StepStarted", step("build"), payload(`{"n": 1.50, "s": "\u00e9", "big": 9007199254740992}`)))
			send := func(payload string) map[string]any {
				resp := n.post("/v1/runs/http-div/events:append", `{"events":[{"eventType":"StepStarted","tenantId":"tenant",
				"projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1","stepId":"build","logicalAttemptId":1,
				"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z","payload":`+payload+`}]}`)
				return resp["results"].([]any)[0].(map[string]any)
			}
			same := send(`{"big":9007199254740992,"s":"é","n":1.5}`)
			wantEqual(t, "same payload in another spelling", fmt.Sprint(same["idempotent"], same["persisted"], same["diverged"]), "true false false")
			other := send(`{"big":9007199254740992,"s":"é","n":1.51}`)
			wantEqual(t, "other payload", fmt.Sprint(other["idempotent"], other["persisted"], other["diverged"]), "true false true")
			wantEqual(t, "runSeq over HTTP is a decimal string", fmt.Sprintf("%T %v", other["runSeq"], other["runSeq"]), "string 1")

			// The other way round: stored over HTTP, sent again as bytes.
			n.post("/v1/runs/http-first/events:append", `{"events":[{"eventType":"Noted","tenantId":"tenant",
			"projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,
			"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z","payload":{"z":1,"a":{"y":[1,2.5e3]}}}]}`)
			resp := n.append("http-first", newEvent("Noted", payload(`{"a":{"y":[1.0,2500]},"z":1}`)))
			wantResults(t, "bytes after Struct", resp.Results, "d")
		})

		bubble.Run(t, "IDM8_inside_one_request", func(t testing.TB) {
			a, b := newEvent("StepStarted", step("a")), newEvent("StepStarted", step("b"))
			other := newEvent("StepStarted", step("a"), payload(`{"other":true}`))
			resp := n.append("inner", a, b, a, other)
			wantResults(t, "one request", resp.Results, "nndx")
			sameStored(t, "third", resp.Results[2], resp.Results[0])
			sameStored(t, "fourth", resp.Results[3], resp.Results[0])
			wantEqual(t, "lastSeq", resp.LastSeq, 2)
			wantEqual(t, "stored", len(n.list("inner")), 2)
			// The duplicate is compared with the stored event, not with the first request.
			wantResults(t, "again, other content", n.append("inner", other, other, a, other).Results, "xxdx")
		})

		bubble.Run(t, "IDM9_recurring_run_events", func(t testing.TB) {
			wantResults(t, "pauses", n.append("pauses", newEvent("RunPaused"), newEvent("RunResumed"),
				newEvent("RunPaused", attempt(2)), newEvent("RunPaused", attempt(2))).Results, "nnnd")
		})
	})
}

// TestAppendKeys covers IDM-1 to IDM-5.
func TestAppendKeys(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		e := newEvent("StepStarted", step("Build é"), attempt(3))
		derived := contract.DeriveKey(contract.Line2, "keys", "Build é", 3, "StepStarted", "plan", "1")
		n.append("keys", e)
		wantEqual(t, "derived key (IDM-5)", n.list("keys")[0].IdempotencyKey, derived)
		wantResults(t, "explicit key equal to the derived one", n.append("keys", newEvent("StepStarted", step("Build é"), attempt(3), key(derived))).Results, "d")

		_, err := n.tryAppend("keys", newEvent("StepStarted", step("x")), newEvent("StepStarted", step("y"), key("mine")))
		r := refused(t, err, contract.ReasonKeyMismatch)
		wantEqual(t, "expected key", r.metadata["expected_key"],
			contract.DeriveKey(contract.Line2, "keys", "y", 1, "StepStarted", "plan", "1"))
		wantEqual(t, "index", r.metadata["index"], "1")
		if _, ok := r.fields["events[1].idempotencyKey"]; !ok {
			t.Errorf("violations %v", r.fields)
		}

		// 1.1: a key without planId (IDM-3), or an opaque one.
		old := func(change ...func(*runlogv1.EventWrite)) *runlogv1.EventWrite {
			return newEvent("RunPaused", append([]func(*runlogv1.EventWrite){sparse}, change...)...)
		}
		version := func(e *runlogv1.EventWrite) { e.PlanVersion = "1" }
		resp := n.append("keys", old(version), old(key("pause-keys")), old(key("pause-keys"), payload(`{"x":1}`)))
		wantResults(t, "1.1 keys", resp.Results, "nnx")
		records := n.list("keys")
		wantEqual(t, "1.1 key", records[1].IdempotencyKey, contract.DeriveKey(contract.Line11, "keys", "", 1, "RunPaused", "ignored", "1"))
		wantEqual(t, "opaque key", records[2].IdempotencyKey, "pause-keys")
		_, err = n.tryAppend("keys", old())
		r = refused(t, err, contract.ReasonInvalidArgumentField)
		if _, ok := r.fields["events[0].planVersion"]; !ok {
			t.Errorf("a 1.1 event without key and planVersion: violations %v", r.fields)
		}
		_, err = n.tryAppend("keys", old(key("tab\there")))
		refused(t, err, contract.ReasonInvalidArgumentField)
	})
}

func TestAppendConditions(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		appendAt := func(runID string, expected uint64, events ...*runlogv1.EventWrite) (*runlogv1.AppendEventsResponse, error) {
			return n.events.AppendEvents(n.context(), &runlogv1.AppendEventsRequest{RunId: runID, Events: events, ExpectedLastSeq: &expected})
		}

		bubble.Run(t, "APP4_expectedLastSeq", func(t testing.TB) {
			first, err := appendAt("cond", 0, steps("a", 2)...)
			if err != nil {
				t.Fatal(err)
			}
			again, err := appendAt("cond", 0, steps("a", 2)...)
			if err != nil {
				t.Fatalf("a retry of a successful conditional append: %v", err)
			}
			wantResults(t, "retry", again.Results, "dd")
			sameStored(t, "retry", again.Results[1], first.Results[1])
			for _, expected := range []uint64{0, 1, 3, math.MaxUint64} {
				_, err := appendAt("cond", expected, steps("b", 1)...)
				r := refused(t, err, contract.ReasonSequenceConflict)
				wantEqual(t, "last_seq", r.metadata["last_seq"], "2")
				wantEqual(t, "expected_last_seq", r.metadata["expected_last_seq"], fmt.Sprint(expected))
				wantEqual(t, "run_id", r.metadata["run_id"], "cond")
			}
			_, err = appendAt("cond-new", 1, steps("a", 1)...)
			wantEqual(t, "last_seq of a new run", refused(t, err, contract.ReasonSequenceConflict).metadata["last_seq"], "0")
			_, err = n.runs.GetRun(n.context(), &runlogv1.GetRunRequest{RunId: "cond-new"})
			refused(t, err, contract.ReasonRunNotFound)
			if _, err = appendAt("cond", 2, steps("b", 1)...); err != nil {
				t.Fatal(err)
			}
			n.http("POST", "/v1/runs/cond/events:append", `{"expectedLastSeq":"7","events":[{"eventType":"Noted","tenantId":"tenant",
			"projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,
			"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"}]}`).refused(t, contract.ReasonSequenceConflict)
			wantEqual(t, "stored", len(n.list("cond")), 3)
		})

		bubble.Run(t, "QUE8_fence", func(t testing.TB) {
			appendUnder := func(runID string, fence uint64, events ...*runlogv1.EventWrite) (*runlogv1.AppendEventsResponse, error) {
				return n.events.AppendEvents(n.context(), &runlogv1.AppendEventsRequest{RunId: runID, Events: events, Fence: &fence})
			}
			for _, run := range []string{"fenced", "fenced-new"} {
				if run == "fenced" {
					n.append(run, steps("a", 2)...)
				}
				_, err := appendUnder(run, math.MaxUint64, steps("b", 1)...)
				r := refused(t, err, contract.ReasonLeaseLost)
				wantEqual(t, "code", r.code, codes.FailedPrecondition)
				wantEqual(t, "run_id", r.metadata["run_id"], run)
				wantEqual(t, "fence", r.metadata["fence"], fmt.Sprint(uint64(math.MaxUint64)))
				wantEqual(t, "current_fence", r.metadata["current_fence"], "0")
			}
			_, err := n.runs.GetRun(n.context(), &runlogv1.GetRunRequest{RunId: "fenced-new"})
			refused(t, err, contract.ReasonRunNotFound)
			again, err := appendUnder("fenced", 7, steps("a", 2)...)
			if err != nil {
				t.Fatalf("duplicates under another fence: %v", err)
			}
			wantResults(t, "duplicates", again.Results, "dd")
			if _, err := appendUnder("fenced", 0, steps("b", 1)...); err != nil {
				t.Fatal(err)
			}
			answer := n.http("POST", "/v1/runs/fenced/events:append", `{"fence":"7","events":[`+httpEvent("c")+`]}`)
			answer.refused(t, contract.ReasonLeaseLost) // 409, not gRPC's 400
			wantEqual(t, "stored", len(n.list("fenced")), 3)
		})

		bubble.Run(t, "APP3_one_invalid_event", func(t testing.TB) {
			events := steps("ok", 5)
			events[3] = newEvent("StepStarted", func(e *runlogv1.EventWrite) { e.PlanId = "" })
			events[4] = newEvent("RunStarted", step("no"))
			_, err := n.tryAppend("atomic", events...)
			r := refused(t, err, contract.ReasonInvalidArgumentField)
			wantEqual(t, "index", r.metadata["index"], "3")
			got := slices.Sorted(maps.Keys(r.fields))
			want := []string{"events[3].planId", "events[3].stepId", "events[4].stepId"}
			if !slices.Equal(got, want) {
				t.Errorf("violations %v, want all of %v", got, want)
			}
			_, err = n.runs.GetRun(n.context(), &runlogv1.GetRunRequest{RunId: "atomic"})
			refused(t, err, contract.ReasonRunNotFound)
		})

		bubble.Run(t, "APP3_size_of_a_request", func(t testing.TB) {
			_, err := n.tryAppend("size")
			refused(t, err, contract.ReasonInvalidArgumentField)
			_, err = n.tryAppend("size", steps("x", 1001)...)
			refused(t, err, contract.ReasonInvalidArgumentField)
			resp := n.append("size", steps("x", 1000)...)
			wantEqual(t, "lastSeq", resp.LastSeq, 1000)
			wantEqual(t, "last runSeq", resp.Results[999].RunSeq, 1000)
		})

		bubble.Run(t, "APP6_scope", func(t testing.TB) {
			n.append("scope", newEvent("RunStarted"))
			for field, change := range map[string]func(*runlogv1.EventWrite){
				"tenantId":      func(e *runlogv1.EventWrite) { e.TenantId = "other" },
				"projectId":     func(e *runlogv1.EventWrite) { e.ProjectId = "other" },
				"environmentId": func(e *runlogv1.EventWrite) { e.EnvironmentId = "other" },
			} {
				_, err := n.tryAppend("scope", newEvent("RunCompleted", change))
				wantEqual(t, "field", refused(t, err, contract.ReasonRunScopeMismatch).metadata["field"], field)
				_, err = n.tryAppend("scope-new", newEvent("RunStarted"), newEvent("RunCompleted", change))
				wantEqual(t, "index", refused(t, err, contract.ReasonRunScopeMismatch).metadata["index"], "1")
			}
			answer := n.http("POST", "/v1/runs/scope/events:append", `{"events":[{"eventType":"Noted","tenantId":"other",
			"projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,
			"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"}]}`)
			answer.refused(t, contract.ReasonRunScopeMismatch) // 409, not gRPC's 400
			wantEqual(t, "stored", len(n.list("scope")), 1)
		})

		bubble.Run(t, "ENV1_first_event_without_tenant", func(t testing.TB) {
			_, err := n.tryAppend("unscoped", newEvent("RunPaused", sparse, key("k")))
			r := refused(t, err, contract.ReasonInvalidArgumentField)
			for _, f := range []string{"tenantId", "projectId", "environmentId"} {
				if _, ok := r.fields["events[0]."+f]; !ok {
					t.Errorf("no violation of %s: %v", f, r.fields)
				}
			}
			_, err = n.tryAppend("unscoped", newEvent("RunPaused", func(e *runlogv1.EventWrite) { e.TenantId = "" }))
			refused(t, err, contract.ReasonInvalidArgumentField)
			_, err = n.runs.GetRun(n.context(), &runlogv1.GetRunRequest{RunId: "unscoped"})
			refused(t, err, contract.ReasonRunNotFound)
		})

		bubble.Run(t, "ENV1_sparse_events_inherit", func(t testing.TB) {
			started := newEvent("RunStarted", sparse, payload(`{"status":"RUNNING","engineType":"mock","engineRunRef":"e","startedAt":"2026-02-11T10:30:00Z",
			"context":{"tenantId":"T","projectId":"P","environmentId":"E"},
			"planRef":{"uri":"u","sha256":"s","schemaVersion":"v","planId":"PL","planVersion":"7"}}`))
			resp := n.append("sparse", started, newEvent("StepStarted", sparse, step("s"), key("k1")))
			wantResults(t, "sparse", resp.Results, "nn")
			n.append("sparse", newEvent("StepCompleted", sparse, step("s"), func(e *runlogv1.EventWrite) { e.PlanVersion = "7" }))
			for _, r := range n.list("sparse") {
				wantEqual(t, fmt.Sprint("scope and plan of ", r.RunSeq),
					r.TenantId+r.ProjectId+r.EnvironmentId+" "+r.PlanId+r.PlanVersion, "TPE PL7")
				wantEqual(t, "attempts", fmt.Sprint(r.LogicalAttemptId, r.EngineAttemptId), "1 1")
				wantEqual(t, "contract", r.ContractVersion, "1.1")
			}
			// A duplicate that names an inherited field does not diverge (IDM-7).
			resp = n.append("sparse", newEvent("StepStarted", sparse, step("s"), key("k1"), func(e *runlogv1.EventWrite) {
				e.TenantId, e.PlanId, e.PlanVersion = "T", "PL", "7"
			}))
			wantResults(t, "the same, less sparse", resp.Results, "d")
			_, err := n.tryAppend("sparse", newEvent("StepStarted", sparse, step("s2"), key("k2"), func(e *runlogv1.EventWrite) { e.TenantId = "other" }))
			refused(t, err, contract.ReasonRunScopeMismatch)
		})
	})
}

// TestBatchAppendAPP3: a batch is atomic per run and has an answer per run.
func TestBatchAppendAPP3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		expected := uint64(9)
		resp, err := n.events.BatchAppend(n.context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{
			{RunId: "b1", Events: steps("a", 3)},
			{RunId: "b2", Events: []*runlogv1.EventWrite{newEvent("RunStarted"), newEvent("StepStarted")}},
			{RunId: "b3", Events: steps("a", 1), ExpectedLastSeq: &expected},
			{RunId: "b1", Events: steps("b", 2)},
			{RunId: "b1", Events: steps("a", 1)},
			{RunId: "", Events: steps("a", 1)},
			{RunId: "b3", Events: steps("a", 1), Fence: &expected},
		}})
		if err != nil {
			t.Fatal(err)
		}
		wantResults(t, "b1", resp.Outcomes[0].Results, "nnn")
		wantResults(t, "b1 again, in the order of the requests", resp.Outcomes[3].Results, "nn")
		wantEqual(t, "lastSeq", resp.Outcomes[3].LastSeq, 5)
		wantResults(t, "duplicate", resp.Outcomes[4].Results, "d")
		for i, want := range map[int]codes.Code{1: codes.InvalidArgument, 2: codes.Aborted, 5: codes.InvalidArgument, 6: codes.FailedPrecondition} {
			o := resp.Outcomes[i]
			if codes.Code(o.GetStatus().GetCode()) != want || len(o.Results) > 0 || len(o.Status.Details) == 0 {
				t.Errorf("outcome %d: %v, want %v with details", i, o, want)
			}
		}
		for _, missing := range []string{"b2", "b3"} {
			_, err := n.runs.GetRun(n.context(), &runlogv1.GetRunRequest{RunId: missing})
			refused(t, err, contract.ReasonRunNotFound)
		}
		_, err = n.events.BatchAppend(n.context(), &runlogv1.BatchAppendRequest{})
		refused(t, err, contract.ReasonInvalidArgumentField)

		over := n.post("/v1/events:batchAppend", `{"requests":[{"runId":"b1","events":[`+httpEvent("b9")+`]},{"runId":"b4","events":[{}]}]}`)
		outcomes := over["outcomes"].([]any)
		wantEqual(t, "lastSeq over HTTP", outcomes[0].(map[string]any)["lastSeq"], "6")
		wantEqual(t, "status over HTTP", fmt.Sprint(outcomes[1].(map[string]any)["status"].(map[string]any)["code"]), "3")

		many := &runlogv1.BatchAppendRequest{}
		for i := range 300 {
			many.Requests = append(many.Requests, &runlogv1.AppendEventsRequest{RunId: fmt.Sprint("many-", i%100), Events: steps(fmt.Sprint(i), 1)})
		}
		resp, err = n.events.BatchAppend(n.context(), many)
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

// httpEvent is a valid event as HTTP clients write it.
func httpEvent(stepID string) string {
	e := newEvent("Noted", step(stepID))
	e.PayloadForm = &runlogv1.EventWrite_Payload{Payload: &structpb.Struct{}}
	text, _ := protojson.Marshal(e)
	return string(text)
}

// TestSchemasENV5: a payload that does not match its type's schema is refused with the path of each
// fault, and nothing of the request is stored. Unknown members are stored.
func TestSchemasENV5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		bad := newEvent("StepAttested", step("s"), payload(`{"extra":1}`))
		_, err := n.tryAppend("run", newEvent("RunStarted"), bad)
		r := refused(t, err, contract.ReasonSchemaValidationFailed)
		wantEqual(t, "index", r.metadata["index"], "1")
		if _, ok := r.fields["events[1].payload/outcome"]; !ok {
			t.Errorf("violations %v, want the JSON Pointer of the member", r.fields)
		}
		n.http("POST", "/v1/runs/run/events:append", `{"events":[{"eventType":"StepAttested","stepId":"s","tenantId":"tenant","projectId":"project",
		"environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z",
		"payload":{}}]}`).refused(t, contract.ReasonSchemaValidationFailed)
		_, err = n.runs.GetRun(n.context(), &runlogv1.GetRunRequest{RunId: "run"})
		refused(t, err, contract.ReasonRunNotFound)
		n.append("run", newEvent("StepAttested", step("s"), payload(`{"outcome":"SUCCESS","extra":[1,2]}`)))
		wantEqual(t, "stored", string(n.list("run")[0].GetPayloadJson()), `{"outcome":"SUCCESS","extra":[1,2]}`)
	})
}

// TestPayloadsENV7ENV8: payloads up to the limit are stored byte for byte, and read so over HTTP.
func TestPayloadsENV7ENV8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.MaxPayloadBytes = 2000 })
		texts := []string{
			`{}`,
			"{ \"spaces\" :\t1 ,\n \"é\" : \"\\u00e9\", \"zeros\": 1.000, \"big\": 123456789012345678901234567890 }",
			`{"":null,"emoji":"😀","combining":"é","deep":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`,
			`{"pad":"` + strings.Repeat("x", 1990) + `"}`,
		}
		for i, text := range texts {
			n.append("bytes", newEvent("Noted", step(fmt.Sprint(i)), payload(text)))
		}
		for i, r := range n.list("bytes") {
			wantEqual(t, fmt.Sprint("payload ", i), string(r.GetPayloadJson()), texts[i])
		}
		n.append("bytes", newEvent("Noted", step("none"), func(e *runlogv1.EventWrite) { e.PayloadForm = nil }))
		wantEqual(t, "no payload", string(n.list("bytes")[len(texts)].GetPayloadJson()), "{}")

		resp, err := n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: "bytes", PayloadForm: runlogv1.PayloadForm_STRUCT})
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "as Struct", resp.Events[1].GetPayload().Fields["é"].GetStringValue(), "é")
		if body := n.http("GET", "/v1/runs/bytes/events", "").body; !bytes.Contains(body, []byte(`"payload":`+texts[1])) {
			t.Errorf("over HTTP: %s", body)
		}
		bytesOver := n.get("/v1/runs/bytes/events?payloadForm=JSON")["events"].([]any)[0].(map[string]any)
		wantEqual(t, "as base64 when asked for", fmt.Sprint(bytesOver["payloadJson"]), "e30=")

		_, err = n.tryAppend("bytes", newEvent("Noted", step("large"), payload(`{"pad":"`+strings.Repeat("x", 1991)+`"}`)))
		r := refused(t, err, contract.ReasonPayloadTooLarge)
		wantEqual(t, "max_bytes", r.metadata["max_bytes"], "2000")
		for _, bad := range []string{``, `[]`, `"x"`, `{`, `{"a":1}{}`, "{\"a\":\"\xff\"}", strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)} {
			_, err := n.tryAppend("bytes", newEvent("Noted", step("bad"), payload(bad)))
			if bad == "" {
				continue // absent, and so an empty object
			}
			refused(t, err, contract.ReasonInvalidArgumentField)
		}
	})
}

// TestOddPayloadsAreReadableENV8: JSON that a Struct cannot hold is still stored, and its run stays
// readable in natural form.
func TestOddPayloadsAreReadableENV8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		odd := []string{`{"n":1e400}`, `{"a":1,"a":2}`, `{"n":-1e999999999999}`}
		for i, text := range odd {
			n.append("odd", newEvent("Noted", step(fmt.Sprint(i)), payload(text)))
		}
		n.append("odd", newEvent("Noted", step("last"), payload(`{"fine":true}`)))
		events := n.get("/v1/runs/odd/events")["events"].([]any)
		if len(events) != len(odd)+1 {
			t.Fatalf("%d events over HTTP, want %d", len(events), len(odd)+1)
		}
		wantEqual(t, "the event after them", fmt.Sprint(events[len(odd)].(map[string]any)["payload"]), "map[fine:true]")
		for i, text := range odd {
			wantEqual(t, text, string(n.list("odd")[i].GetPayloadJson()), text)
		}
	})
}
