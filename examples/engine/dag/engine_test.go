package dag

import (
	"strings"
	"testing"
)

// TestPlanWithoutOrder: a plan that names a step before it is listed starts no run.
func TestPlanWithoutOrder(t *testing.T) {
	plan := &Plan{Steps: []Step{{ID: "a", After: []string{"d"}}, {ID: "d"}}}
	if _, err := Run(t.Context(), nil, plan, "run"); err == nil || !strings.Contains(err.Error(), `"a" comes after "d"`) {
		t.Errorf("a circle: %v", err)
	}
}
