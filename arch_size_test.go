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

// largerThanAllowed lists the files and packages that are still over a limit, with the lines that
// they have at most. The list only shrinks: an entry that is not needed any more fails the test.
var largerThanAllowed = map[string]int{}

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
	for _, fault := range tooLarge(files, largerThanAllowed) {
		t.Error(fault)
	}
}

// tooLarge returns a line for each file or package that is over its limit, and for each exception
// that is not needed or allows more than there is.
func tooLarge(files, exceptions map[string]int) (faults []string) {
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
		allowed, excepted := exceptions[name]
		switch {
		case excepted && n <= limit:
			faults = append(faults, fmt.Sprintf("%s has %d lines: remove its exception", name, n))
		case n > max(limit, allowed):
			faults = append(faults, fmt.Sprintf("%s has %d lines, at most %d: split it by verb", name, n, max(limit, allowed)))
		}
	}
	for name := range exceptions {
		if _, exists := lines[name]; !exists {
			faults = append(faults, name+" does not exist: remove its exception")
		}
	}
	return faults
}

// TestSizesFail shows that each limit can be exceeded, and that an exception has to be needed.
func TestSizesFail(t *testing.T) {
	tests := []struct {
		name       string
		files      map[string]int
		exceptions map[string]int
		want       int
	}{
		{"within", map[string]int{"a/a.go": 500, "a/b.go": 500}, nil, 0},
		{"large file", map[string]int{"a/a.go": 501}, nil, 1},
		{"large test", map[string]int{"a/a_test.go": 501}, nil, 1},
		{"large package", map[string]int{"a/a.go": 500, "a/b.go": 500, "a/c.go": 500, "a/d.go": 500, "a/e.go": 500, "a/f.go": 500, "a/g.go": 1}, nil, 1},
		{"excepted", map[string]int{"a/a.go": 501}, map[string]int{"a/a.go": 501}, 0},
		{"has grown", map[string]int{"a/a.go": 502}, map[string]int{"a/a.go": 501}, 1},
		{"exception not needed", map[string]int{"a/a.go": 500}, map[string]int{"a/a.go": 501}, 1},
		{"exception for nothing", nil, map[string]int{"a/a.go": 501}, 1},
	}
	for _, tt := range tests {
		if got := tooLarge(tt.files, tt.exceptions); len(got) != tt.want {
			t.Errorf("%s: want %d faults, got %q", tt.name, tt.want, got)
		}
	}
}
