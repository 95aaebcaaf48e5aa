package programtest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Run is what runs a command line of a program in this process.
type Run func(ctx context.Context, out, stderr io.Writer, args []string) error

// WantError checks that an error names each of some texts.
func WantError(t testing.TB, what string, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %q", what, texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v\nwant %q in it", what, err, text)
		}
	}
}

// WantVersion checks that a program says which one it is, and that its usage says how.
func WantVersion(t testing.TB, run Run, name, version string) {
	t.Helper()
	for _, arg := range []string{"version", "--version", "-version"} {
		out, errs := new(bytes.Buffer), new(bytes.Buffer)
		if err := run(t.Context(), out, errs, []string{arg}); !errors.Is(err, flag.ErrHelp) || out.String() != name+" "+version+"\n" || errs.Len() > 0 {
			t.Errorf("%s: %v, %q, %q", arg, err, out, errs)
		}
	}
	errs := new(bytes.Buffer)
	if err := run(t.Context(), io.Discard, errs, []string{"help"}); !errors.Is(err, flag.ErrHelp) || !strings.Contains(errs.String(), "\n  version ") {
		t.Errorf("help: %v, %q", err, errs)
	}
}

// Executors returns the names of the executors among the capabilities of steps, in order.
func Executors(steps []string) string {
	var names []string
	for _, capability := range steps {
		if name, executes := strings.CutPrefix(capability, "executor:"); executes {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// Page is a page of the documents.
type Page string

// ReadPage reads a page. Commands that go over several lines are on one.
func ReadPage(t testing.TB, path string) Page {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Page(strings.ReplaceAll(string(text), "\\\n", " "))
}

// Commands returns the command lines of a program that the page has, without its name.
func (p Page) Commands(name string) (lines []string) {
	for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(name)+` (.*)$`).FindAllStringSubmatch(string(p), -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// Plan returns the plan that the page has its readers write.
func (p Page) Plan() string {
	_, body, _ := strings.Cut(string(p), "plan.json <<'PLAN'\n")
	body, _, _ = strings.Cut(body, "PLAN\n")
	return body
}
