package subscriptions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestBadStartsBUS2: a place that is not in the log, or a time that lies ahead, is refused with the
// field that has it, for a new subscription and for a seek, over gRPC and HTTP. The cursor stays.
func TestBadStartsBUS2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.Steps("s", 3)...)
		n.Subscribe("s")
		beyond := n.Position(1 << 40)
		hour := time.Now().Add(time.Hour)
		type from = runlogv1.StartFrom
		at := func(t time.Time) *from { return &from{From: &runlogv1.StartFrom_Time{Time: timestamppb.New(t)}} }
		for name, x := range map[string]struct {
			from  *from
			text  string // over HTTP
			field string
		}{
			"beyond the log":    {&from{From: &runlogv1.StartFrom_Position{Position: beyond}}, `{"position":"` + beyond + `"}`, "position"},
			"no position":       {&from{From: &runlogv1.StartFrom_Position{Position: "7"}}, `{"position":"7"}`, "position"},
			"in an hour":        {at(hour), `{"time":"` + hour.UTC().Format(time.RFC3339) + `"}`, "time"},
			"in the year 3000":  {at(time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)), `{"time":"3000-01-01T00:00:00Z"}`, "time"},
			"in the year 9999":  {at(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)), `{"time":"9999-12-31T00:00:00Z"}`, "time"},
			"a time that is no": {&from{From: &runlogv1.StartFrom_Time{Time: &timestamppb.Timestamp{Nanos: -1}}}, "", "time"},
		} {
			bubble.Run(t, name, func(t testing.TB) {
				_, err := n.Subscriptions().SeekSubscription(n.Context(), &runlogv1.SeekSubscriptionRequest{SubscriptionId: "s", To: x.from})
				wantField(t, err, "to."+x.field)
				_, err = n.Subscriptions().CreateSubscription(n.Context(), &runlogv1.CreateSubscriptionRequest{SubscriptionId: "new", Start: x.from,
					Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}}})
				wantField(t, err, "start."+x.field)
				if x.text == "" {
					return
				}
				for target, body := range map[string]string{
					"/v1/subscriptions/s:seek": `{"to":` + x.text + `}`, "/v1/subscriptions": `{"subscriptionId":"new","delivery":{"pull":{}},"start":` + x.text + `}`,
				} {
					a := n.HTTP("POST", target, body)
					if a.Refused(t, contract.ReasonInvalidArgumentField); !strings.Contains(string(a.Body), "."+x.field+`"`) {
						t.Errorf("%s: %s", target, a.Body)
					}
				}
			})
		}
		n.HTTP("GET", "/v1/subscriptions/new", "").Refused(t, contract.ReasonSubscriptionNotFound)
		place := func(e map[string]any) string { return fmt.Sprint(e["subject"], e["runseq"]) }
		all := pullAll(n, "s", 3, place)
		if fmt.Sprint(all) != "[run1 run2 run3]" {
			t.Errorf("after refused seeks: %v", all)
		}
	})
}

// wantField requires that a call was refused because of one field.
func wantField(t testing.TB, err error, field string) {
	t.Helper()
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) {
		t.Errorf("%v; want a fault of %s", err, field)
	}
}

// TestSeekToTimesBUS2: a seek to a time has the events come again that were stored then or later:
// all, some or none.
func TestSeekToTimesBUS2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Subscribe("s", func(r *runlogv1.CreateSubscriptionRequest) {
			r.Filter = &runlogv1.SubscriptionFilter{Types: []string{"Noted"}}
		})
		var stamps []time.Time
		for i := range 3 {
			run := fmt.Sprint("run-", i)
			n.Append(run, servertest.NewEvent("Noted"))
			stamps = append(stamps, n.List(run)[0].PersistedAt.AsTime())
			time.Sleep(time.Millisecond)
		}
		place := func(e map[string]any) string { return fmt.Sprint(e["subject"]) }
		pullAll(n, "s", 3, place)
		ago := func(year int) func() time.Time {
			return func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
		}
		stamp := func(i int, after time.Duration) func() time.Time {
			return func() time.Time { return stamps[i].Add(after) }
		}
		for i, tt := range []struct {
			to   func() time.Time
			want int // of the three
		}{{ago(1950), 3}, {ago(1970), 3}, {stamp(0, 0), 3}, {stamp(1, 0), 2}, {stamp(1, 1), 1}, {stamp(2, 0), 1}, {time.Now, -6}} {
			to := tt.to().UTC().Format(time.RFC3339Nano)
			n.Post("/v1/subscriptions/s:seek", `{"to":{"time":"`+to+`"}}`)
			// Those of earlier rounds are due too.
			n.Append(fmt.Sprint("later-", i), servertest.NewEvent("Noted"))
			want := tt.want + i + 1
			if got := pullAll(n, "s", want, place); len(got) != want {
				t.Errorf("to %s: %v, want %d", to, got, want)
			}
		}
	})
}

