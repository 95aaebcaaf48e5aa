package plan

import (
	"os"
	"strings"
	"testing"
)

// TestPlanOfDocs: the plan of docs/plans.md is one.
func TestPlanOfDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/plans.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	body, _, found := strings.Cut(rest, "```")
	p, _, err := Parse([]byte(body), Options{Capabilities: []string{"compute", "executor:command", "executor:http"}})
	if !found || err != nil || len(p.Steps) != 4 {
		t.Fatal(p, err)
	}
}
