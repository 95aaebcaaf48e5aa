package subscriptions_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// subscription is that of an answer over HTTP.
func subscription(answer map[string]any) map[string]any {
	s, _ := answer["subscription"].(map[string]any)
	return s
}

// pulled is a delivery over HTTP.
type pulled struct {
	id    string
	event map[string]any
}

// pull takes deliveries over HTTP.
func pull(n *servertest.Node, id, body string) (list []pulled) {
	n.T.Helper()
	for _, d := range n.Post("/v1/subscriptions/"+id+":pull", body)["deliveries"].([]any) {
		m := d.(map[string]any)
		list = append(list, pulled{m["deliveryId"].(string), m["event"].(map[string]any)})
	}
	return list
}

// TestSubscriptionsOverHTTPBUS2: every route of SubscriptionService but those of deliveries, with
// the names that the API fixes.
func TestSubscriptionsOverHTTPBUS2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		create := `{"subscriptionId":"planner","filter":{"tenantId":"acme","types":["Noted"],"labels":{"team":"a"}},"start":{"beginning":true},
		"delivery":{"pull":{"ackTimeout":"60s"}},"retry":{"initial":"0.5s","maxAttempts":3},"onDeadLetter":"HOLD_RUN"}`
		for _, idempotent := range []any{false, true} {
			got := n.Post("/v1/subscriptions", create)
			s := subscription(got)
			retry := s["retry"].(map[string]any)
			if got["idempotent"] != idempotent || s["subscriptionId"] != "planner" || fmt.Sprint(s["maxInFlight"]) != "1000" ||
				retry["initial"] != "0.500s" || retry["max"] != "300s" || s["onDeadLetter"] != "HOLD_RUN" || s["createdAt"] == nil {
				t.Errorf("created %v", got)
			}
		}
		n.HTTP("POST", "/v1/subscriptions", strings.Replace(create, "HOLD_RUN", "CONTINUE", 1)).Refused(t, contract.ReasonSubscriptionConflict)
		n.HTTP("POST", "/v1/subscriptions", `{"subscriptionId":"a b","maxInFlight":20000}`).Refused(t, contract.ReasonInvalidArgumentField)
		const one, tenant = "/v1/subscriptions/planner", "?tenantId=acme"
		if s := subscription(n.Get(one + tenant)); s["position"] == nil || s["lag"].(map[string]any)["events"] == nil {
			t.Errorf("shown %v", s)
		}
		if got := n.Get("/v1/subscriptions" + tenant)["subscriptions"].([]any); len(got) != 1 {
			t.Errorf("listed %v", got)
		}
		if s := subscription(n.HTTP("PATCH", one, `{"tenantId":"acme","maxInFlight":7}`).OK(t)); fmt.Sprint(s["maxInFlight"]) != "7" || s["onDeadLetter"] != "HOLD_RUN" {
			t.Errorf("updated %v", s)
		}
		for _, verb := range []string{"pause", "resume"} {
			if s := subscription(n.Post(one+":"+verb, `{"tenantId":"acme"}`)); s["paused"] != (verb == "pause") {
				t.Errorf("%s: %v", verb, s)
			}
		}
		for _, to := range []string{`{"now":true}`, `{"beginning":true}`, `{"time":"1999-01-01T00:00:00Z"}`} {
			n.Post(one+":seek", `{"tenantId":"acme","to":`+to+`}`)
		}
		n.HTTP("POST", one+":seek", `{"tenantId":"acme"}`).Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP("DELETE", one, "{}").Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP("DELETE", one+"?tenant=acme", "").Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP("DELETE", one+tenant, "").OK(t)
		n.HTTP("DELETE", one+tenant, "").Refused(t, contract.ReasonSubscriptionNotFound)
		if got := n.HTTP("PUT", one, "{}"); got.Code != http.StatusMethodNotAllowed || got.Header.Get("Allow") != "GET, PATCH, DELETE, HEAD" {
			t.Errorf("HTTP %d, allow %q", got.Code, got.Header.Get("Allow"))
		}
	})
}

