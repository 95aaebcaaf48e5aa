package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEverySecretPLAN4: each secret of a plan is reported, also beside one in secretRefs.
func TestEverySecretPLAN4(t *testing.T) {
	t.Parallel()
	token := "ghp_" + strings.Repeat("b", 36)
	_, _, err := Parse(planOf(fmt.Sprintf(`{"stepId": "a", "type": "http", "secretRefs": [%q], "inputs": {"x": [%q, 1], "y": %q}},
		{"stepId": "b", "type": "http", "inputs": {"": %q}}`, token, token, token, token)), Options{})
	e, ok := errors.AsType[*InvalidError](err)
	if !ok {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range e.Faults {
		paths = append(paths, f.Path)
	}
	if want := []string{"/steps/0/secretRefs/0", "/steps/0/inputs/x/0", "/steps/0/inputs/y", "/steps/1/inputs/"}; !slices.Equal(paths, want) {
		t.Errorf("faults at %q, want %q", paths, want)
	}
}

// TestFaultsFitPLAN4: the faults of any plan fit into the payload of an event, and none is lost
// silently.
func TestFaultsFitPLAN4(t *testing.T) {
	t.Parallel()
	var members strings.Builder
	for i := range 200 {
		fmt.Fprintf(&members, `, "%s%d": 1`, strings.Repeat("\u2028<", 200), i)
	}
	_, _, err := Parse(planOf(`{"stepId": "a", "type": "noop"`+members.String()+`}`), Options{})
	e, ok := errors.AsType[*InvalidError](err)
	if !ok || len(e.Faults) == 0 || len(e.Faults)+e.More != 200 {
		t.Fatal(err)
	}
	if body, err := e.MarshalJSON(); err != nil || len(body) > 60<<10 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// TestContractBytesATT1: a contract that no event has room for is refused.
func TestContractBytesATT1(t *testing.T) {
	t.Parallel()
	for notes, ok := range map[int]bool{20 << 10: true, 30 << 10: false} {
		_, _, err := Parse(planOf(`{"stepId": "a", "type": "compute", "computeContract": {"executor": "x", "inputs": [], "outputs": [],
			"verification": "operator_attest", "notes": "`+strings.Repeat("n", notes)+`"}}`), Options{})
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "/steps/0/computeContract has ") {
			t.Errorf("notes of %d bytes: %.200v", notes, err)
		}
	}
}
