package access_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// decisions returns the access log of today, as an auditor reads it: decision, identity, method and
// reason of each call.
func decisions(n *servertest.Node, auditor string) (list []string) {
	n.T.Helper()
	run := rpc.AccessRuns + time.Now().UTC().Format(time.DateOnly)
	resp, err := n.Events.ListEvents(n.Bearing(auditor), &runlogv1.ListEventsRequest{RunId: run})
	if err != nil {
		n.T.Fatal(err)
	}
	for _, e := range resp.Events {
		if e.GetAppendedBy() != rpc.AccessIdentity.Name || e.TenantId != rpc.AccessTenant {
			n.T.Errorf("event %d is of tenant %s, by %q", e.RunSeq, e.TenantId, e.GetAppendedBy())
		}
		var d struct{ Identity, Address, Node, Method, Decision, Reason string }
		if err := json.Unmarshal(e.GetPayloadJson(), &d); err != nil || net.ParseIP(cmp.Or(servertest.HostOf(d.Address), d.Address)) == nil || d.Node == "" {
			n.T.Errorf("%s: %v", e.GetPayloadJson(), err)
		}
		list = append(list, fmt.Sprint(d.Decision, " ", d.Identity, " ", d.Method[strings.LastIndexByte(d.Method, '/')+1:], " ", d.Reason))
	}
	return list
}

// TestAccessLogSEC7: administrative and refused calls are in a run of the day before they are
// answered, at a follower too, and those of callers without an identity a minute later (SEC-11).
// Only an admin of all tenants may write there. A status is not recorded.
func TestAccessLogSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		root, hash := auth.NewToken()
		all := servertest.StartNodes(t, 3, func(_ int, o *server.Options) {
			o.Authenticate, o.AdminToken, o.CheckpointInterval, o.RefuseUnknownTypes = true, hash, time.Hour, true
		})
		n := all[(slices.Index(all, all.Leader())+1)%len(all)]
		var auditor string
		bubble.Until(t, "the members have a secret", func() bool {
			resp, err := n.Access().CreateToken(n.Bearing(root), &runlogv1.CreateTokenRequest{
				Name: "auditor", Tenants: []string{rpc.AccessTenant}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER, runlogv1.Role_PRODUCER}})
			auditor = resp.GetToken()
			return err == nil
		})
		seen := len(decisions(n, auditor))
		want := func(what ...string) {
			t.Helper()
			got := decisions(n, auditor)
			if !slices.Equal(got[seen:], what) {
				t.Errorf("recorded %q, want %q", got[seen:], what)
			}
			seen = len(got)
		}
		_, err := n.Access().ListTokens(n.Bearing(root), &runlogv1.ListTokensRequest{})
		if err != nil {
			t.Fatal(err)
		}
		want("ALLOWED token:admin-token-file ListTokens ")
		_, err = n.Access().ListTokens(n.Bearing(auditor), &runlogv1.ListTokensRequest{})
		servertest.Refused(t, err, contract.ReasonPermissionDenied)
		n.HTTP("GET", "/v1/tokens", "", "Authorization", "Bearer rlk_wrong").Refused(t, contract.ReasonUnauthenticated)
		if stream := n.HTTP("GET", "/v1/runs:watch", "", "Authorization", "Bearer rlk_wrong"); !strings.Contains(string(stream.Body), "UNAUTHENTICATED") {
			t.Errorf("a stream over HTTP: %s", stream.Body)
		}
		time.Sleep(time.Minute)
		// One event has both calls without an identity.
		want("DENIED token:auditor ListTokens PERMISSION_DENIED", "DENIED  ListTokens UNAUTHENTICATED")
		for run, e := range map[string]*runlogv1.EventWrite{"runlog.access/2030-01-01": servertest.NewEvent("RunStarted"), "mine": servertest.NewEvent("RunStarted")} {
			e.TenantId = rpc.AccessTenant
			_, err = n.Events.AppendEvents(n.Bearing(auditor), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{e}})
			servertest.Refused(t, err, contract.ReasonPermissionDenied)
		}
		want("DENIED token:auditor AppendEvents PERMISSION_DENIED", "DENIED token:auditor AppendEvents PERMISSION_DENIED")
		// Events of another tenant.
		foreign := &runlogv1.AppendEventsRequest{RunId: "foreign", Events: []*runlogv1.EventWrite{servertest.NewEvent("RunStarted")}}
		batch, err := n.Events.BatchAppend(n.Bearing(auditor), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{foreign}})
		if err != nil || codes.Code(batch.Outcomes[0].Status.GetCode()) != codes.PermissionDenied {
			t.Fatalf("%v, %v", batch, err)
		}
		leader := all.Leader()
		stream, err := leader.Events.AppendStream(leader.Bearing(auditor))
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
		if _, err := n.Access().WhoAmI(n.Bearing(auditor), &runlogv1.WhoAmIRequest{}); err != nil {
			t.Fatal(err)
		}
		want() // Calls of every day are not recorded.
		if _, err := n.Clusters().GetStatus(n.Bearing(root), &runlogv1.GetStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		want()
	})
}

