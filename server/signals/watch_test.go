package signals_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// heard reads a watch of events until the signal with an id has come, and returns the ids of the
// signals and the last token.
func heard(t testing.TB, next func() (*runlogv1.EventBatch, string, error), last string) (ids []string, token string) {
	t.Helper()
	for {
		batch, token, err := next()
		if err != nil {
			t.Fatalf("after %v: %v", ids, err)
		}
		for i, e := range batch.GetEvents() {
			if e.EventType == contract.SignalAccepted {
				ids = append(ids, e.GetCausedBySignalId())
			}
			if e.GetCausedBySignalId() == last && i == len(batch.Events)-1 {
				return ids, token
			}
		}
	}
}

// TestEnginesHearSignalsSIG6: an engine that watches events with resume tokens hears of each
// accepted signal once, in their order, while it and the server restart in between.
func TestEnginesHearSignalsSIG6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		start := n.Append("run", servertest.NewEvent("RunStarted"))
		ctx, cancel := context.WithTimeout(t.Context(), servertest.Patience)
		defer cancel()
		many, one := start.Position, ""
		var fromMany, fromOne, want []string
		sent := 0
		send := func(count int) string {
			id := ""
			for range count {
				sent++
				id = fmt.Sprint("s-", sent)
				send(n, signal(fmt.Sprint("rejected-", sent), "RESUME"))
				send(n, signal(id, "UPDATE_PARAMS"))
				want = append(want, id)
			}
			return id
		}
		token := ""
		for round := range 4 {
			last := send(2) // while no engine watches
			runs := &runlogv1.WatchRunsRequest{View: runlogv1.WatchView_EVENT, Types: []string{contract.SignalAccepted}, ResumeToken: token}
			if round == 0 {
				runs.AfterPosition = many
			}
			all, err := n.Projection.WatchRuns(ctx, runs)
			if err != nil {
				t.Fatal(err)
			}
			single, err := n.Projection.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_EVENT, ResumeToken: one})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				var ids []string
				ids, token = heard(t, func() (*runlogv1.EventBatch, string, error) {
					m, err := all.Recv()
					return m.GetEvents(), m.GetResumeToken(), err
				}, last)
				fromMany = append(fromMany, ids...)
				ids, one = heard(t, func() (*runlogv1.EventBatch, string, error) {
					m, err := single.Recv()
					return m.GetEvents(), m.GetResumeToken(), err
				}, last)
				fromOne = append(fromOne, ids...)
				last = send(1) // while engines watch, before the restart or after
			}
			if round%2 == 0 {
				n.Restart()
			}
		}
		// The last signal of each round is heard by the next watch.
		got, all := strings.Join(fromMany, " "), strings.Join(want, " ")
		if !strings.HasPrefix(all, got) || len(want)-len(fromMany) > 1 {
			t.Errorf("a watch of many runs has heard\n%s\nof\n%s", got, all)
		}
		if got := strings.Join(fromOne, " "); !strings.HasPrefix(all, got) || len(want)-len(fromOne) > 1 {
			t.Errorf("a watch of one run has heard\n%s\nof\n%s", got, all)
		}
	})
}

// TestSignalsOverHTTPSIG1 holds the answers over HTTP to their texts.
func TestSignalsOverHTTPSIG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("a b/é", servertest.NewEvent("RunStarted"))
		path := servertest.RunPath("a b/é", ":signal")
		for _, c := range [...]struct{ body, want string }{
			{`{"signalId":"1","signalType":"PAUSE","reason":"x"}`,
				`{"decision":"ACCEPTED","runSeq":"2","rejectReason":"","nextLogicalAttemptId":0,"idempotent":false,"position":"P"}`},
			{`{"signalId":"1","signalType":"PAUSE"}`,
				`{"decision":"ACCEPTED","runSeq":"2","rejectReason":"","nextLogicalAttemptId":0,"idempotent":true,"position":"P"}`},
			{`{"signalId":"2","signalType":"PAUSE"}`,
				`{"decision":"REJECTED","runSeq":"3","rejectReason":"ALREADY_PAUSED","nextLogicalAttemptId":0,"idempotent":false,"position":"P"}`},
			{`{"signalId":"3","signalType":"WAVE"}`,
				`{"decision":"REJECTED","runSeq":"4","rejectReason":"UNKNOWN_SIGNAL_TYPE","nextLogicalAttemptId":0,"idempotent":false,"position":"P"}`},
			{`{"signalId":"4","signalType":"UPDATE_PARAMS","parameters":{"b":[1.50,null],"a":"<&>"}}`,
				`{"decision":"ACCEPTED","runSeq":"5","rejectReason":"","nextLogicalAttemptId":0,"idempotent":false,"position":"P"}`},
		} {
			a := n.HTTP("POST", path, c.body, "Content-Type", "application/json")
			m := a.OK(t)
			got := strings.ReplaceAll(string(a.Body), fmt.Sprintf("%q", m["position"]), `"P"`)
			if strings.TrimSpace(got) != c.want {
				t.Errorf("%s:\n%s\nwant\n%s", c.body, got, c.want)
			}
		}
		stored := string(n.List("a b/é")[4].GetPayloadJson())
		if !strings.Contains(stored, `"parameters":{"a":"<&>","b":[1.5,null]}`) {
			t.Errorf("stored %s", stored)
		}
		a := n.HTTP("POST", path, `{"signalId":"5","signalType":"RETRY_STEP"}`, "Content-Type", "application/json")
		if e := a.Refused(t, contract.ReasonInvalidArgumentField); e.Fields["stepId"] == "" {
			t.Errorf("violations %v", e.Fields)
		}
		secret := `{"signalId":"6","signalType":"UPDATE_PARAMS","parameters":{"key":["` + servertest.FakeToken + `"]}}`
		a = n.HTTP("POST", path, secret, "Content-Type", "application/json")
		if e := a.Refused(t, contract.ReasonPayloadHasSecret); e.Fields["parameters/key/0"] == "" {
			t.Errorf("violations %v", e.Fields)
		}
		for i := range 60 {
			a = n.HTTP("POST", path, fmt.Sprintf(`{"signalId":"many-%d","signalType":"PAUSE"}`, i), "Content-Type", "application/json")
		}
		a.Refused(t, contract.ReasonSignalRateLimited)
		if seconds := a.Header.Get("Retry-After"); seconds == "" || seconds == "0" {
			t.Errorf("Retry-After %q", seconds)
		}
	})
}

// TestSignalsOfManyEventsSIG2: a decision about a run of many events is made by the last of them,
// and the decision about an old signal is found.
func TestSignalsOfManyEventsSIG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		first := send(n, signal("first", "PAUSE"))
		events, batch := 100_000, 1000
		if testing.Short() {
			events = 5000
		}
		for i := 0; i < events; i += batch {
			n.Append("run", servertest.Steps(fmt.Sprint("s-", i, "-"), batch)...)
		}
		servertest.WantEqual(t, "a second PAUSE", outcome(send(n, signal("second", "PAUSE"))), "ALREADY_PAUSED")
		again := send(n, signal("first", "PAUSE"))
		if !again.Idempotent || again.RunSeq != first.RunSeq {
			t.Errorf("the first one again: %v", again)
		}
		n.Restart()
		begun := time.Now()
		servertest.WantEqual(t, "after a restart", outcome(send(n, signal("third", "PAUSE"))), "ALREADY_PAUSED")
		t.Logf("decided %v after a restart", time.Since(begun))
	})
}
