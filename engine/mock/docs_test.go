package mock_test

import (
	"os"
	"strings"
	"testing"
)

// TestAdapterOfDocs: docs/engines.md shows adapter_test.go as it is.
func TestAdapterOfDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/engines.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("adapter_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```go\n"+string(program)+"```\n") {
		t.Error("docs/engines.md shows another program: copy adapter_test.go into it")
	}
}
