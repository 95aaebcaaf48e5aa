package server

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
	"runlog/server/budget"
	"runlog/testbed/bubble"
)

// pullAll pulls and acknowledges events, until there are as many as wanted, and returns what keep
// makes of each CloudEvent.
func (n *node) pullAll(id string, want int, keep func(e map[string]any) string) (list []string) {
	n.t.Helper()
	for len(list) < want {
		got := n.pull(id, `{"max":100,"wait":"30s"}`)
		if len(got) == 0 {
			n.t.Fatalf("%d events, want %d: %v", len(list), want, list)
		}
		var ids []string
		for _, d := range got {
			list, ids = append(list, keep(d.event)), append(ids, `"`+d.id+`"`)
		}
		n.post("/v1/subscriptions/"+id+":ack", `{"deliveryIds":[`+strings.Join(ids, ",")+`]}`)
	}
	return list
}

// TestEveryStoredEventIsDueBUS1: whatever way an event is stored, each subscription that matches
// has it once, and no refused or repeated one.
func TestEveryStoredEventIsDueBUS1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.subscribe("all")
		n.subscribe("noted", func(r *runlogv1.CreateSubscriptionRequest) {
			r.Filter = &runlogv1.SubscriptionFilter{Types: []string{"Noted"}}
		})
		n.append("a", steps("s", 3)...)
		n.append("a", steps("s", 3)...) // repeated
		if _, err := n.tryAppend("a", newEvent("StepStarted")); err == nil {
			t.Fatal("an event without its step is stored")
		}
		_, err := n.events.BatchAppend(n.context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{
			{RunId: "b", Events: steps("s", 1)}, {RunId: "c", Events: steps("s", 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := n.events.AppendStream(n.context())
		if err == nil {
			err = stream.Send(&runlogv1.AppendEventsRequest{RunId: "d", Events: steps("s", 1)})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.queues().RequestRun(n.context(), runRequest("r", named("e"))); err != nil {
			t.Fatal(err)
		}
		place := func(e map[string]any) string { return fmt.Sprint(e["subject"], e["runseq"], " ", e["type"]) }
		noted := []string{"a1 runlog.Noted", "a2 runlog.Noted", "a3 runlog.Noted", "b1 runlog.Noted", "c1 runlog.Noted", "d1 runlog.Noted"}
		for id, want := range map[string][]string{"all": append(slices.Clone(noted), "e1 runlog.RunQueued"), "noted": noted} {
			got := n.pullAll(id, len(want), place)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s has %q, want %q", id, got, want)
			}
			if rest := n.pull(id, `{"max":10}`); len(rest) != 0 {
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
		n := startNode(t)
		for id, choice := range map[string]runlogv1.OnDeadLetter_Value{"on": runlogv1.OnDeadLetter_CONTINUE, "hold": runlogv1.OnDeadLetter_HOLD_RUN} {
			n.subscribe(id, func(r *runlogv1.CreateSubscriptionRequest) {
				r.Retry = &runlogv1.Retry{Initial: durationpb.New(time.Millisecond), Max: durationpb.New(time.Millisecond), MaxAttempts: 3}
				r.OnDeadLetter = choice
			})
		}
		n.append("run", steps("s", 2)...)
		n.append("other", steps("s", 1)...)
		for _, id := range []string{"on", "hold"} {
			// The other run does not wait.
			var seen []string
			for attempts := 0; attempts < 3 || !slices.Contains(seen, "other1"); {
				for _, d := range n.pull(id, `{"max":10,"wait":"30s"}`) {
					verb := ":ack"
					if d.event["subject"] == "run" && d.event["runseq"] == "1" {
						verb = ":nack"
						attempts++
					}
					seen = append(seen, fmt.Sprint(d.event["subject"], d.event["runseq"]))
					n.post("/v1/subscriptions/"+id+verb, `{"deliveryIds":["`+d.id+`"]}`)
				}
			}
			var letters []any
			bubble.Until(t, "the event is parked", func() bool {
				letters = n.get("/v1/subscriptions/" + id + "/deadLetters")["deadLetters"].([]any)
				return len(letters) == 1
			})
			letter, sub := letters[0].(map[string]any), subscription(n.get("/v1/subscriptions/"+id))
			if fmt.Sprint(letter["attempts"]) != "3" || letter["error"] == "" || sub["deadLetters"] != "1" {
				t.Errorf("%s: dead letter %v of %v", id, letter, sub)
			}
			if got := n.metric("runlog_subscription_dead_letters"); got < 1 {
				t.Errorf("the metric of the alert is %v", got)
			}
		}
		second := func(e map[string]any) string { return fmt.Sprint(e["subject"], e["runseq"]) }
		if got := n.pullAll("on", 1, second); got[0] != "run2" {
			t.Errorf("after the dead letter comes %s", got)
		}
		if got := n.pull("hold", `{"max":10,"wait":"0.2s"}`); len(got) != 0 || subscription(n.get("/v1/subscriptions/hold"))["heldRuns"] != "1" {
			t.Errorf("a run with a dead letter goes on: %v", got)
		}
		n.post("/v1/subscriptions/hold/deadLetters:discard", `{"which":{"runId":"run"},"reason":"not needed"}`)
		if got := n.pullAll("hold", 1, second); got[0] != "run2" {
			t.Errorf("after the discarded letter comes %s", got)
		}
	})
}

// TestPulledCloudEventBUS7: a pulled event is a CloudEvent with the attributes that the rule names,
// and no others.
func TestPulledCloudEventBUS7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.subscribe("s")
		answer := n.append("run", newEvent("Noted", step("a"), payload(`{"n":1}`)))
		stored := n.list("run")[0]
		d := n.pull("s", `{"wait":"30s"}`)[0]
		want := map[string]any{
			"specversion": "1.0", "id": stored.EventId, "type": "runlog.Noted", "source": "/runlog/" + n.server.cluster.Identity().ClusterID + "/tenant", "subject": "run",
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
		n := startNode(t)
		n.subscribe("s", func(r *runlogv1.CreateSubscriptionRequest) { r.Paused = true })
		n.append("run", steps("s", 5)...)
		lag := func() *runlogv1.SubscriptionLag {
			resp, err := n.subscriptions().GetSubscription(n.context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: "s"})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Subscription.Lag
		}
		bubble.Until(t, "the events are behind", func() bool { return lag().Events >= 5 && n.metric("runlog_subscription_lag_events") >= 5 })
		if got := n.metric("runlog_subscription_paused"); got != 1 {
			t.Errorf("the metric of a paused subscription is %v, want 1", got)
		}
		n.post("/v1/subscriptions/s:resume", "{}")
		bubble.Until(t, "the oldest event has an age", func() bool { return lag().Seconds > 0 })
		if got := n.metric("runlog_subscription_paused"); got != 0 {
			t.Errorf("the metric of a resumed subscription is %v, want 0", got)
		}
		if l := lag(); l.Events != 5 {
			t.Errorf("lag %v, want 5 events", l)
		}
		n.pullAll("s", 5, func(map[string]any) string { return "" })
		bubble.Until(t, "nothing is behind", func() bool {
			l := lag()
			return l.Events == 0 && l.Seconds == 0 && n.metric("runlog_subscription_lag_events") == 0 && n.metric("runlog_subscription_acknowledged_total") == 5
		})
	})
}

