package conductor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestDocumentedProgram: the program of docs/engines-conductor.md compiles.
func TestDocumentedProgram(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/engines-conductor.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(doc)
	if program == nil {
		t.Fatal("there is no program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, program[1], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
