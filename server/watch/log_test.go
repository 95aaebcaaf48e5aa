package watch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestWatchWaitsForARun: a watch of a run that does not exist sends heartbeats until it does, with
// every view, over gRPC and as Server-Sent Events.
func TestWatchWaitsForARun(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 20 * time.Millisecond })
		isWaiting := func(m *runlogv1.WatchRunResponse) bool {
			return m.GetHeartbeat() != nil && m.GetHeartbeat().Watermark == nil
		}
		for view, fits := range map[runlogv1.WatchView_Kind]func(*runlogv1.WatchRunResponse) bool{
			runlogv1.WatchView_WATERMARK: func(m *runlogv1.WatchRunResponse) bool { return m.GetWatermark().GetLastEventSeq() == 1 },
			runlogv1.WatchView_SNAPSHOT:  func(m *runlogv1.WatchRunResponse) bool { return m.GetSnapshot().GetLastEventSeq() == 1 },
			runlogv1.WatchView_EVENT:     func(m *runlogv1.WatchRunResponse) bool { return len(m.GetEvents().GetEvents()) == 1 },
		} {
			id := "of " + view.String()
			w := n.Watch(&runlogv1.WatchRunRequest{RunId: id, View: view})
			stream := n.OpenEvents(servertest.RunPath(id, ":watch?view="+strings.ToLower(view.String())))
			w.Until("a heartbeat", isWaiting)
			w.Until("another one", isWaiting)
			// A run without events ends the waiting too.
			if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun(id)}); err != nil {
				t.Fatal(err)
			}
			w.Until("caughtUp", servertest.IsCaughtUp)
			n.Append(id, servertest.NewEvent("RunStarted"))
			w.Until("the event", fits)
			stream.Until("caughtUp")
			servertest.Refused(t, n.Watch(&runlogv1.WatchRunRequest{RunId: "no " + id, View: view, MustExist: true}).Over(), contract.ReasonRunNotFound)
		}
		n.HTTP("GET", "/v1/runs/nobody:watch?mustExist=true", "").Refused(t, contract.ReasonRunNotFound)
	})
}

// tokenAt is a token, and how many events came before and with it.
type tokenAt struct {
	token string
	count int
}

// eventsOf reads events of a watch of many runs as "run@seq type", until there are so many.
func eventsOf(t *testing.T, w *servertest.RunsWatcher, count int) (texts []string, tokens []tokenAt) {
	t.Helper()
	for len(texts) < count {
		m := servertest.Within(t, "a message", func() *runlogv1.WatchRunsResponse { return <-w.Messages })
		if m == nil {
			t.Fatalf("the watch ended after %d of %d events: %v", len(texts), count, w.Over())
		}
		for _, e := range m.GetEvents().GetEvents() {
			texts = append(texts, fmt.Sprintf("%s@%d %s", e.RunId, e.RunSeq, e.EventType))
		}
		if m.GetEvents() != nil {
			tokens = append(tokens, tokenAt{m.ResumeToken, len(texts)})
		}
	}
	return texts, tokens
}

