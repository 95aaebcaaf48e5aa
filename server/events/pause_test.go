package events_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestSecondPauseIDM9: run-level events recur under a new logicalAttemptId. Without one, the second
// pause is a duplicate of the first.
func TestSecondPauseIDM9(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		attempt := func(id uint32) func(*runlogv1.EventWrite) {
			return func(e *runlogv1.EventWrite) { e.LogicalAttemptId = id }
		}
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("RunPaused"), servertest.NewEvent("RunResumed"))
		again := n.Append("run", servertest.NewEvent("RunPaused"))
		if r := again.Results[0]; !r.Idempotent || r.RunSeq != 2 || n.Snapshot("run").Status != runlogv1.RunStatus_RUNNING {
			t.Errorf("the first pause said again: %v, run %v", r, n.Snapshot("run").Status)
		}
		second := n.Append("run", servertest.NewEvent("RunPaused", attempt(2)))
		if r := second.Results[0]; !r.Persisted || r.RunSeq != 4 || n.Snapshot("run").Status != runlogv1.RunStatus_PAUSED {
			t.Errorf("the second pause: %v, run %v", r, n.Snapshot("run").Status)
		}
		n.Append("run", servertest.NewEvent("RunResumed", attempt(2)))
		if s := n.Snapshot("run"); s.Status != runlogv1.RunStatus_RUNNING || s.InconsistencyCount != 0 {
			t.Errorf("after the second resume: %v", s)
		}
	})
}

// pauseBy is a pause that leaves its attempt to the authority.
func pauseBy(signal string) *runlogv1.EventWrite {
	return servertest.NewEvent("RunPaused", servertest.Attempt(0), func(e *runlogv1.EventWrite) { e.CausedBySignalId = signal })
}

// TestPausesByTheirSignalsIDM10: pauses of one run that race on every way of appending, through
// every node of a cluster, are one event a signal, each with an attempt of its own. A repetition
// gives the first answer, also after restarts.
func TestPausesByTheirSignalsIDM10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		all[0].Append("run", servertest.NewEvent("RunStarted"))
		const producers, pauses = 6, 8
		ways := []func(n *servertest.Node, signal string) *runlogv1.AppendResult{pauseAlone, pauseInBatch, pauseOnStream}
		// Two producers send the same signals.
		signal := func(producer, i int) string { return fmt.Sprint("signal-", producer/2, "-", i) }
		answers := make([][]*runlogv1.AppendResult, producers)
		var racing sync.WaitGroup
		for p := range producers {
			racing.Go(func() {
				for i := range pauses {
					answers[p] = append(answers[p], ways[p%len(ways)](all[p%len(all)], signal(p, i)))
				}
			})
		}
		racing.Wait()
		stored := map[string]*runlogv1.EventRecord{}
		for _, e := range all[0].List("run")[1:] {
			if stored[e.GetCausedBySignalId()] != nil {
				t.Errorf("signal %s has two events", e.GetCausedBySignalId())
			}
			stored[e.GetCausedBySignalId()] = e
			servertest.WantEqual(t, "attempt of runSeq "+fmt.Sprint(e.RunSeq), uint64(e.LogicalAttemptId), e.RunSeq-1)
		}
		servertest.WantEqual(t, "signals with an event", len(stored), producers/2*pauses)
		all[1].Restart()
		for p := range producers {
			for i, first := range answers[p] {
				e := stored[signal(p, i)]
				again := pauseAlone(all[1], signal(p, i))
				for _, r := range []*runlogv1.AppendResult{first, again} {
					if e == nil || r.GetRunSeq() != e.RunSeq || r.GetLogicalAttemptId() != e.LogicalAttemptId || r.GetIdempotencyKey() != e.IdempotencyKey || r.Diverged {
						t.Fatalf("%s: answer %v, stored %v", signal(p, i), r, e)
					}
				}
				servertest.WantEqual(t, "a repetition is a duplicate", again.Idempotent, true)
			}
		}
	})
}

func pauseAlone(n *servertest.Node, signal string) *runlogv1.AppendResult {
	resp, err := n.TryAppend("run", pauseBy(signal))
	if err != nil {
		n.T.Errorf("pause: %v", err)
		return nil
	}
	return resp.Results[0]
}

func pauseInBatch(n *servertest.Node, signal string) *runlogv1.AppendResult {
	resp, err := n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{
		{RunId: "run", Events: []*runlogv1.EventWrite{pauseBy(signal)}},
	}})
	if err != nil || resp.Outcomes[0].Status != nil {
		n.T.Errorf("pause in a batch: %v, %v", resp, err)
		return nil
	}
	return resp.Outcomes[0].Results[0]
}

