package bench

import (
	"fmt"
	"strings"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestProducersMakeValidHistories: every event passes the contract, has the payload size that was asked
// for, and a key of its own.
func TestProducersMakeValidHistories(t *testing.T) {
	for _, test := range []struct{ batch, payloadBytes int }{
		{1, 400}, {100, 400}, {7, MinPayloadBytes}, {400, 200}, {1, 8 << 10},
	} {
		t.Run(fmt.Sprintf("batch %d, %d bytes", test.batch, test.payloadBytes), func(t *testing.T) {
			o := &Options{PayloadBytes: test.payloadBytes}
			s := newSession(o)
			keys := make(map[string]bool)
			types := make(map[string]int)
			for number := range 2 {
				p := newProducer(o, s, test.batch, number)
				for range 2 * p.runEvents / test.batch {
					req := p.next()
					events, err := contract.ValidateAll(req.Events, contract.Options{RunID: req.RunId, RefuseUnknownTypes: true})
					if err != nil || len(events) != test.batch {
						t.Fatalf("%d events, %v", len(events), err)
					}
					for _, e := range events {
						if len(e.Payload) != test.payloadBytes {
							t.Fatalf("%d bytes: %s", len(e.Payload), e.Payload)
						}
						keys[e.IdempotencyKey] = true
						types[e.Type]++
					}
				}
				if want := 2 * p.runEvents * (number + 1); len(keys) != want {
					t.Errorf("%d keys of %d events", len(keys), want)
				}
			}
			if types["RunStarted"] != 4 || types["RunCompleted"] != 4 || types["StepCompleted"] == 0 {
				t.Errorf("%v", types)
			}
		})
	}
}

// TestUsualPayloadsSayMoreThanText: at the usual size, each type carries its own members.
func TestUsualPayloadsSayMoreThanText(t *testing.T) {
	o := &Options{PayloadBytes: 400}
	p := newProducer(o, newSession(o), 50, 10_000)
	want := map[string]string{"RunStarted": `"planRef":`, "StepStarted": `"taskQueue":`, "StepCompleted": `"artifacts":`, "RunCompleted": `"completedAt":`}
	for range p.runEvents / p.batch {
		for _, e := range p.next().Events {
			if !strings.Contains(string(e.GetPayloadJson()), want[e.EventType]) {
				t.Fatalf("%s: %s", e.EventType, e.GetPayloadJson())
			}
		}
	}
}

func TestCheckAnswer(t *testing.T) {
	req := &runlogv1.AppendEventsRequest{RunId: "r", Events: []*runlogv1.EventWrite{{EventId: "a"}, {EventId: "b"}}}
	good := func() []*runlogv1.AppendResult {
		return []*runlogv1.AppendResult{{EventId: "a", RunSeq: 8, Persisted: true}, {EventId: "b", RunSeq: 9, Persisted: true}}
	}
	for want, spoil := range map[string]func([]*runlogv1.AppendResult) []*runlogv1.AppendResult{
		"":              func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { return r },
		"WRONG_COUNT":   func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { return r[:1] },
		"NOT_PERSISTED": func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { r[1].Persisted = false; return r },
		"WRONG_SEQ":     func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { r[1].RunSeq++; return r },
		"WRONG_EVENT":   func(r []*runlogv1.AppendResult) []*runlogv1.AppendResult { r[0].EventId = "c"; return r },
	} {
		err := checkAnswer(req, &runlogv1.AppendEventsResponse{Results: spoil(good())}, 7)
		if want == "" && err != nil || want != "" && (err == nil || reasonOf(err) != want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
