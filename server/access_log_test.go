package server

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/testbed/bubble"
)

// decisions returns the access log of today, as an auditor reads it: decision, identity, method and
// reason of each call.
func (n *node) decisions(auditor string) (list []string) {
	n.t.Helper()
	run := rpc.AccessRuns + time.Now().UTC().Format(time.DateOnly)
	resp, err := n.events.ListEvents(n.bearing(auditor), &runlogv1.ListEventsRequest{RunId: run})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range resp.Events {
		if e.GetAppendedBy() != rpc.AccessIdentity.Name || e.TenantId != rpc.AccessTenant {
			n.t.Errorf("event %d is of tenant %s, by %q", e.RunSeq, e.TenantId, e.GetAppendedBy())
		}
		var d struct{ Identity, Address, Node, Method, Decision, Reason string }
		if err := json.Unmarshal(e.GetPayloadJson(), &d); err != nil || net.ParseIP(hostOf(d.Address)) == nil || d.Node == "" {
			n.t.Errorf("%s: %v", e.GetPayloadJson(), err)
		}
		list = append(list, fmt.Sprint(d.Decision, " ", d.Identity, " ", d.Method[strings.LastIndexByte(d.Method, '/')+1:], " ", d.Reason))
	}
	return list
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// TestAccessLogSEC7: administrative and refused calls are in a run of the day before they are
// answered, at a follower too. Only an admin of all tenants may write there.
func TestAccessLogSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		root, hash := auth.NewToken()
		all := startNodes(t, 3, func(_ int, o *Options) {
			o.Authenticate, o.AdminToken, o.CheckpointInterval, o.RefuseUnknownTypes = true, hash, time.Hour, true
		})
		n := all[(slices.Index(all, all.leader())+1)%len(all)]
		var auditor string
		bubble.Until(t, "the members have a secret", func() bool {
			resp, err := n.access().CreateToken(n.bearing(root), &runlogv1.CreateTokenRequest{
				Name: "auditor", Tenants: []string{rpc.AccessTenant}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER, runlogv1.Role_PRODUCER}})
			auditor = resp.GetToken()
			return err == nil
		})
		seen := len(n.decisions(auditor))
		want := func(what ...string) {
			t.Helper()
			got := n.decisions(auditor)
			if !slices.Equal(got[seen:], what) {
				t.Errorf("recorded %q, want %q", got[seen:], what)
			}
			seen = len(got)
		}
		_, err := n.access().ListTokens(n.bearing(root), &runlogv1.ListTokensRequest{})
		if err != nil {
			t.Fatal(err)
		}
		want("ALLOWED token:admin-token-file ListTokens ")
		_, err = n.access().ListTokens(n.bearing(auditor), &runlogv1.ListTokensRequest{})
		refused(t, err, contract.ReasonPermissionDenied)
		n.http("GET", "/v1/tokens", "", "Authorization", "Bearer rlk_wrong").refused(t, contract.ReasonUnauthenticated)
		if stream := n.http("GET", "/v1/runs:watch", "", "Authorization", "Bearer rlk_wrong"); !strings.Contains(string(stream.body), "UNAUTHENTICATED") {
			t.Errorf("a stream over HTTP: %s", stream.body)
		}
		want("DENIED token:auditor ListTokens PERMISSION_DENIED", "DENIED  ListTokens UNAUTHENTICATED", "DENIED  WatchRuns UNAUTHENTICATED")
		for run, e := range map[string]*runlogv1.EventWrite{"runlog.access/2030-01-01": newEvent("RunStarted"), "mine": newEvent("RunStarted")} {
			e.TenantId = rpc.AccessTenant
			_, err = n.events.AppendEvents(n.bearing(auditor), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{e}})
			refused(t, err, contract.ReasonPermissionDenied)
		}
		want("DENIED token:auditor AppendEvents PERMISSION_DENIED", "DENIED token:auditor AppendEvents PERMISSION_DENIED")
		// Events of another tenant.
		foreign := &runlogv1.AppendEventsRequest{RunId: "foreign", Events: []*runlogv1.EventWrite{newEvent("RunStarted")}}
		batch, err := n.events.BatchAppend(n.bearing(auditor), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{foreign}})
		if err != nil || codes.Code(batch.Outcomes[0].Status.GetCode()) != codes.PermissionDenied {
			t.Fatalf("%v, %v", batch, err)
		}
		leader := all.leader()
		stream, err := leader.events.AppendStream(leader.bearing(auditor))
		if err == nil {
			err = stream.Send(foreign)
		}
		var answer *runlogv1.AppendStreamResponse
		if err == nil {
			answer, err = stream.Recv()
		}
		if err != nil || codes.Code(answer.Status.GetCode()) != codes.PermissionDenied {
			t.Fatalf("%v, %v", answer, err)
		}
		want("DENIED token:auditor BatchAppend PERMISSION_DENIED", "DENIED token:auditor AppendStream PERMISSION_DENIED")
		if _, err := n.access().WhoAmI(n.bearing(auditor), &runlogv1.WhoAmIRequest{}); err != nil {
			t.Fatal(err)
		}
		want() // Calls of every day are not recorded.
	})
}