// TestWatchEventsOfRunsWATCH2: the events of all runs that a filter selects come in commit order;
// from each token, at each node, exactly the events behind it.
func TestWatchEventsOfRunsWATCH2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		nodes := servertest.StartNodes(t, 3)
		n := nodes[0]
		begin := n.MustAppend("begin", servertest.NewEvent("RunStarted")).Position
		live := n.WatchRuns(&runlogv1.WatchRunsRequest{View: runlogv1.WatchView_EVENT, TenantId: "tenant"})
		live.Want("caughtUp")
		var want []string
		for i := range 30 {
			id := fmt.Sprint("run-", i%4)
			events := servertest.Steps(fmt.Sprint("s", i, "-"), 1+i%3)
			if i == 20 {
				events = servertest.Steps("many-", 600) // in several messages
			}
			if i%5 == 4 {
				for _, e := range events {
					e.TenantId = "other"
				}
				id = "foreign"
			}
			resp := nodes[i%3].Append(id, events...)
			for _, r := range resp.Results {
				if id != "foreign" {
					want = append(want, fmt.Sprintf("%s@%d Noted", id, r.RunSeq))
				}
			}
		}
		got, tokens := eventsOf(t, live, len(want))
		if !slices.Equal(got, want) {
			t.Fatalf("watched %q\nwant %q", got, want)
		}
		for i, at := range tokens {
			again := nodes[i%3].WatchRuns(&runlogv1.WatchRunsRequest{View: runlogv1.WatchView_EVENT, TenantId: "tenant", ResumeToken: at.token})
			if rest, _ := eventsOf(t, again, len(want)-at.count); !slices.Equal(rest, want[at.count:]) {
				t.Fatalf("from token %d: %q", i, rest)
			}
			again.Want("caughtUp")
			again.Cancel()
		}
		// From the position of a write, and only of some types.
		n.Append("run-0", servertest.NewEvent("SignalAccepted", servertest.Payload(`{"signalId":"1","decidedBy":"x"}`)), servertest.NewEvent("Noted", servertest.Step("last")))
		signals := nodes[1].WatchRuns(&runlogv1.WatchRunsRequest{View: runlogv1.WatchView_EVENT, Types: []string{"SignalAccepted"}, AfterPosition: begin})
		heard, _ := eventsOf(t, signals, 1)
		servertest.WantEqual(t, "signal", strings.HasSuffix(heard[0], "SignalAccepted"), true)
		signals.Want("caughtUp")
		all := n.WatchRuns(&runlogv1.WatchRunsRequest{View: runlogv1.WatchView_EVENT, RunIdPrefix: "run-", AfterPosition: begin})
		if got, _ := eventsOf(t, all, len(want)); !slices.Equal(got, want) {
			t.Errorf("after a position: %q", got)
		}
	})
}

// TestWatchEventsOfRunsEndsSlowReadersWATCH3: a reader that takes nothing is ended with a token,
// from which it gets the rest.
func TestWatchEventsOfRunsEndsSlowReadersWATCH3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.SlowConsumer = 50 * time.Millisecond })
		stream, err := n.Projection.WatchRuns(n.Context(), &runlogv1.WatchRunsRequest{View: runlogv1.WatchView_EVENT})
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Recv()
		if err != nil || first.GetCaughtUp() == nil {
			t.Fatalf("%v, %v", first, err)
		}
		const events = 400
		text := servertest.Payload(`{"text":"` + strings.Repeat("x", 60_000) + `"}`)
		for i := range events / 20 {
			batch := servertest.Steps(fmt.Sprint("s", i, "-"), 20)
			for _, e := range batch {
				text(e)
			}
			n.Append("run", batch...)
		}
		bubble.Until(t, "the watch is ended", func() bool { return n.Metric("runlog_watch_slow_consumers_total") == 1 })
		got := 0
		var ended error
		for ended == nil {
			var m *runlogv1.WatchRunsResponse
			if m, ended = stream.Recv(); ended == nil {
				got += len(m.GetEvents().GetEvents())
			}
		}
		r := servertest.Refused(t, ended, contract.ReasonSlowConsumer)
		if got == events {
			t.Error("the reader got everything: the test tests nothing")
		}
		n.Restart(func() { n.Opts.SlowConsumer = servertest.Patience })
		rest := n.WatchRuns(&runlogv1.WatchRunsRequest{View: runlogv1.WatchView_EVENT, ResumeToken: r.Metadata["resume_token"]})
		// The last message may have come although the server does not know.
		seen, last := map[string]bool{}, fmt.Sprintf("run@%d Noted", events)
		for !seen[last] {
			texts, _ := eventsOf(t, rest, 1)
			for _, text := range texts {
				seen[text] = true
			}
		}
		if len(seen) < events-got {
			t.Errorf("%d events after %d of %d", len(seen), got, events)
		}
	})
}
