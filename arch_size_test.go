package runlog_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
)

// Limits of size, in lines. Generated files do not count, and tests do not count for a package.
const (
	maxFileLines    = 500
	maxPackageLines = 3000
)

// TestSizes holds every file and every package to the limits of size.
func TestSizes(t *testing.T) {
	list, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]int{}
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSuffix(name, "\n")
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // Deleted, and not yet in the index.
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text[:min(len(text), 200)], []byte("Code generated")) {
			files[name] = bytes.Count(text, []byte("\n"))
		}
	}
	for _, fault := range tooLarge(files) {
		t.Error(fault)
	}
}

// tooLarge returns a line for each file or package that is over its limit.
func tooLarge(files map[string]int) (faults []string) {
	lines := map[string]int{}
	for name, n := range files {
		lines[name] = n
		if !strings.HasSuffix(name, "_test.go") {
			lines[path.Dir(name)+"/"] += n
		}
	}
	for name, n := range lines {
		limit := maxFileLines
		if strings.HasSuffix(name, "/") {
			limit = maxPackageLines
		}
		if n > limit {
			faults = append(faults, fmt.Sprintf("%s has %d lines, at most %d: split it by verb", name, n, limit))
		}
	}
	return faults
}

// TestSizesFail shows that each limit can be exceeded.
func TestSizesFail(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]int
		want  int
	}{
		{"within", map[string]int{"a/a.go": 500, "a/b.go": 500}, 0},
		{"large file", map[string]int{"a/a.go": 501}, 1},
		{"large test", map[string]int{"a/a_test.go": 501}, 1},
		{"large package", map[string]int{"a/a.go": 500, "a/b.go": 500, "a/c.go": 500, "a/d.go": 500, "a/e.go": 500, "a/f.go": 500, "a/g.go": 1}, 1},
	}
	for _, tt := range tests {
		if got := tooLarge(tt.files); len(got) != tt.want {
			t.Errorf("%s: want %d faults, got %q", tt.name, tt.want, got)
		}
	}
}
