package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
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
	plans := filepath.Join(b.dir, "plans")
	for _, dir := range []string{plans, filepath.Join(b.dir, "rival")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		if err := run(ctx, &said, &said, b.args("worker", "--allow", "file://"+plans, "--executors", "http", "--isolation", "rival",
			"--secret-env", "acme=SECRET_ACME_,rival=SECRET_RIVAL_")); err != nil {
			t.Error(err)
		}
	})
	ended := func() { stop(); working.Wait() }
	t.Cleanup(ended)
	noop := `"type":"noop"`
	get := `"type":"http","retry":{"maxAttempts":1},"inputs":{"url":"` + sink.URL + `"`
	var all strings.Builder
	for name, tt := range map[string]struct{ step, uri, code string }{
		"isolation":   {noop + `,"dispatch":{"taskQueue":"tq-isolation-rival-prod"}`, "", "TASK_QUEUE_FOREIGN"},
		"environment": {noop + `,"dispatch":{"taskQueue":"tq-control-test"}`, "", "TASK_QUEUE_FOREIGN"},
		"variable":    {noop + `,"secretRefs":["env:RIVAL_DB"]`, "", "SECRET_MISSING"},
		"worker":      {noop + `,"secretRefs":["env:AWS_SECRET_ACCESS_KEY"]`, "", "SECRET_MISSING"},
		"header":      {get + `,"secretHeaders":{"X":{"ref":"env:RIVAL_DB"}}}`, "", "SECRET_MISSING"},
		"shell":       {`"type":"command","inputs":{"argv":["sh","-c","env"]}`, "", "PLAN_UNSUPPORTED"},
		"address":     {get + `}`, "", "HTTP_ADDRESS_REFUSED"},
		"template":    {get + `,"headers":{"X":"{{env:RIVAL_DB}}"}}`, "", "HTTP_ADDRESS_REFUSED"},
		"elsewhere":   {noop, "file://" + b.dir + "/rival/elsewhere.json", "PLAN_FETCH_FAILED"},
		"above":       {noop, "file://" + plans + "/../rival/above.json", "PLAN_INVALID"},
		"scheme":      {noop, "gs://rival/scheme.json", "PLAN_FETCH_FAILED"},
		"plans":       {noop, sink.URL + "/plans.json", "PLAN_FETCH_FAILED"},
	} {
		path := filepath.Join(plans, name+".json")
		body := fmt.Sprintf(`{"schemaVersion":"v1.2","planId":%q,"planVersion":"1","steps":[{"stepId":"s",%s}]}`, name, tt.step)
		for _, p := range []string{path, filepath.Join(b.dir, "rival", name+".json")} {
			if err := os.WriteFile(p, []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// The worker makes the search attributes known.
		await.Poll(t, "the start of the run "+name, func() bool {
			_, err := b.command("start", "--run", name, "--uri", tt.uri, path)
			return err == nil
		})
		if status := b.ends(name); status != runlogv1.RunStatus_FAILED {
			t.Errorf("%s: the run is %v", name, status)
		}
		var events strings.Builder
		for r, err := range b.log.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: name}) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&events, r.GetEventType(), string(r.GetPayloadJson()))
		}
		if !strings.Contains(events.String(), `"code":"`+tt.code+`"`) || strings.Contains(events.String(), "StepCompleted") {
			t.Errorf("%s: want %s in\n%s", name, tt.code, &events)
		}
		all.WriteString(events.String())
	}
	ended()
	if text := all.String() + said.String(); strings.Contains(text, rivals) || asked.Load() > 0 {
		t.Errorf("the server was asked %d times; the events and the log:\n%s", asked.Load(), text)
	}
}
