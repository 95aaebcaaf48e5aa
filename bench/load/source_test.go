package load

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"runlog/bench/target"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// acknowledge answers as a target does that has nothing but this run.
func acknowledge(req *runlogv1.AppendEventsRequest, before uint64) []*runlogv1.AppendResult {
	var out []*runlogv1.AppendResult
	for i, e := range req.Events {
		out = append(out, &runlogv1.AppendResult{EventId: e.EventId, RunSeq: before + uint64(i) + 1, Persisted: true})
	}
	return out
}

func testSession(payloadBytes int) *Session { return NewSession(payloadBytes, FillText(payloadBytes)) }

// TestSourcesMakeValidEvents: every event of every source passes the contract, has the payload size
// that was asked for, a key of its own, and one tenant a run.
func TestSourcesMakeValidEvents(t *testing.T) {
	for name, makeSource := range map[string]func(s *Session, batch, number int) Source{
		"histories": func(s *Session, b, n int) Source { return NewHistories(s, b, n) },
		"whole":     func(s *Session, b, n int) Source { return NewWholeRuns(s, b, n) },
		"hot":       func(s *Session, b, n int) Source { return NewHotRun(s, b, n, 2) },
		"scattered": func(s *Session, b, n int) Source { return NewScattered(s, b, n, 5) },
	} {
		for _, test := range []struct{ batch, payloadBytes int }{
			{1, 400}, {100, 400}, {7, MinPayloadBytes}, {400, 200}, {1, 8 << 10},
		} {
			t.Run(fmt.Sprintf("%s of %d, %d bytes", name, test.batch, test.payloadBytes), func(t *testing.T) {
				s := testSession(test.payloadBytes)
				keys, ids, tenants, seqs := map[string]bool{}, map[string]bool{}, map[string]string{}, map[string]uint64{}
				total := 0
				for number := range 2 {
					source := makeSource(s, test.batch, number)
					for range max(20, 200/test.batch) {
						req := source.Next()
						events, err := contract.ValidateAll(req.Events, contract.Options{RunID: req.RunId, RefuseUnknownTypes: true})
						if err != nil || len(events) != test.batch {
							t.Fatalf("%d events, %v", len(events), err)
						}
						for _, e := range events {
							if len(e.Payload) != test.payloadBytes {
								t.Fatalf("%d bytes: %s", len(e.Payload), e.Payload)
							}
							if tenant := tenants[req.RunId]; tenant != "" && tenant != e.TenantID {
								t.Fatalf("run %s is of %s and %s", req.RunId, tenant, e.TenantID)
							}
							tenants[req.RunId] = e.TenantID
							keys[e.IdempotencyKey], ids[e.EventID.String()] = true, true
						}
						if n, err := source.Settle(acknowledge(req, seqs[req.RunId]), nil); n != test.batch || err != nil {
							t.Fatal(n, err)
						}
						seqs[req.RunId] += uint64(test.batch)
						total += test.batch
					}
				}
				if len(keys) != total || len(ids) != total {
					t.Errorf("%d keys and %d ids of %d events", len(keys), len(ids), total)
				}
			})
		}
	}
}

// TestHistories: runs have a beginning, an end and nothing missing between.
func TestHistories(t *testing.T) {
	h := NewHistories(testSession(400), 10, 10_000)
	want := map[string]string{"RunStarted": `"planRef":`, "StepStarted": `"taskQueue":`, "StepCompleted": `"artifacts":`, "RunCompleted": `"completedAt":`}
	types := map[string]int{}
	for range 2 * h.runEvents / h.batch {
		req := h.Next()
		for _, e := range req.Events {
			types[e.EventType]++
			if !strings.Contains(string(e.GetPayloadJson()), want[e.EventType]) {
				t.Fatalf("%s: %s", e.EventType, e.GetPayloadJson())
			}
		}
		if _, err := h.Settle(acknowledge(req, h.lastSeq), nil); err != nil {
			t.Fatal(err)
		}
	}
	if types["RunStarted"] != 2 || types["RunCompleted"] != 2 || types["StepStarted"] != types["StepCompleted"] {
		t.Errorf("%v", types)
	}
}

// TestSourcesLeaveARunInDoubt: after a call without a good answer the extent of its run is unknown,
// so another run goes on in its place.
func TestSourcesLeaveARunInDoubt(t *testing.T) {
	s := testSession(100)
	for name, source := range map[string]Source{"histories": NewHistories(s, 2, 0), "scattered": NewScattered(s, 2, 1, 1)} {
		first := source.Next()
		if _, err := source.Settle(acknowledge(first, 0), nil); err != nil {
			t.Fatal(err)
		}
		if again := source.Next(); again.RunId != first.RunId {
			t.Errorf("%s: runs %s and %s", name, first.RunId, again.RunId)
		}
		failure := errors.New("cut off")
		if _, err := source.Settle(nil, failure); !errors.Is(err, failure) {
			t.Errorf("%s: %v", name, err)
		}
		next := source.Next()
		if next.RunId == first.RunId || next.Events[0].EventType != "RunStarted" {
			t.Errorf("%s goes on with %s of %s", name, next.Events[0].EventType, next.RunId)
		}
		if _, err := source.Settle(acknowledge(next, 0), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRepeatsKeepSoMany(t *testing.T) {
	r := NewRepeats(testSession(50), 1, 0, 0)
	var first string
	for i := range repeatsKept + 1 {
		req := r.Next()
		if i == 0 {
			first = req.Events[0].EventId
		}
		if _, err := r.Settle(acknowledge(req, r.lastSeq), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range r.answered {
		if a.req.Events[0].EventId == first {
			t.Error("the oldest is still there")
		}
	}
	if len(r.answered) != repeatsKept {
		t.Errorf("%d kept", len(r.answered))
	}
}

func TestCheckNew(t *testing.T) {
	req := &runlogv1.AppendEventsRequest{RunId: "r", Events: []*runlogv1.EventWrite{{EventId: "a"}, {EventId: "b"}}}
	for want, spoil := range map[string]func([]*runlogv1.AppendResult) []*runlogv1.AppendResult{
		"":              func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { return r },
		"WRONG_COUNT":   func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { return r[:1] },
		"NOT_PERSISTED": func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { r[1].Persisted = false; return r },
		"WRONG_SEQ":     func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { r[1].RunSeq++; return r },
		"WRONG_EVENT":   func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { r[0].EventId = "c"; return r },
	} {
		err := checkNew(req, spoil(acknowledge(req, 7)), 7, true)
		if want == "" && err != nil || want != "" && (err == nil || target.ReasonOf(err) != want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	sparse := acknowledge(req, 7)
	sparse[1].RunSeq += 5
	if err := checkNew(req, sparse, 3, false); err != nil {
		t.Error(err)
	}
	if err := checkNew(req, sparse, 8, false); err == nil {
		t.Error("a runSeq that does not rise passes")
	}
}
