package programtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// ofRival is what no run of another tenant may have.
const ofRival = "rival-battery-staple"

// HostileFlags are those of a worker of two tenants, acme and rival, whose secrets are in the
// variables of the process.
var HostileFlags = []string{"--executors", "http", "--isolation", "rival", "--secret-env", "acme=SECRET_ACME_,rival=SECRET_RIVAL_"}

// Hostile is a tenant that has a worker do what it must not, and a server that no step may reach.
type Hostile struct {
	t     testing.TB
	sink  *httptest.Server
	asked atomic.Int32
}

// NewHostile sets the secrets of the tenant rival, and starts the server.
func NewHostile(t *testing.T) *Hostile {
	t.Helper()
	t.Setenv("SECRET_RIVAL_DB", ofRival)
	t.Setenv("AWS_SECRET_ACCESS_KEY", ofRival)
	h := &Hostile{t: t}
	h.sink = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { h.asked.Add(1) }))
	t.Cleanup(h.sink.Close)
	return h
}

// HostilePlan is a plan of the tenant acme.
type HostilePlan struct {
	// Name is that of the plan. Body is its text.
	Name, Body string
	// URI is where the plan of the run is; empty: where its worker may read it.
	URI string
	// Code is that of the error with which the run must fail.
	Code string
}

// Plans returns the plans of acme, for a worker that reads those below the directory plans. Those
// below the directory elsewhere, in the same one, are of rival. shell is the code of a step whose
// executor the worker does not have.
func (h *Hostile) Plans(plans, elsewhere, shell string) (all []HostilePlan) {
	h.t.Helper()
	noop := `"type":"noop"`
	get := `"type":"http","retry":{"maxAttempts":1},"inputs":{"url":"` + h.sink.URL + `"`
	for _, p := range []struct{ name, step, uri, code string }{
		{"isolation", noop + `,"dispatch":{"taskQueue":"tq-isolation-rival-prod"}`, "", "TASK_QUEUE_FOREIGN"},
		{"environment", noop + `,"dispatch":{"taskQueue":"tq-control-test"}`, "", "TASK_QUEUE_FOREIGN"},
		{"variable", noop + `,"secretRefs":["env:RIVAL_DB"]`, "", "SECRET_MISSING"},
		{"worker", noop + `,"secretRefs":["env:AWS_SECRET_ACCESS_KEY"]`, "", "SECRET_MISSING"},
		{"header", get + `,"secretHeaders":{"X":{"ref":"env:RIVAL_DB"}}}`, "", "SECRET_MISSING"},
		{"address", get + `}`, "", "HTTP_ADDRESS_REFUSED"},
		{"template", get + `,"headers":{"X":"{{env:RIVAL_DB}}"}}`, "", "HTTP_ADDRESS_REFUSED"},
		{"shell", `"type":"command","inputs":{"argv":["sh","-c","env"]}`, "", shell},
		{"elsewhere", noop, "file://" + elsewhere + "/elsewhere.json", "PLAN_FETCH_FAILED"},
		{"above", noop, "file://" + plans + "/../" + filepath.Base(elsewhere) + "/above.json", "PLAN_INVALID"},
		{"scheme", noop, "gs://rival/scheme.json", "PLAN_FETCH_FAILED"},
		{"plans", noop, h.sink.URL + "/plans.json", "PLAN_FETCH_FAILED"},
	} {
		body := fmt.Sprintf(`{"schemaVersion":"v1.2","planId":%q,"planVersion":"1","steps":[{"stepId":"s",%s}]}`, p.name, p.step)
		Write(h.t, filepath.Join(elsewhere, p.name+".json"), body)
		all = append(all, HostilePlan{p.name, body, p.uri, p.code})
	}
	return all
}

// WantRefused checks the events of the run of a plan.
func (h *Hostile) WantRefused(p HostilePlan, events string) {
	h.t.Helper()
	if !strings.Contains(events, `"code":"`+p.Code+`"`) || strings.Contains(events, "StepCompleted") {
		h.t.Errorf("%s: want %s in\n%s", p.Name, p.Code, events)
	}
	h.WantKept(events)
}

// WantKept checks that nothing of rival is in a text, and that no step has reached the server.
func (h *Hostile) WantKept(text string) {
	h.t.Helper()
	if strings.Contains(text, ofRival) || h.asked.Load() > 0 {
		h.t.Errorf("the server was asked %d times; the events or the log:\n%s", h.asked.Load(), text)
	}
}