// TestAccessLogNamesSubscriptionsSEC7: the access log says which subscription a call was about, and
// what decides which events it gets: a filter, a beginning, a seek.
func TestAccessLogNamesSubscriptionsSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := startNode(t, func(o *Options) { root = secured(o) })
		auditor := n.token(root, "auditor", []string{rpc.AccessTenant}, runlogv1.Role_READER)
		ctx, subs := n.bearing(n.token(root, "ops", []string{"acme"}, runlogv1.Role_OPERATOR)), n.subscriptions()
		filter := &runlogv1.SubscriptionFilter{Types: []string{"StepFailed"}}
		_, err := subs.CreateSubscription(ctx, &runlogv1.CreateSubscriptionRequest{
			SubscriptionId: "planner", Filter: &runlogv1.SubscriptionFilter{TenantId: "acme"},
			Start:    &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
			Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}}})
		if err == nil {
			_, err = subs.UpdateSubscription(ctx, &runlogv1.UpdateSubscriptionRequest{SubscriptionId: "planner", Filter: filter})
		}
		if err == nil {
			_, err = subs.PauseSubscription(ctx, &runlogv1.PauseSubscriptionRequest{SubscriptionId: "planner", TenantId: "acme"})
		}
		if err == nil {
			_, err = subs.SeekSubscription(ctx, &runlogv1.SeekSubscriptionRequest{SubscriptionId: "planner", To: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Now{Now: true}}})
		}
		if err == nil {
			_, err = subs.ResumeSubscription(ctx, &runlogv1.ResumeSubscriptionRequest{SubscriptionId: "planner"})
		}
		if err == nil {
			_, err = subs.DeleteSubscription(ctx, &runlogv1.DeleteSubscriptionRequest{SubscriptionId: "planner"})
		}
		if err != nil {
			t.Fatal(err)
		}
		got := n.requests(auditor, "SubscriptionService/")
		want := []string{
			`CreateSubscription map[filter:{"tenantId":"acme"} start:{"beginning":true} subscriptionId:planner]`,
			`UpdateSubscription map[filter:{"types":["StepFailed"]} subscriptionId:planner]`,
			`PauseSubscription map[subscriptionId:planner tenantId:acme]`,
			`SeekSubscription map[subscriptionId:planner to:{"now":true}]`,
			`ResumeSubscription map[subscriptionId:planner]`,
			`DeleteSubscription map[subscriptionId:planner]`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("recorded %q, want %q", got, want)
		}
	})
}

// requests returns the calls of a service that the access log of today has, with their requests.
func (n *node) requests(auditor, service string) (list []string) {
	n.t.Helper()
	run := rpc.AccessRuns + time.Now().UTC().Format(time.DateOnly)
	resp, err := n.events.ListEvents(n.bearing(auditor), &runlogv1.ListEventsRequest{RunId: run})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range resp.Events {
		var d struct {
			Method  string
			Request map[string]string
		}
		if err := json.Unmarshal(e.GetPayloadJson(), &d); err != nil {
			n.t.Fatal(err)
		}
		if _, verb, ok := strings.Cut(d.Method, service); ok {
			list = append(list, fmt.Sprint(verb, " ", d.Request))
		}
	}
	return list
}