// TestDeliveriesOverHTTPBUS8: deliveries are pulled, acknowledged and refused. Parked events are
// listed, redriven and discarded (BUS-5).
func TestDeliveriesOverHTTPBUS8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Post("/v1/subscriptions", `{"subscriptionId":"s","start":{"beginning":true},"delivery":{"pull":{}},"retry":{"maxAttempts":1}}`)
		n.Append("run", servertest.NewEvent("Noted", servertest.Step("a"), servertest.Payload(`{"big":9007199254740991}`)))
		n.Append("run", servertest.NewEvent("Noted", servertest.Step("b")))
		list := pull(n, "s", `{"max":10,"wait":"30s"}`)
		if len(list) != 1 {
			t.Fatalf("deliveries %v, want the first event of the run alone", list)
		}
		e := list[0].event
		if e["specversion"] != "1.0" || e["type"] != "runlog.Noted" || e["subject"] != "run" || e["runseq"] != "1" || e["tenant"] != "tenant" ||
			e["id"] == "" || fmt.Sprint(e["data"].(map[string]any)["big"]) != "9007199254740991" {
			t.Errorf("event %v", e)
		}
		ids := func(d pulled) string { return `{"deliveryIds":["` + d.id + `"]}` }
		for _, want := range []string{"1", "0"} {
			if got := n.Post("/v1/subscriptions/s:ack", ids(list[0])); fmt.Sprint(got["acknowledged"]) != want {
				t.Errorf("acknowledged %v, want %s", got, want)
			}
		}
		list = pull(n, "s", `{"wait":"30s"}`)
		if len(list) != 1 || list[0].event["runseq"] != "2" {
			t.Fatalf("deliveries %v", list)
		}
		if got := n.Post("/v1/subscriptions/s:nack", ids(list[0])); fmt.Sprint(got["refused"]) != "1" {
			t.Errorf("refused %v", got)
		}
		letters := func() []any { return n.Get("/v1/subscriptions/s/deadLetters")["deadLetters"].([]any) }
		bubble.Until(t, "the event is parked", func() bool { return len(letters()) == 1 })
		letter := letters()[0].(map[string]any)
		if letter["runId"] != "run" || letter["runSeq"] != "2" || letter["deliveryId"] != list[0].id || letter["error"] == "" || letter["redriving"] != false {
			t.Errorf("dead letter %v", letter)
		}
		const redrive, discard = "/v1/subscriptions/s/deadLetters:redrive", "/v1/subscriptions/s/deadLetters:discard"
		if got := n.Post(redrive, `{"which":{"runId":"run"}}`); fmt.Sprint(got["redriven"]) != "1" {
			t.Errorf("redriven %v", got)
		}
		list = pull(n, "s", `{"wait":"30s"}`)
		if len(list) != 1 || list[0].event["runseq"] != "2" {
			t.Fatalf("redriven deliveries %v", list)
		}
		n.Post("/v1/subscriptions/s:nack", ids(list[0]))
		bubble.Until(t, "the event is parked again", func() bool {
			l := letters()
			return len(l) == 1 && l[0].(map[string]any)["redriving"] == false
		})
		n.HTTP("POST", discard, `{"which":{"all":true}}`).Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP("POST", discard, `{"which":{"deliveryIds":["`+otherID(n, list[0].id)+`"]},"reason":"x"}`).Refused(t, contract.ReasonDeadLetterNotFound)
		if got := n.Post(discard, `{"which":{"all":true},"reason":"the plan is gone"}`); fmt.Sprint(got["discarded"]) != "1" || len(letters()) != 0 {
			t.Errorf("discarded %v", got)
		}
		n.HTTP("POST", "/v1/subscriptions/none:pull", "{}").Refused(t, contract.ReasonSubscriptionNotFound)
	})
}

