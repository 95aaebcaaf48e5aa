package temporal_test

import (
	"testing"

	enums "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"runlog/engine"
	"runlog/engine/temporal/namespaces"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestHistoryOfOneStepENG3: a run of one step takes few activities and history events, which
// Temporal bills and stores.
func TestHistoryOfOneStepENG3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"}]}`)
	run := w.create("1")
	e := w.worker()
	w.ends(e, w.start(e, run), engine.RunCompleted)
	w.clean(run, runlogv1.RunStatus_COMPLETED)
	text, err := namespaces.History(t.Context(), w.sdk, "default", workflowOf(run), "")
	if err != nil {
		t.Fatal(err)
	}
	var h historypb.History
	if err := protojson.Unmarshal(text, &h); err != nil {
		t.Fatal(err)
	}
	var activities []string
	for _, e := range h.GetEvents() {
		if e.GetEventType() == enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
			activities = append(activities, e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName())
		}
	}
	t.Logf("%d history events, and the activities %q", len(h.GetEvents()), activities)
	if len(activities) > 4 || len(h.GetEvents()) > 30 {
		t.Errorf("%d history events, at most 30, and %d activities, at most 4: %q", len(h.GetEvents()), len(activities), activities)
	}
}
