package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/server/servertest/procs"
)

// TestMain makes the test binary behave as the command when that starts itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "echo-server" {
		main()
	}
	dir, err := os.MkdirTemp("", "runlog-bench-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, product)
		return path, procs.Build(context.Background(), filepath.Join("..", ".."), path, "test")
	})
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// built builds the program runlog, once for all tests that start nodes, and returns its path.
var built func() (string, error)

func builtRunlog(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// invocation is one command line, without an environment, and what it printed.
type invocation struct {
	stdout, stderr bytes.Buffer
	code           output.ExitCode
}

// invoke runs a command line. width is that of a terminal on standard error; 0 for none.
func invoke(t *testing.T, width int, args ...string) *invocation {
	t.Helper()
	i := &invocation{}
	s := &session.Session{
		Output: output.Output{Stdout: &i.stdout, Stderr: &i.stderr, StderrWidth: width},
		Getenv: func(string) string { return "" }, Version: version,
	}
	i.code = run(t.Context(), s, args)
	return i
}

// measure runs a command line whose nodes are those of the program runlog.
func measure(t *testing.T, args ...string) *invocation {
	t.Helper()
	return invoke(t, 0, append([]string{"--runlog", builtRunlog(t)}, args...)...)
}

// succeed is measure, which must end well. It returns what was printed.
func succeed(t *testing.T, args ...string) *bytes.Buffer {
	t.Helper()
	i := measure(t, args...)
	if i.code != output.ExitOK {
		t.Fatalf("exit %d: %s", i.code, i.stderr.String())
	}
	return &i.stdout
}

// refused runs command lines that are wrong, each under a part of what it is told.
func refused(t *testing.T, lines map[string][]string) {
	t.Helper()
	for want, args := range lines {
		i := invoke(t, 0, append([]string{"--server", "passthrough:///nowhere", "--runlog", os.Args[0]}, args...)...)
		if text := i.stderr.String(); i.code != output.ExitUsage || !strings.Contains(text, want) {
			t.Errorf("%q: exit %d: %s", want, i.code, text)
		}
	}
}