// otherID is the delivery id of an event that the run "run" does not have.
func otherID(n *servertest.Node, id string) string {
	n.T.Helper()
	n.Append("other", servertest.NewEvent("Noted", servertest.Step("a")))
	list := pull(n, "s", `{"wait":"30s"}`)
	if len(list) != 1 || list[0].id == id {
		n.T.Fatalf("deliveries %v", list)
	}
	return list[0].id
}

// TestSubscriptionTenantsSEC4: a subscription of a foreign tenant gets the answer of one that does
// not exist, byte for byte, and the events of a tenant reach its callers alone.
func TestSubscriptionTenantsSEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		roles := []runlogv1.Role_Value{runlogv1.Role_READER, runlogv1.Role_OPERATOR, runlogv1.Role_PRODUCER}
		acme, beta, both := n.Token(root, "acme", []string{"acme"}, roles...), n.Token(root, "beta", []string{"beta"}, roles...), n.Token(root, "both", []string{"acme", "beta"}, roles...)
		all := n.Token(root, "all", []string{"*"}, roles...)
		call := func(token, method, target, body string) servertest.HTTPAnswer {
			return n.HTTP(method, target, body, "Authorization", "Bearer "+token)
		}
		const pull = `,"start":{"beginning":true},"delivery":{"pull":{}}`
		answers := func() (list []servertest.HTTPAnswer) {
			for _, named := range []string{"", "acme"} {
				query, body := "?tenantId="+url.QueryEscape(named), `"tenantId":"`+named+`"`
				const one = "/v1/subscriptions/s"
				list = append(list, call(beta, "GET", one+query, ""), call(beta, "DELETE", one+query, ""), call(beta, "GET", one+"/deadLetters"+query, ""),
					call(beta, "PATCH", one, "{"+body+"}"), call(beta, "POST", one+":seek", "{"+body+`,"to":{"now":true}}`))
				for _, verb := range []string{":pause", ":resume", ":pull"} {
					list = append(list, call(beta, "POST", one+verb, "{"+body+"}"))
				}
				ids := `,"deliveryIds":["` + n.Incarnation().String() + `-1-of-acme"]`
				list = append(list, call(beta, "POST", one+":ack", "{"+body+ids+"}"), call(beta, "POST", one+":nack", "{"+body+ids+"}"),
					call(beta, "POST", one+"/deadLetters:redrive", "{"+body+`,"which":{"all":true}}`),
					call(beta, "POST", one+"/deadLetters:discard", "{"+body+`,"which":{"all":true},"reason":"x"}`))
			}
			return append(list, call(beta, "GET", "/v1/subscriptions?tenantId=acme", ""), call(beta, "GET", "/v1/subscriptions", ""))
		}
		before := answers()
		call(acme, "POST", "/v1/subscriptions", `{"subscriptionId":"s"`+pull+"}").OK(t)
		call(all, "POST", "/v1/subscriptions", `{"subscriptionId":"s"`+pull+"}").OK(t)
		for i, a := range answers() {
			if a.Code != before[i].Code || !bytes.Equal(a.Body, before[i].Body) {
				t.Errorf("call %d: %s without the subscription, %s with it", i, before[i].Body, a.Body)
			}
		}
		call(beta, "POST", "/v1/subscriptions", `{"subscriptionId":"s","filter":{"tenantId":"acme"}`+pull+"}").Refused(t, contract.ReasonPermissionDenied)
		call(beta, "POST", "/v1/subscriptions", `{"subscriptionId":"s"`+pull+"}").OK(t)
		call(both, "POST", "/v1/subscriptions", `{"subscriptionId":"s"`+pull+"}").Refused(t, contract.ReasonInvalidArgumentField)
		call(both, "GET", "/v1/subscriptions/s", "").Refused(t, contract.ReasonInvalidArgumentField)
		for token, want := range map[string]int{acme: 1, beta: 1, both: 2, all: 3} {
			if got := call(token, "GET", "/v1/subscriptions", "").OK(t)["subscriptions"].([]any); len(got) != want {
				t.Errorf("listed %v, want %d", got, want)
			}
		}
		for _, tenant := range []string{"acme", "beta"} {
			e := servertest.NewEvent("Noted", servertest.Step(tenant))
			e.TenantId = tenant
			if _, err := n.Events.AppendEvents(n.Bearing(all), &runlogv1.AppendEventsRequest{RunId: "of-" + tenant, Events: []*runlogv1.EventWrite{e}}); err != nil {
				t.Fatal(err)
			}
		}
		got := call(beta, "POST", "/v1/subscriptions/s:pull", `{"max":10,"wait":"30s"}`)
		if text := string(got.Body); got.Code != http.StatusOK || !strings.Contains(text, `"of-beta"`) || strings.Contains(text, "acme") {
			t.Errorf("pulled %s", text)
		}
		stream, err := n.Subscriptions().Consume(n.Bearing(beta))
		if err == nil {
			err = stream.Send(&runlogv1.ConsumeRequest{Credits: 1, Kind: &runlogv1.ConsumeRequest_Open{Open: &runlogv1.OpenConsume{SubscriptionId: "s", TenantId: "acme"}}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.NotFound {
			t.Errorf("a foreign subscription is consumed: %v", err)
		}
	})
}

