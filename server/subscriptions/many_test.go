package subscriptions_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/storage"
	submachine "runlog/storage/machine/subscription"
	"runlog/testbed/bubble"
)

// subscribeMany makes subscriptions to an event type of a tenant that never comes, until the tenant
// has as many as it may have.
func subscribeMany(n *servertest.Node, tenant string) {
	n.T.Helper()
	like := n.Subscribe("0", func(r *runlogv1.CreateSubscriptionRequest) {
		r.Filter = &runlogv1.SubscriptionFilter{TenantId: tenant, Types: []string{"Never"}}
	})
	row, err := submachine.Find(n.Server.Internals().Replica.Store(), submachine.Name{Tenant: tenant, ID: like.SubscriptionId})
	if err != nil {
		n.T.Fatal(err)
	}
	for i := 1; i < submachine.MaxSubscriptions; {
		var ops []storage.Operation
		for ; i < submachine.MaxSubscriptions && len(ops) < 1000; i++ {
			op, err := submachine.Create(submachine.Name{Tenant: tenant, ID: fmt.Sprint(i)}, &row.Settings, submachine.Start{}, false)
			if err != nil {
				n.T.Fatal(err)
			}
			ops = append(ops, op)
		}
		cmd, err := storage.EncodeCommand(ops...)
		if err == nil {
			_, err = n.Server.Internals().Replica.Execute(n.Context(), cmd)
		}
		if err != nil {
			n.T.Fatal(err)
		}
	}
}

// TestManySubscriptionsBUS2BUS6: a tenant with as many subscriptions as it may have gets a helpful
// refusal of one more. The next leader delivers the events of others. The tenant has room once it
// has deleted one.
func TestManySubscriptionsBUS2BUS6(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 subscriptions take a minute with the race detector, and share nothing that few do not")
	}
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		// 10,000 subscriptions keep a busy machine from its heartbeats.
		ns := servertest.StartNodes(t, 3, func(_ int, o *server.Options) { o.Raft.ElectionTimeout = 3 * time.Second })
		leader := ns.Leader()
		subscribeMany(leader, "full")
		const more = `{"subscriptionId":"more","filter":{"tenantId":"full"},"delivery":{"pull":{}}}`
		answer := leader.HTTP("POST", "/v1/subscriptions", more)
		answer.Refused(t, contract.ReasonQuotaExceeded)
		for _, want := range []string{`tenant \"full\" has 10000 subscriptions`, "delete one", `"limit":"10000"`} {
			if answer.Code != http.StatusTooManyRequests || !strings.Contains(string(answer.Body), want) {
				t.Errorf("HTTP %d, %s; want %s", answer.Code, answer.Body, want)
			}
		}
		_, err := leader.Subscriptions().CreateSubscription(leader.Context(), &runlogv1.CreateSubscriptionRequest{
			SubscriptionId: "more", Filter: &runlogv1.SubscriptionFilter{TenantId: "full"},
			Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
		})
		if st := status.Convert(err); servertest.ReasonIn(st) != contract.ReasonQuotaExceeded {
			t.Errorf("one more: %v", err)
		}
		leader.Subscribe("s")
		leader.MustAppend("run", servertest.Steps("s", 2)...)
		place := func(e map[string]any) string { return fmt.Sprint(e["subject"], e["runseq"]) }
		servertest.WantEqual(t, "events", fmt.Sprint(pullAll(leader, "s", 2, place)), "[run1 run2]")
		leader.Close()
		next := ns.Leader()
		next.MustAppend("run", servertest.Steps("late", 1)...)
		for got := ""; got != "run3"; { // The acknowledgements of the last second may be lost.
			got = pullAll(next, "s", 1, place)[0]
		}
		next.HTTP("DELETE", "/v1/subscriptions/1?tenantId=full", "").OK(t)
		next.HTTP("POST", "/v1/subscriptions", more).OK(t)
	})
}