func pauseOnStream(n *servertest.Node, signal string) *runlogv1.AppendResult {
	stream, err := n.Events.AppendStream(n.Context())
	if err == nil {
		err = stream.Send(&runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{pauseBy(signal)}})
	}
	if err != nil {
		n.T.Errorf("pause on a stream: %v", err)
		return nil
	}
	_ = stream.CloseSend()
	resp, err := stream.Recv()
	if err != nil || resp.Status != nil {
		n.T.Errorf("pause on a stream: %v, %v", resp, err)
		return nil
	}
	return resp.Results[0]
}

// TestPausesKeepTheOrderOfAStreamIDM10: a pause that is assigned its attempt again, because another
// producer's pause came first, stays in its place in the stream (APP-8).
func TestPausesKeepTheOrderOfAStreamIDM10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		ended := make(chan struct{})
		var other sync.WaitGroup
		other.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				default:
					pauseAlone(n, fmt.Sprint("other-", i%500))
				}
			}
		})
		defer other.Wait()
		defer close(ended)
		stream, err := n.Events.AppendStream(t.Context()) // With a slow disk it takes long.
		if err != nil {
			t.Fatal(err)
		}
		const rounds = 50
		for i := range rounds {
			for _, e := range []*runlogv1.EventWrite{servertest.NewEvent("Noted", servertest.Step(fmt.Sprint("before-", i))), pauseBy(fmt.Sprint("own-", i)), servertest.NewEvent("Noted", servertest.Step(fmt.Sprint("after-", i)))} {
				if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{e}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = stream.CloseSend()
		last := uint64(0)
		for i := range 3 * rounds {
			resp, err := stream.Recv()
			if err != nil || resp.Status != nil {
				t.Fatalf("answer %d: %v, %v", i, resp, err)
			}
			if seq := resp.Results[0].RunSeq; seq <= last {
				t.Fatalf("answer %d has runSeq %d, that before it %d", i, seq, last)
			}
			last = resp.Results[0].RunSeq
		}
	})
}

// TestAttemptsLeftOutIDM10: what may leave out its attempt, and the answer for the rest.
func TestAttemptsLeftOutIDM10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for _, c := range []struct {
			name  string
			event *runlogv1.EventWrite
			field string // that is refused; empty: none
		}{
			{"a cause on the envelope", pauseBy("a"), ""},
			{"a cause in the payload", servertest.NewEvent("SignalAccepted", servertest.Attempt(0), servertest.Payload(`{"signalId":"s","signalType":"PAUSE"}`)), ""},
			{"a cause that is no text", servertest.NewEvent("RunPaused", servertest.Attempt(0), servertest.Payload(`{"signalId":7}`)), "events[0].logicalAttemptId"},
			{"no cause", servertest.NewEvent("RunPaused", servertest.Attempt(0)), "events[0].logicalAttemptId"},
			{"another type", servertest.NewEvent("RunCompleted", servertest.Attempt(0), func(e *runlogv1.EventWrite) { e.CausedBySignalId = "a" }), "events[0].logicalAttemptId"},
			{"an unknown type", servertest.NewEvent("RunPawsed", servertest.Attempt(0), func(e *runlogv1.EventWrite) { e.CausedBySignalId = "a" }), "events[0].logicalAttemptId"},
			{"a key without its attempt", servertest.NewEvent("RunPaused", servertest.Attempt(0), servertest.Key(strings.Repeat("0", 64)), func(e *runlogv1.EventWrite) { e.CausedBySignalId = "a" }), "events[0].logicalAttemptId"},
			{"1.1 with a cause", servertest.NewEvent("RunPaused", servertest.Attempt(0), func(e *runlogv1.EventWrite) { e.ContractVersion, e.CausedBySignalId = "1.1", "b" }), ""},
			{"1.1 without a cause", servertest.NewEvent("RunResumed", servertest.Attempt(0), func(e *runlogv1.EventWrite) { e.ContractVersion = "1.1" }), ""},
		} {
			bubble.Run(t, c.name, func(t testing.TB) {
				before := len(n.List("run"))
				_, err := n.TryAppend("run", c.event)
				if c.field == "" {
					if err != nil || len(n.List("run")) != before+1 {
						t.Errorf("%v, %d events after %d", err, len(n.List("run")), before)
					}
					return
				}
				if err == nil || servertest.RefusalOf(t, err).Fields[c.field] == "" || len(n.List("run")) != before {
					t.Errorf("%v, want a violation of %s and nothing stored", err, c.field)
				}
			})
		}
	})
}
