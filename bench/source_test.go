package bench

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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

func testSession(payloadBytes int) *session { return newSession(payloadBytes, fillText(payloadBytes)) }

// TestSourcesMakeValidEvents: every event of every source passes the contract, has the payload size
// that was asked for, a key of its own, and one tenant a run.
func TestSourcesMakeValidEvents(t *testing.T) {
	for name, makeSource := range map[string]func(s *session, batch, number int) source{
		"histories": func(s *session, b, n int) source { return newHistories(s, b, n) },
		"whole":     func(s *session, b, n int) source { return newWholeRuns(s, b, n) },
		"hot":       func(s *session, b, n int) source { return newHotRun(s, b, n, 2) },
		"scattered": func(s *session, b, n int) source { return newScattered(s, b, n, 5) },
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
						req := source.next()
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
						if n, err := source.settle(acknowledge(req, seqs[req.RunId]), nil); n != test.batch || err != nil {
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
	h := newHistories(testSession(400), 10, 10_000)
	want := map[string]string{"RunStarted": `"planRef":`, "StepStarted": `"taskQueue":`, "StepCompleted": `"artifacts":`, "RunCompleted": `"completedAt":`}
	types := map[string]int{}
	for range 2 * h.runEvents / h.batch {
		req := h.next()
		for _, e := range req.Events {
			types[e.EventType]++
			if !strings.Contains(string(e.GetPayloadJson()), want[e.EventType]) {
				t.Fatalf("%s: %s", e.EventType, e.GetPayloadJson())
			}
		}
		if _, err := h.settle(acknowledge(req, h.lastSeq), nil); err != nil {
			t.Fatal(err)
		}
	}
	if types["RunStarted"] != 2 || types["RunCompleted"] != 2 || types["StepStarted"] != types["StepCompleted"] {
		t.Errorf("%v", types)
	}
}

// TestSourcesLeaveARunInDoubt: after a call without a good answer nobody knows how far its run is,
// so another run goes on in its place.
func TestSourcesLeaveARunInDoubt(t *testing.T) {
	s := testSession(100)
	for name, source := range map[string]source{"histories": newHistories(s, 2, 0), "scattered": newScattered(s, 2, 1, 1)} {
		first := source.next()
		if _, err := source.settle(acknowledge(first, 0), nil); err != nil {
			t.Fatal(err)
		}
		if again := source.next(); again.RunId != first.RunId {
			t.Errorf("%s: runs %s and %s", name, first.RunId, again.RunId)
		}
		failure := errors.New("cut off")
		if _, err := source.settle(nil, failure); !errors.Is(err, failure) {
			t.Errorf("%s: %v", name, err)
		}
		next := source.next()
		if next.RunId == first.RunId || next.Events[0].EventType != "RunStarted" {
			t.Errorf("%s goes on with %s of %s", name, next.Events[0].EventType, next.RunId)
		}
		if _, err := source.settle(acknowledge(next, 0), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRepeatsKeepSoMany(t *testing.T) {
	r := newRepeats(testSession(50), 1, 0, 0)
	var first string
	for i := range repeatsKept + 1 {
		req := r.next()
		if i == 0 {
			first = req.Events[0].EventId
		}
		if _, err := r.settle(acknowledge(req, r.lastSeq), nil); err != nil {
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
		if want == "" && err != nil || want != "" && (err == nil || reasonOf(err) != want) {
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

// TestStaleRead: a read that does not show what was acknowledged before it is an error (READ-2).
func TestStaleRead(t *testing.T) {
	f := newFakeTarget()
	req := newHistories(testSession(50), 3, 0).next()
	if _, err := f.append(req); err != nil {
		t.Fatal(err)
	}
	r := &reading{reader: fakeNode{f}}
	for seq, want := range map[uint64]string{3: "", 4: "STALE_READ"} {
		m := &marked{run: req.RunId, seq: seq}
		for _, err := range []error{r.askRun(t.Context(), m), r.askSnapshot(t.Context(), m), r.askEvents(t.Context(), m)} {
			if want == "" && err != nil || want != "" && (err == nil || reasonOf(err) != want) {
				t.Errorf("up to %d: want %q, got %v", seq, want, err)
			}
		}
	}
}
