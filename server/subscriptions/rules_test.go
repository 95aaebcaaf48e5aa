package subscriptions_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/budget"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// pullAll pulls and acknowledges events, until there are as many as wanted, and returns what keep
// makes of each CloudEvent.
func pullAll(n *servertest.Node, id string, want int, keep func(e map[string]any) string) (list []string) {
	n.T.Helper()
	for len(list) < want {
		got := pull(n, id, `{"max":100,"wait":"30s"}`)
		if len(got) == 0 {
			n.T.Fatalf("%d events, want %d: %v", len(list), want, list)
		}
		var ids []string
		for _, d := range got {
			list, ids = append(list, keep(d.event)), append(ids, `"`+d.id+`"`)
		}
		n.Post("/v1/subscriptions/"+id+":ack", `{"deliveryIds":[`+strings.Join(ids, ",")+`]}`)
	}
	return list
}

// TestEveryStoredEventIsDueBUS1: whatever way an event is stored, each subscription that matches
// has it once, and no refused or repeated one.
func TestEveryStoredEventIsDueBUS1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Subscribe("all")
		n.Subscribe("noted", func(r *runlogv1.CreateSubscriptionRequest) {
			r.Filter = &runlogv1.SubscriptionFilter{Types: []string{"Noted"}}
		})
		n.Append("a", servertest.Steps("s", 3)...)
		n.Append("a", servertest.Steps("s", 3)...) // repeated
		if _, err := n.TryAppend("a", servertest.NewEvent("StepStarted")); err == nil {
			t.Fatal("an event without its step is stored")
		}
		_, err := n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{
			{RunId: "b", Events: servertest.Steps("s", 1)}, {RunId: "c", Events: servertest.Steps("s", 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := n.Events.AppendStream(n.Context())
		if err == nil {
			err = stream.Send(&runlogv1.AppendEventsRequest{RunId: "d", Events: servertest.Steps("s", 1)})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Queues().RequestRun(n.Context(), servertest.RunRequest("r", servertest.Named("e"))); err != nil {
			t.Fatal(err)
		}
		place := func(e map[string]any) string { return fmt.Sprint(e["subject"], e["runseq"], " ", e["type"]) }
		noted := []string{"a1 runlog.Noted", "a2 runlog.Noted", "a3 runlog.Noted", "b1 runlog.Noted", "c1 runlog.Noted", "d1 runlog.Noted"}
		for id, want := range map[string][]string{"all": append(slices.Clone(noted), "e1 runlog.RunQueued"), "noted": noted} {
			got := pullAll(n, id, len(want), place)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s has %q, want %q", id, got, want)
			}
			if rest := pull(n, id, `{"max":10}`); len(rest) != 0 {
				t.Errorf("%s has more: %v", id, rest)
			}
		}
	})
}

// TestParkedBUS4: an event is parked after its last attempt, with its error. The later events of
// its run go on, or wait until the run has no dead letter.
func TestParkedBUS4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for id, choice := range map[string]runlogv1.OnDeadLetter_Value{"on": runlogv1.OnDeadLetter_CONTINUE, "hold": runlogv1.OnDeadLetter_HOLD_RUN} {
			n.Subscribe(id, func(r *runlogv1.CreateSubscriptionRequest) {
				r.Retry = &runlogv1.Retry{Initial: durationpb.New(time.Millisecond), Max: durationpb.New(time.Millisecond), MaxAttempts: 3}
				r.OnDeadLetter = choice
			})
		}
		n.Append("run", servertest.Steps("s", 2)...)
		n.Append("other", servertest.Steps("s", 1)...)
		for _, id := range []string{"on", "hold"} {
			// The other run does not wait.
			var seen []string
			for attempts := 0; attempts < 3 || !slices.Contains(seen, "other1"); {
				for _, d := range pull(n, id, `{"max":10,"wait":"30s"}`) {
					verb := ":ack"
					if d.event["subject"] == "run" && d.event["runseq"] == "1" {
						verb = ":nack"
						attempts++
					}
					seen = append(seen, fmt.Sprint(d.event["subject"], d.event["runseq"]))
					n.Post("/v1/subscriptions/"+id+verb, `{"deliveryIds":["`+d.id+`"]}`)
				}
			}
			var letters []any
			bubble.Until(t, "the event is parked", func() bool {
				letters = n.Get("/v1/subscriptions/" + id + "/deadLetters")["deadLetters"].([]any)
				return len(letters) == 1
			})
			letter, sub := letters[0].(map[string]any), subscription(n.Get("/v1/subscriptions/"+id))
			if fmt.Sprint(letter["attempts"]) != "3" || letter["error"] == "" || sub["deadLetters"] != "1" {
				t.Errorf("%s: dead letter %v of %v", id, letter, sub)
			}
			if got := n.Metric("runlog_subscription_dead_letters"); got < 1 {
				t.Errorf("the metric of the alert is %v", got)
			}
		}
		second := func(e map[string]any) string { return fmt.Sprint(e["subject"], e["runseq"]) }
		if got := pullAll(n, "on", 1, second); got[0] != "run2" {
			t.Errorf("after the dead letter comes %s", got)
		}
		if got := pull(n, "hold", `{"max":10,"wait":"0.2s"}`); len(got) != 0 || subscription(n.Get("/v1/subscriptions/hold"))["heldRuns"] != "1" {
			t.Errorf("a run with a dead letter goes on: %v", got)
		}
		n.Post("/v1/subscriptions/hold/deadLetters:discard", `{"which":{"runId":"run"},"reason":"not needed"}`)
		if got := pullAll(n, "hold", 1, second); got[0] != "run2" {
			t.Errorf("after the discarded letter comes %s", got)
		}
	})
}