// TestAccessLogNamesSubscriptionsSEC7: the access log says which subscription a call was about, and
// what decides which events it gets: a filter, a beginning, a seek.
func TestAccessLogNamesSubscriptionsSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		auditor := n.Token(root, "auditor", []string{rpc.AccessTenant}, runlogv1.Role_READER)
		ctx, subs := n.Bearing(n.Token(root, "ops", []string{"acme"}, runlogv1.Role_OPERATOR)), n.Subscriptions()
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
		got := requests(n, auditor, "SubscriptionService/")
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
func requests(n *servertest.Node, auditor, service string) (list []string) {
	n.T.Helper()
	run := rpc.AccessRuns + time.Now().UTC().Format(time.DateOnly)
	resp, err := n.Events.ListEvents(n.Bearing(auditor), &runlogv1.ListEventsRequest{RunId: run})
	if err != nil {
		n.T.Fatal(err)
	}
	for _, e := range resp.Events {
		var d struct {
			Method  string
			Request map[string]string
		}
		if err := json.Unmarshal(e.GetPayloadJson(), &d); err != nil {
			n.T.Fatal(err)
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
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		auditor := n.Token(root, "auditor", []string{rpc.AccessTenant}, runlogv1.Role_READER)
		ctx, queues := n.Bearing(n.Token(root, "ops", []string{"acme"}, runlogv1.Role_OPERATOR)), n.Queues()
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
		got, want := requests(n, auditor, "QueueService/"), []string{
			`PutQueue map[environmentId:prod projectId:shop queue:nightly settings:{"maxRunning":"3"} tenantId:acme]`,
			`PauseQueue map[environmentId:prod projectId:shop queue:nightly tenantId:acme]`,
			`ResumeQueue map[environmentId:prod projectId:shop queue:nightly tenantId:acme]`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("recorded %q, want %q", got, want)
		}
	})
}

// TestAccessLogHasImportsSEC7: the calls of the admin listener are recorded with their identity,
// and the refused ones too.
func TestAccessLogHasImportsSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		auditor := n.Token(root, "auditor", []string{rpc.AccessTenant}, runlogv1.Role_READER)
		for _, path := range []string{"/import", "/projection/rebuild"} {
			for _, token := range []string{"", auditor, root} {
				req, err := http.NewRequestWithContext(n.Context(), http.MethodPost, "http://"+n.Server.Addresses().Admin+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if token != "" {
					req.Header.Set("Authorization", "Bearer "+token)
				}
				resp, err := n.HTTPClient().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		}
		time.Sleep(time.Minute)
		got := decisions(n, auditor)
		if want := []string{
			"DENIED token:auditor import PERMISSION_DENIED", "ALLOWED token:admin-token-file import ",
			"DENIED token:auditor rebuild PERMISSION_DENIED", "ALLOWED token:admin-token-file rebuild ",
			"DENIED  import UNAUTHENTICATED", // the first of two
		}; !slices.Equal(got[len(got)-len(want):], want) {
			t.Errorf("recorded %q", got)
		}
	})
}

// TestAccessLogGoneSEC7: an administrative call that cannot be recorded is not made.
func TestAccessLogGoneSEC7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		root, hash := auth.NewToken()
		all := servertest.StartNodes(t, 3, func(_ int, o *server.Options) {
			o.Authenticate, o.AdminToken, o.CheckpointInterval = true, hash, time.Hour
		})
		n := all[0]
		list := func() error {
			_, err := n.Access().ListTokens(n.Bearing(root), &runlogv1.ListTokensRequest{})
			return err
		}
		bubble.Until(t, "the members have a secret", func() bool { return list() == nil })
		all[1].Close()
		all[2].Close()
		bubble.Until(t, "the call is refused", func() bool {
			err := list()
			return err != nil && servertest.RefusalOf(t, err).Reason == contract.ReasonNoLeader
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
		n := servertest.Start(t, func(o *server.Options) { root, o.MaxPayloadBytes = servertest.Secured(o), 10 })
		auditor := n.Token(root, "auditor", []string{rpc.AccessTenant, "tenant"}, runlogv1.Role_READER, runlogv1.Role_PRODUCER)
		got := decisions(n, auditor)
		if want := "ALLOWED token:admin-token-file CreateToken "; len(got) == 0 || got[0] != want {
			t.Errorf("recorded %q", got)
		}
		large := []*runlogv1.EventWrite{servertest.NewEvent("Noted", servertest.Step("s"), servertest.Payload(`{"pad":"xx"}`))}
		_, err := n.Events.AppendEvents(n.Bearing(auditor), &runlogv1.AppendEventsRequest{RunId: "run", Events: large})
		servertest.Refused(t, err, contract.ReasonPayloadTooLarge)
	})
}
