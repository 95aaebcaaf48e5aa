package queue_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"runlog/proto/contract"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestPlanRefIsKeptPLAN7: what a request says of its plan is in every answer that has the run: also
// once its engine has said the same in RunStarted, and of a run that was created.
func TestPlanRefIsKeptPLAN7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		planRef := `{"uri":"s3://plans/p.json","sha256":"` + strings.Repeat("ab", 32) + `","schemaVersion":"v1.2","planId":"invoices","planVersion":"7",` +
			`"expiresAt":"2027-01-31T00:00:00.5+01:00","schemaEvolutionPath":"v1.0 → v1.2",` +
			`"migrationHint":{"sourceVersion":"v1.0","targetVersion":"v1.2","transformScript":"s3://plans/up.sql"}}`
		var want map[string]any
		if err := json.Unmarshal([]byte(planRef), &want); err != nil {
			t.Fatal(err)
		}
		kept := func(what string, in any, path ...string) {
			t.Helper()
			for _, name := range path {
				switch at := in.(type) {
				case map[string]any:
					in = at[name]
				case []any:
					in = at[0].(map[string]any)[name]
				}
			}
			if !reflect.DeepEqual(in, any(want)) {
				t.Errorf("%s: %v, want %v", what, in, want)
			}
		}
		const scope = `"tenantId":"acme","projectId":"billing","environmentId":"prod",`
		request := `{"runRequestId":"r","runId":"requested",` + scope + `"planRef":` + planRef + `}`
		kept("the request", n.Post("/v1/runs:request", request), "run", "planRef")
		kept("the request again", n.Post("/v1/runs:request", request), "run", "planRef")
		create := `{"run":{"runId":"created",` + scope + `"planRef":` + planRef + `}}`
		kept("a creation", n.Post("/v1/runs", create), "run", "planRef")
		kept("a creation again", n.Post("/v1/runs", create), "run", "planRef")
		for _, run := range []string{"requested", "created"} {
			kept("the run", n.Get("/v1/runs/"+run), "run", "planRef")
			kept("its snapshot", n.Get("/v1/runs/"+run+"/snapshot"), "snapshot", "planRef")
		}
		kept("the list", n.Get("/v1/runs?tenantId=acme"), "runs", "planRef")
		kept("the lease", n.Post("/v1/queues:lease", `{`+scope+`"worker":"w","max":1}`), "leases", "run", "planRef")

		n.Post("/v1/runs/written/events:append", `{"events":[{`+scope+`"runId":"written","eventType":"RunStarted","planId":"invoices","planVersion":"7",
			"logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-11-29T10:00:00Z","payload":{"planRef":`+planRef+`}}]}`)
		kept("the run of an event", n.Get("/v1/runs/written"), "run", "planRef")
		kept("the snapshot of an event", n.Get("/v1/runs/written/snapshot"), "snapshot", "planRef")

		for member, value := range map[string]string{
			"expiresAt": `"soon"`, "schemaEvolutionPath": `"v1.0\u0000"`,
			"migrationHint.sourceVersion": `{"targetVersion":"v1.2"}`, "migrationHint.targetVersion": `{"sourceVersion":"v1.0"}`,
			"migrationHint.transformScript": `{"sourceVersion":"v1.0","targetVersion":"v1.2","transformScript":"s3://\u0000"}`,
		} {
			name, _, _ := strings.Cut(member, ".")
			refused := `{"run":{"runId":"refused",` + scope + `"planRef":{"planId":"invoices","planVersion":"7","` + name + `":` + value + `}}}`
			r := n.HTTP(http.MethodPost, "/v1/runs", refused).Refused(t, contract.ReasonInvalidArgumentField)
			if !strings.Contains(r.Message, "run.planRef."+member) {
				t.Errorf("%s: %s", member, r.Message)
			}
		}
		for member, change := range map[string][2]string{
			"expiresAt": {"2027-01", "2028-01"}, "schemaEvolutionPath": {"v1.0 →", "v1.1 →"}, "migrationHint": {"up.sql", "other.sql"},
		} {
			r := n.HTTP(http.MethodPost, "/v1/runs", strings.Replace(create, change[0], change[1], 1)).Refused(t, contract.ReasonRunAlreadyExists)
			if r.Metadata["fields"] != "planRef."+member {
				t.Errorf("another %s: %v", member, r.Metadata)
			}
		}
	})
}