// TestPulledCloudEventBUS7: a pulled event is a CloudEvent with the attributes that the rule names,
// and no others.
func TestPulledCloudEventBUS7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Subscribe("s")
		answer := n.Append("run", servertest.NewEvent("Noted", servertest.Step("a"), servertest.Payload(`{"n":1}`)))
		stored := n.List("run")[0]
		d := pull(n, "s", `{"wait":"30s"}`)[0]
		want := map[string]any{
			"specversion": "1.0", "id": "run/1", "eventid": stored.EventId, "type": "runlog.Noted", "source": "/runlog/" + n.Server.Internals().Cluster.Identity().ClusterID + "/tenant", "subject": "run",
			"time": stored.PersistedAt.AsTime().Format(time.RFC3339Nano), "runseq": "1", "tenant": "tenant", "position": answer.Position,
			"datacontenttype": "application/json", "data": map[string]any{"n": d.event["data"].(map[string]any)["n"]},
		}
		if fmt.Sprint(d.event) != fmt.Sprint(want) {
			t.Errorf("event\n%v, want\n%v", d.event, want)
		}
	})
}

// TestLagBUS9: how far a subscription is behind is in the answer and in the metrics, also while it
// is paused.
func TestLagBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Subscribe("s", func(r *runlogv1.CreateSubscriptionRequest) { r.Paused = true })
		n.Append("run", servertest.Steps("s", 5)...)
		lag := func() *runlogv1.SubscriptionLag {
			resp, err := n.Subscriptions().GetSubscription(n.Context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: "s"})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Subscription.Lag
		}
		bubble.Until(t, "the events are behind", func() bool { return lag().Events >= 5 && n.Metric("runlog_subscription_lag_events") >= 5 })
		if got := n.Metric("runlog_subscription_paused"); got != 1 {
			t.Errorf("the metric of a paused subscription is %v, want 1", got)
		}
		n.Post("/v1/subscriptions/s:resume", "{}")
		bubble.Until(t, "the oldest event has an age", func() bool { return lag().Seconds > 0 })
		if got := n.Metric("runlog_subscription_paused"); got != 0 {
			t.Errorf("the metric of a resumed subscription is %v, want 0", got)
		}
		if l := lag(); l.Events != 5 {
			t.Errorf("lag %v, want 5 events", l)
		}
		pullAll(n, "s", 5, func(map[string]any) string { return "" })
		bubble.Until(t, "nothing is behind", func() bool {
			l := lag()
			return l.Events == 0 && l.Seconds == 0 && n.Metric("runlog_subscription_lag_events") == 0 && n.Metric("runlog_subscription_acknowledged_total") == 5
		})
	})
}

// TestLabelsBUS2: a subscription to labels has the events of the runs that have all of them when
// the events are read, whether the tail or a catch-up reads them.
func TestLabelsBUS2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		wanted := func(r *runlogv1.CreateSubscriptionRequest) {
			r.Filter = &runlogv1.SubscriptionFilter{Labels: map[string]string{"team": "a", "tier": "1"}}
		}
		n.Subscribe("tail", wanted)
		for id, labels := range map[string]map[string]string{
			"both": {"team": "a", "tier": "1", "more": "x"}, "one": {"team": "a"}, "other": {"team": "b", "tier": "1"}, "none": nil,
		} {
			run := servertest.NewRun(id)
			run.Labels = labels
			if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: run}); err != nil {
				t.Fatal(err)
			}
			n.Append(id, servertest.NewEvent("Noted", servertest.Step("a")), servertest.NewEvent("Noted", servertest.Step("b")))
		}
		n.Subscribe("catch-up", wanted)
		for _, id := range []string{"tail", "catch-up"} {
			got := pullAll(n, id, 2, func(e map[string]any) string { return fmt.Sprint(e["subject"], e["runseq"]) })
			if rest := pull(n, id, `{"max":10,"wait":"0.1s"}`); fmt.Sprint(got) != "[both1 both2]" || len(rest) > 0 {
				t.Errorf("%s has %v and %v", id, got, rest)
			}
		}
	})
}

// TestNoMemoryForAnswerBUS4: an event that a node has no memory to answer with has not failed. It
// comes again at once, as the same attempt.
func TestNoMemoryForAnswerBUS4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MemoryBytes = server.MinMemoryBytes })
		n.Subscribe("s")
		const left = 48 << 10 // enough for the calls
		e := servertest.NewEvent("Noted")
		e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"text":"` + strings.Repeat("x", 60<<10) + `"}`)}
		n.Append("run", e)
		pull := func() (*runlogv1.PullResponse, error) {
			return n.Subscriptions().Pull(n.Context(), &runlogv1.PullRequest{SubscriptionId: "s", Wait: durationpb.New(5 * time.Second)})
		}
		memory := n.Server.Internals().Memory
		grant, err := memory.Acquire(budget.Shared, memory.Free(budget.Shared)-left)
		if err != nil {
			t.Fatal(err)
		}
		defer grant.Release()
		if _, err := pull(); servertest.ReasonIn(status.Convert(err)) != contract.ReasonOverloaded {
			t.Errorf("Pull: %v, want OVERLOADED", err)
		}
		if _, err := consume(t.Context(), n, t, "s", 1).stream.Recv(); servertest.ReasonIn(status.Convert(err)) != contract.ReasonOverloaded {
			t.Errorf("Consume: %v, want OVERLOADED", err)
		}
		grant.Release()
		resp, err := pull()
		if err != nil || len(resp.Deliveries) != 1 || resp.Deliveries[0].Attempt != 1 {
			t.Errorf("got %v, %v; want the event, as its first attempt", resp.GetDeliveries(), err)
		}
	})
}