// TestLabelsBUS2: a subscription to labels has the events of the runs that have all of them when
// the events are read, whether the tail or a catch-up reads them.
func TestLabelsBUS2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		wanted := func(r *runlogv1.CreateSubscriptionRequest) {
			r.Filter = &runlogv1.SubscriptionFilter{Labels: map[string]string{"team": "a", "tier": "1"}}
		}
		n.subscribe("tail", wanted)
		for id, labels := range map[string]map[string]string{
			"both": {"team": "a", "tier": "1", "more": "x"}, "one": {"team": "a"}, "other": {"team": "b", "tier": "1"}, "none": nil,
		} {
			run := newRun(id)
			run.Labels = labels
			if _, err := n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: run}); err != nil {
				t.Fatal(err)
			}
			n.append(id, newEvent("Noted", step("a")), newEvent("Noted", step("b")))
		}
		n.subscribe("catch-up", wanted)
		for _, id := range []string{"tail", "catch-up"} {
			got := n.pullAll(id, 2, func(e map[string]any) string { return fmt.Sprint(e["subject"], e["runseq"]) })
			if rest := n.pull(id, `{"max":10,"wait":"0.1s"}`); fmt.Sprint(got) != "[both1 both2]" || len(rest) > 0 {
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
		n := startNode(t, func(o *Options) { o.MemoryBytes = MinMemoryBytes })
		n.subscribe("s")
		const left = 48 << 10 // enough for the calls
		e := newEvent("Noted")
		e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"text":"` + strings.Repeat("x", 60<<10) + `"}`)}
		n.append("run", e)
		pull := func() (*runlogv1.PullResponse, error) {
			return n.subscriptions().Pull(n.context(), &runlogv1.PullRequest{SubscriptionId: "s", Wait: durationpb.New(5 * time.Second)})
		}
		memory := n.server.memory
		grant, err := memory.Acquire(budget.Shared, memory.Free(budget.Shared)-left)
		if err != nil {
			t.Fatal(err)
		}
		defer grant.Release()
		if _, err := pull(); reasonIn(status.Convert(err)) != contract.ReasonOverloaded {
			t.Errorf("Pull: %v, want OVERLOADED", err)
		}
		if _, err := n.consume(t.Context(), t, "s", 1).stream.Recv(); reasonIn(status.Convert(err)) != contract.ReasonOverloaded {
			t.Errorf("Consume: %v, want OVERLOADED", err)
		}
		grant.Release()
		resp, err := pull()
		if err != nil || len(resp.Deliveries) != 1 || resp.Deliveries[0].Attempt != 1 {
			t.Errorf("got %v, %v; want the event, as its first attempt", resp.GetDeliveries(), err)
		}
	})
}