// TestDeletedUnderWayBUS2: a subscription may be deleted while consumers have its events and wait
// for others. They hear of it, and another subscription of its name has nothing of it.
func TestDeletedUnderWayBUS2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Subscribe("s")
		n.Append("run", servertest.Steps("s", 2)...)
		ctx, cancel := context.WithTimeout(t.Context(), servertest.Patience)
		defer cancel()
		c := consume(ctx, n, t, "s", 10)
		list := c.recv()
		waiting := make(chan servertest.HTTPAnswer, 1)
		go func() { waiting <- n.HTTP("POST", "/v1/subscriptions/s:pull", `{"wait":"60s"}`) }()
		bubble.Until(t, "two consumers", func() bool {
			resp, err := n.Subscriptions().GetSubscription(n.Context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: "s"})
			return err == nil && resp.Subscription.Lag.Consumers == 2
		})
		n.HTTP("DELETE", "/v1/subscriptions/s", "").OK(t)
		servertest.Within(t, "the end of a pull", func() servertest.HTTPAnswer { return <-waiting }).Refused(t, contract.ReasonSubscriptionNotFound)
		if _, err := c.stream.Recv(); servertest.ReasonIn(status.Convert(err)) != contract.ReasonSubscriptionNotFound {
			t.Errorf("the consumer of a deleted subscription: %v", err)
		}
		n.HTTP("POST", "/v1/subscriptions/s:ack", `{"deliveryIds":["`+list[0].DeliveryId+`"]}`).Refused(t, contract.ReasonSubscriptionNotFound)
		n.Subscribe("s")
		if got := pull(n, "s", `{"wait":"30s"}`); len(got) != 1 || got[0].id != list[0].DeliveryId {
			t.Errorf("the new subscription has %v, want the first event", got)
		}
	})
}

// TestTooLargeForTheSinkBUS4: an event that is larger than the endpoint takes is parked after one
// attempt, and the later events of its run go on.
func TestTooLargeForTheSinkBUS4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		got := make(chan string, 100)
		hook := servertest.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<10))
			if err != nil {
				http.Error(w, "at most 8 KiB", http.StatusRequestEntityTooLarge)
				return
			}
			var e struct{ RunSeq string }
			_ = json.Unmarshal(body, &e)
			got <- e.RunSeq
		}))
		n.Subscribe("hook", func(r *runlogv1.CreateSubscriptionRequest) {
			r.Delivery = &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{Url: hook, AllowPrivate: true}}}
		})
		n.Append("run", servertest.NewEvent("Noted", servertest.Step("a")), servertest.NewEvent("Noted", servertest.Step("b"), servertest.Payload(`{"a":"`+strings.Repeat("x", 16<<10)+`"}`)), servertest.NewEvent("Noted", servertest.Step("c")))
		for _, want := range []string{"1", "3"} {
			servertest.WantEqual(t, "runSeq", servertest.Within(t, "an event", func() string { return <-got }), want)
		}
		bubble.Until(t, "the event is parked", func() bool {
			letters := n.Get("/v1/subscriptions/hook/deadLetters")["deadLetters"].([]any)
			if len(letters) == 0 {
				return false
			}
			l := letters[0].(map[string]any)
			if len(letters) != 1 || l["runSeq"] != "2" || fmt.Sprint(l["attempts"]) != "1" || !strings.Contains(fmt.Sprint(l["error"]), "413: at most 8 KiB") {
				t.Errorf("dead letters %v", letters)
			}
			return true
		})
	})
}