// TestAccessLogNamesQueuesSEC7: the access log says which queue a call was about, and what the call
// has set.
func TestAccessLogNamesQueuesSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := startNode(t, func(o *Options) { root = secured(o) })
		auditor := n.token(root, "auditor", []string{rpc.AccessTenant}, runlogv1.Role_READER)
		ctx, queues := n.bearing(n.token(root, "ops", []string{"acme"}, runlogv1.Role_OPERATOR)), n.queues()
		_, err := queues.PutQueue(ctx, &runlogv1.PutQueueRequest{
			TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: "nightly", Settings: &runlogv1.QueueSettings{MaxRunning: new(uint64(3))},
		})
		if err == nil {
			_, err = queues.PauseQueue(ctx, &runlogv1.PauseQueueRequest{TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: "nightly"})
		}
		if err == nil {
			_, err = queues.ResumeQueue(ctx, &runlogv1.ResumeQueueRequest{TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: "nightly"})
		}
		if err != nil {
			t.Fatal(err)
		}
		got, want := n.requests(auditor, "QueueService/"), []string{
			`PutQueue map[environmentId:prod projectId:shop queue:nightly settings:{"maxRunning":"3"} tenantId:acme]`,
			`PauseQueue map[environmentId:prod projectId:shop queue:nightly tenantId:acme]`,
			`ResumeQueue map[environmentId:prod projectId:shop queue:nightly tenantId:acme]`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("recorded %q, want %q", got, want)
		}
	})
}

// TestAccessLogHasImportsSEC7: a change by the admin listener is recorded too.
func TestAccessLogHasImportsSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := startNode(t, func(o *Options) { root = secured(o) })
		auditor := n.token(root, "auditor", []string{rpc.AccessTenant}, runlogv1.Role_READER)
		for _, path := range []string{"/import", "/projection/rebuild"} {
			resp, err := n.httpClient().Post("http://"+n.server.Addresses().Admin+path, "text/plain", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		got := n.decisions(auditor)
		if want := []string{"ALLOWED admin-listener import ", "ALLOWED admin-listener rebuild "}; !slices.Equal(got[len(got)-2:], want) {
			t.Errorf("recorded %q", got)
		}
	})
}

// TestAccessLogGoneSEC7: an administrative call that cannot be recorded is not made.
func TestAccessLogGoneSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		root, hash := auth.NewToken()
		all := startNodes(t, 3, func(_ int, o *Options) {
			o.Authenticate, o.AdminToken, o.CheckpointInterval = true, hash, time.Hour
		})
		n := all[0]
		list := func() error {
			_, err := n.access().ListTokens(n.bearing(root), &runlogv1.ListTokensRequest{})
			return err
		}
		bubble.Until(t, "the members have a secret", func() bool { return list() == nil })
		all[1].close()
		all[2].close()
		bubble.Until(t, "the call is refused", func() bool {
			err := list()
			return err != nil && refusalOf(t, err).reason == contract.ReasonNoLeader
		})
	})
}

// TestAccessLogOfSmallPayloadsSEC7: the limit of payloads is for the events of callers, not for
// those that a node writes itself: with a small one, administrative calls are still recorded and
// made.
func TestAccessLogOfSmallPayloadsSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := startNode(t, func(o *Options) { root, o.MaxPayloadBytes = secured(o), 10 })
		auditor := n.token(root, "auditor", []string{rpc.AccessTenant, "tenant"}, runlogv1.Role_READER, runlogv1.Role_PRODUCER)
		got := n.decisions(auditor)
		if want := "ALLOWED token:admin-token-file CreateToken "; len(got) == 0 || got[len(got)-1] != want {
			t.Errorf("recorded %q", got)
		}
		large := []*runlogv1.EventWrite{newEvent("Noted", step("s"), payload(`{"pad":"xx"}`))}
		_, err := n.events.AppendEvents(n.bearing(auditor), &runlogv1.AppendEventsRequest{RunId: "run", Events: large})
		refused(t, err, contract.ReasonPayloadTooLarge)
	})
}
