package executor_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"runlog/client/events"
	"runlog/engine/executor"
)

// TestOutputsStayAsTheyAreENV7: an output of the greatest size fits into a payload, whatever its
// characters are.
func TestOutputsStayAsTheyAreENV7(t *testing.T) {
	t.Parallel()
	r := events.Run{ID: "run", Tenant: "acme", Project: "shop", Environment: "prod", Plan: "plan", PlanVersion: "1"}
	at := events.Attempt{Logical: 1, Engine: 1}
	output := json.RawMessage(`"` + strings.Repeat("<&>", 16<<10-1) + `"`)
	e, err := r.StepCompleted("A", at, executor.Completed(executor.Result{Output: output}))
	if err != nil || !bytes.Contains(e.GetPayloadJson(), output) {
		t.Errorf("an output of %d bytes: a payload of %d bytes: %v", len(output), len(e.GetPayloadJson()), err)
	}
	if e, err = r.StepFailed("A", at, executor.Failed(executor.Fail("BROKEN", "%s", strings.Repeat("<", 4<<10)))); err != nil || len(e.GetPayloadJson()) > 5<<10 {
		t.Errorf("an error of 4 KiB: a payload of %d bytes: %v", len(e.GetPayloadJson()), err)
	}
}
