package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// rivals is what no run of another tenant may have.
const rivals = "rival-battery-staple"

// TestHostileTenantENG7: a worker of two tenants refuses what a plan of one tenant must not do,
// each with a code: foreign queues, secrets and programs, private addresses, and plans from
// elsewhere. Nothing of the other tenant leaves.
func TestHostileTenantENG7(t *testing.T) {
	t.Setenv("SECRET_RIVAL_DB", rivals)
	t.Setenv("AWS_SECRET_ACCESS_KEY", rivals)
	var asked atomic.Int32
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(sink.Close)
	b := newBed(t)
	elsewhere := t.TempDir()
	stop := b.work("--executors", "http", "--isolation", "rival", "--secret-env", "acme=SECRET_ACME_,rival=SECRET_RIVAL_")
	noop := `"type":"noop"`
	get := `"type":"http","retry":{"maxAttempts":1},"inputs":{"url":"` + sink.URL + `"`
	var all strings.Builder
	for name, tt := range map[string]struct{ step, uri, code string }{
		"isolation":   {noop + `,"dispatch":{"taskQueue":"tq-isolation-rival-prod"}`, "", "TASK_QUEUE_FOREIGN"},
		"environment": {noop + `,"dispatch":{"taskQueue":"tq-control-test"}`, "", "TASK_QUEUE_FOREIGN"},
		"variable":    {noop + `,"secretRefs":["env:RIVAL_DB"]`, "", "SECRET_MISSING"},
		"worker":      {noop + `,"secretRefs":["env:AWS_SECRET_ACCESS_KEY"]`, "", "SECRET_MISSING"},
		"header":      {get + `,"secretHeaders":{"X":{"ref":"env:RIVAL_DB"}}}`, "", "SECRET_MISSING"},
		"address":     {get + `}`, "", "HTTP_ADDRESS_REFUSED"},
		"template":    {get + `,"headers":{"X":"{{env:RIVAL_DB}}"}}`, "", "HTTP_ADDRESS_REFUSED"},
		"shell":       {`"type":"command","inputs":{"argv":["sh","-c","env"]}`, "", "PLAN_INVALID"},
		"elsewhere":   {noop, "file://" + elsewhere + "/elsewhere.json", "PLAN_FETCH_FAILED"},
		"above":       {noop, "file://" + b.dir + "/../above.json", "PLAN_INVALID"},
		"scheme":      {noop, "gs://rival/scheme.json", "PLAN_FETCH_FAILED"},
		"plans":       {noop, sink.URL + "/plans.json", "PLAN_FETCH_FAILED"},
	} {
		body := `{"schemaVersion":"v1.2","planId":"` + name + `","planVersion":"1","steps":[{"stepId":"s",` + tt.step + `}]}`
		if err := os.WriteFile(filepath.Join(elsewhere, name+".json"), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		b.requestPlan(name, name, body, tt.uri)
		events := strings.Join(b.until(name, "RunFailed"), "\n")
		if !strings.Contains(events, `"code":"`+tt.code+`"`) || strings.Contains(events, "StepCompleted") {
			t.Errorf("%s: want %s in\n%s", name, tt.code, events)
		}
		all.WriteString(events)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if text := all.String(); strings.Contains(text, rivals) || asked.Load() > 0 {
		t.Errorf("the server was asked %d times; the events:\n%s", asked.Load(), text)
	}
}
