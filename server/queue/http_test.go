package queue_test

import (
	"fmt"
	"strings"
	"testing"

	"runlog/proto/contract"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestQueuesOverHTTPQUE10: every route of QueueService, with the names that contract and API fix.
func TestQueuesOverHTTPQUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		const scope = `"tenantId":"acme","projectId":"billing","environmentId":"prod"`
		const query = "tenantId=acme&projectId=billing&environmentId=prod"
		put := n.HTTP("PUT", "/v1/queues", `{`+scope+`,"settings":{"maxRunning":"2","onFull":"REJECT","leaseTtl":"60s"}}`).OK(t)
		settings := put["queue"].(map[string]any)["settings"].(map[string]any)
		if settings["maxRunning"] != "2" || settings["onFull"] != "REJECT" || settings["leaseTtl"] != "60s" || settings["paused"] != false {
			t.Errorf("settings %v", settings)
		}
		request := `{` + scope + `,"runRequestId":"r1","runId":"run","planRef":{"planId":"p","planVersion":"1"},"context":{"big":9007199254740993}}`
		for i, idempotent := range []any{false, true} {
			got := n.Post("/v1/runs:request", request)
			if got["disposition"] != "READY" || got["idempotent"] != idempotent || got["run"].(map[string]any)["status"] != "PENDING" {
				t.Errorf("request %d: %v", i, got)
			}
		}
		leased := n.Post("/v1/queues:lease", `{"tenantId":"acme","worker":"w","wait":"1s"}`)["leases"].([]any)
		if len(leased) != 1 {
			t.Fatalf("leases %v", leased)
		}
		l := leased[0].(map[string]any)
		if l["runId"] != "run" || l["fence"] != "2" || l["expireTime"] == nil || l["run"] == nil || l["queue"] != "default" {
			t.Errorf("lease %v", l)
		}
		if got := n.Post("/v1/queues:lease", `{"worker":"w","wait":"0.01s"}`)["leases"]; len(got.([]any)) != 0 {
			t.Errorf("leases %v", got)
		}
		if got := n.Post("/v1/runs/run/lease:renew", `{"fence":"2"}`); got["expireTime"] == nil {
			t.Errorf("renewal %v", got)
		}
		n.HTTP("POST", "/v1/runs/run/lease:renew", `{"fence":"9"}`).Refused(t, contract.ReasonLeaseLost)
		started := `{"eventType":"RunStarted",` + scope + `,"planId":"p","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,` +
			`"emittedAt":"2026-02-11T10:30:00Z","payload":{"engineType":"e", "engineRunRef":"e/1"}}`
		for i, idempotent := range []any{false, true} {
			got := n.Post("/v1/runs/run/lease:release", `{"fence":"2","outcome":"STARTED","engineRunRef":"e/1","events":[`+started+`]}`)
			results := got["results"].([]any)
			if got["state"] != "RUNNING" || got["idempotent"] != idempotent || len(results) != 1 || results[0].(map[string]any)["runSeq"] != "2" {
				t.Errorf("release %d: %v", i, got)
			}
		}
		if got := n.Get("/v1/runs/run")["run"].(map[string]any); got["engineRunRef"] != "e/1" {
			t.Errorf("run %v", got)
		}
		if got := n.Post("/v1/runs/run:requeue", `{}`); got["idempotent"] != false || got["run"].(map[string]any)["state"] != "READY" {
			t.Errorf("requeued %v", got)
		}
		again := n.Post("/v1/queues:lease", `{"tenantId":"acme","worker":"w","max":1}`)["leases"].([]any)[0].(map[string]any)
		n.Post("/v1/runs/run/lease:release", `{"outcome":"STARTED","fence":"`+again["fence"].(string)+`"}`)
		n.Post("/v1/runs:request", strings.NewReplacer("r1", "r2", `"run"`, `"second"`).Replace(request))
		n.HTTP("POST", "/v1/runs:request", strings.NewReplacer("r1", "r3", `"run"`, `"third"`).Replace(request)).Refused(t, contract.ReasonRunQueueFull)
		if got := n.Post("/v1/runs/second:reprioritize", `{"priority":9}`)["run"].(map[string]any); fmt.Sprint(got["priority"]) != "9" || got["state"] != "READY" {
			t.Errorf("run %v", got)
		}
		for _, x := range []string{"pause", "resume"} {
			got := n.Post("/v1/queues:"+x, `{`+scope+`}`)["queue"].(map[string]any)["settings"].(map[string]any)
			if got["paused"] != (x == "pause") {
				t.Errorf("%s: %v", x, got)
			}
		}
		if q := n.Get("/v1/queues:get?" + query)["queue"].(map[string]any); q["running"] != "1" || q["depth"] != "1" || q["oldestAt"] == nil {
			t.Errorf("queue %v", q)
		}
		if got := n.Get("/v1/queues?tenantId=acme")["queues"].([]any); len(got) != 1 {
			t.Errorf("queues %v", got)
		}
		if got := n.Get("/v1/queues:runs?" + query + "&state=READY&state=RUNNING")["runs"].([]any); len(got) != 2 {
			t.Errorf("runs %v", got)
		}
		if got := n.Post("/v1/runs/second:cancelQueued", `{"reason":"not now"}`); got["runSeq"] != "2" {
			t.Errorf("cancelled %v", got)
		}
		n.HTTP("POST", "/v1/runs/second:cancelQueued", `{}`).Refused(t, contract.ReasonRunNotQueued)
		n.HTTP("GET", "/v1/queues:get?tenantId=x&projectId=y&environmentId=z", "").Refused(t, contract.ReasonQueueNotFound)
	})
}