// TestDeadLettersAreRecordedBUS5: the access log has the caller that has redriven or discarded dead
// letters, which ones, and why.
func TestDeadLettersAreRecordedBUS5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		operator := n.Token(root, "operator", []string{"acme"}, runlogv1.Role_OPERATOR)
		auditor := n.Token(root, "auditor", []string{rpc.AccessTenant}, runlogv1.Role_READER)
		header := []string{"Authorization", "Bearer " + operator}
		n.HTTP("POST", "/v1/subscriptions", `{"subscriptionId":"s","delivery":{"pull":{}}}`, header...).OK(t)
		n.HTTP("POST", "/v1/subscriptions/s/deadLetters:redrive", `{"which":{"runId":"run"}}`, header...).OK(t)
		n.HTTP("POST", "/v1/subscriptions/s/deadLetters:discard", `{"tenantId":"acme","which":{"all":true},"reason":"the plan is gone"}`, header...).OK(t)
		list, err := n.Events.ListEvents(n.Bearing(auditor), &runlogv1.ListEventsRequest{RunId: rpc.AccessRuns + time.Now().UTC().Format(time.DateOnly)})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range list.Events {
			if text := string(e.GetPayloadJson()); strings.Contains(text, "DeadLetters") {
				_, request, _ := strings.Cut(text, `"request":`)
				got = append(got, request)
			}
		}
		want := []string{
			`{"subscriptionId":"s","which":"{\"runId\":\"run\"}"}}`,
			`{"reason":"the plan is gone","subscriptionId":"s","tenantId":"acme","which":"{\"all\":true}"}}`,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("recorded %q, want %q", got, want)
		}
	})
}

// TestPullKeepsPayloadsENV8BUS7: an event that is pulled over HTTP has its payload as it was
// stored, also numbers that a double cannot hold.
func TestPullKeepsPayloadsENV8BUS7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Post("/v1/subscriptions", `{"subscriptionId":"s","start":{"beginning":true},"delivery":{"pull":{}}}`)
		const payload = `{"eventJson":"","large":9007199254740993,"small":1e-400,"text":"<é>"}`
		n.Post("/v1/runs/run/events:append", `{"events":[{`+servertest.EnvelopeJSON+`,"payload":`+payload+`}]}`)
		answer := n.HTTP("POST", "/v1/subscriptions/s:pull", `{"wait":"30s"}`)
		if deliveries := answer.OK(t)["deliveries"].([]any); len(deliveries) != 1 || !strings.Contains(string(answer.Body), `"data":`+payload) {
			t.Errorf("the event is %s", answer.Body)
		}
	})
}
