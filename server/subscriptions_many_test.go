package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
	submachine "runlog/storage/machine/subscription"
	"runlog/testbed/bubble"
)

// subscribeMany makes subscriptions to an event type of a tenant that never comes, until the tenant
// has as many as it may have.
func (n *node) subscribeMany(tenant string) {
	n.t.Helper()
	like := n.subscribe("0", func(r *runlogv1.CreateSubscriptionRequest) {
		r.Filter = &runlogv1.SubscriptionFilter{TenantId: tenant, Types: []string{"Never"}}
	})
	row, err := submachine.Find(n.server.replica.Store(), submachine.Name{Tenant: tenant, ID: like.SubscriptionId})
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 1; i < submachine.MaxSubscriptions; {
		var ops []storage.Operation
		for ; i < submachine.MaxSubscriptions && len(ops) < 1000; i++ {
			op, err := submachine.Create(submachine.Name{Tenant: tenant, ID: fmt.Sprint(i)}, &row.Settings, submachine.Start{}, false)
			if err != nil {
				n.t.Fatal(err)
			}
			ops = append(ops, op)
		}
		cmd, err := storage.EncodeCommand(ops...)
		if err == nil {
			_, err = n.server.replica.Execute(n.context(), cmd)
		}
		if err != nil {
			n.t.Fatal(err)
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
		ns := startNodes(t, 3, func(_ int, o *Options) { o.Raft.ElectionTimeout = 3 * time.Second })
		leader := ns.leader()
		leader.subscribeMany("full")
		const more = `{"subscriptionId":"more","filter":{"tenantId":"full"},"delivery":{"pull":{}}}`
		answer := leader.http("POST", "/v1/subscriptions", more)
		answer.refused(t, contract.ReasonQuotaExceeded)
		for _, want := range []string{`tenant \"full\" has 10000 subscriptions`, "delete one", `"limit":"10000"`} {
			if answer.code != http.StatusTooManyRequests || !strings.Contains(string(answer.body), want) {
				t.Errorf("HTTP %d, %s; want %s", answer.code, answer.body, want)
			}
		}
		_, err := leader.subscriptions().CreateSubscription(leader.context(), &runlogv1.CreateSubscriptionRequest{
			SubscriptionId: "more", Filter: &runlogv1.SubscriptionFilter{TenantId: "full"},
			Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
		})
		if st := status.Convert(err); reasonIn(st) != contract.ReasonQuotaExceeded {
			t.Errorf("one more: %v", err)
		}
		leader.subscribe("s")
		leader.mustAppend("run", steps("s", 2)...)
		place := func(e map[string]any) string { return fmt.Sprint(e["subject"], e["runseq"]) }
		wantEqual(t, "events", fmt.Sprint(leader.pullAll("s", 2, place)), "[run1 run2]")
		leader.close()
		next := ns.leader()
		next.mustAppend("run", steps("late", 1)...)
		for got := ""; got != "run3"; { // The acknowledgements of the last second may be lost.
			got = next.pullAll("s", 1, place)[0]
		}
		next.http("DELETE", "/v1/subscriptions/1?tenantId=full", "").ok(t)
		next.http("POST", "/v1/subscriptions", more).ok(t)
	})
}
