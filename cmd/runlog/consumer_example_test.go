package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"runlog/client"
	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestConsumerExamples runs the consumers of docs/event-bus.md against a node: each prints every
// event of its subscription once, those of a run in their order (BUS-3, BUS-8).
func TestConsumerExamples(t *testing.T) {
	t.Parallel()
	n := spawnNode(t, t.TempDir())
	a := n.ready(t)
	c, err := client.Dial(a.GRPC, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	const dir = "../../docs/examples/consumer/"
	for name, command := range map[string][]string{
		"go":      {"run", "runlog/docs/examples/consumer", "-server", a.GRPC, "-subscription", "go", "-tenant", "acme", "-max", "6"},
		"python3": {dir + "consumer.py", "http://" + a.HTTP, "python3", "6"},
		"node":    {dir + "consumer.mjs", "http://" + a.HTTP, "node", "6"},
	} {
		if !installed(t, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			_, err := c.CreateSubscription(t.Context(), &runlogv1.CreateSubscriptionRequest{
				SubscriptionId: name, Filter: &runlogv1.SubscriptionFilter{TenantId: "acme"}, Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}}})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				for _, suffix := range []string{"-a", "-b"} {
					run := &events.Run{ID: name + suffix, Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
					e, err := run.StepCompleted(fmt.Sprint("s", i), events.Attempt{Logical: 1, Engine: 1}, nil)
					if err == nil {
						_, err = c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: run.ID, Events: []*runlogv1.EventWrite{e}})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			cmd := exec.CommandContext(t.Context(), name, command...)
			cmd.Env = append(os.Environ(), "RUNLOG_TENANT=acme")
			var failures strings.Builder
			cmd.Stderr = &failures // A retry is told there, and is no fault.
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s%s", err, out, failures.String())
			}
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			slices.SortStableFunc(got, func(x, y string) int { return strings.Compare(strings.Fields(x)[0], strings.Fields(y)[0]) })
			var want []string
			for _, run := range []string{"a", "b"} {
				for i := range 3 {
					want = append(want, fmt.Sprintf("%s-%s %d StepCompleted", name, run, i+1))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("printed %q, want %q", got, want)
			}
		})
	}
}
