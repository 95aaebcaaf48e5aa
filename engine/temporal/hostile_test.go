package temporal_test

import (
	"slices"
	"strings"
	"testing"

	"runlog/engine"
	"runlog/engine/route"
	"runlog/engine/temporal"
	runlogv1 "runlog/proto/runlog/v1"
)

// payloads returns the payloads of the events of a type.
func (w *world) payloads(run, eventType string) (all string) {
	w.t.Helper()
	for r, err := range w.log.ReadEvents(w.t.Context(), &runlogv1.ReadEventsRequest{RunId: run}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if r.GetEventType() == eventType {
			all += string(r.GetPayloadJson())
		}
	}
	return all
}

// TestHostileQueueENG3: the run of a plan that names the isolation queue of another tenant fails
// with a code. No step of it is dispatched or executed, though a worker has that queue.
func TestHostileQueueENG3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.body = `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"},
		{"stepId":"b","type":"test","dispatch":{"taskQueue":"tq-isolation-rival-` + w.environment() + `"}}]}`
	o := w.options(w.log)
	o.Isolation = append(o.Isolation, route.Owner{TenantID: "rival", EnvironmentID: w.environment()})
	e, err := temporal.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.run(e)
	run := w.create("1")
	w.ends(e, w.start(e, run), engine.RunFailed)
	if got := w.events(run); !slices.Equal(got, []string{"RunStarted", "RunFailed"}) || len(w.executions(run)) > 0 {
		t.Errorf("got %q and the executions %q", got, w.executions(run))
	}
	if got := w.payloads(run, "RunFailed"); !strings.Contains(got, route.CodeForeign) || !strings.Contains(got, "tq-isolation-rival-") {
		t.Errorf("got %s", got)
	}
}

// TestSharedQueueENG3: a worker executes no isolated step of another tenant, not even of one whose
// isolation queue has the same name.
func TestSharedQueueENG3(t *testing.T) {
	t.Parallel()
	t.Run("b", func(t *testing.T) {
		w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test","class":"isolation"}]}`)
		own := route.Owner{TenantID: "acme", EnvironmentID: w.environment()}
		part, _, _ := strings.Cut(w.environment(), "-")
		other := route.Owner{TenantID: "acme-" + part, EnvironmentID: "b"}
		if own.Queue() != other.Queue() {
			t.Fatalf("the queues %s and %s differ: the test proves nothing", own.Queue(), other.Queue())
		}
		o := w.options(w.log)
		o.Isolation = []route.Owner{other}
		e, err := temporal.New(o)
		if err != nil {
			t.Fatal(err)
		}
		w.run(e)
		run := w.create("1")
		w.ends(e, w.start(e, run), engine.RunFailed)
		if got := w.payloads(run, "StepFailed"); !strings.Contains(got, route.CodeForeign) || len(w.executions(run)) > 0 {
			t.Errorf("got %q, %s and the executions %q", w.events(run), got, w.executions(run))
		}
	})
}
