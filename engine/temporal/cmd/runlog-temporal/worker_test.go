package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runlog/engine/temporal"
)

// configured returns the engine of a command line. It connects to nothing.
func configured(t *testing.T, line string) (*temporal.Engine, error) {
	t.Helper()
	a, _, err := parse(new(bytes.Buffer), new(bytes.Buffer), strings.Fields(line))
	if err != nil {
		return nil, err
	}
	if err := a.dial(); err != nil {
		return nil, err
	}
	t.Cleanup(a.close)
	return a.engine()
}

// TestExecutorsENG7: a worker executes nothing but noop, unless a flag names more, or only users of
// this machine can request runs.
func TestExecutorsENG7(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("rlk_"+strings.Repeat("a", 43)), 0o600); err != nil {
		t.Fatal(err)
	}
	const worker = "worker --allow file:///srv/plans "
	for line, want := range map[string]string{
		worker:                                  "command http noop",
		worker + "--token-file " + token:        "noop",
		worker + "--server runlog.example:7410": "noop",
		worker + "--server 127.0.0.1:7410,runlog.example:7410":          "noop",
		worker + "--temporal temporal.example:7233":                     "noop",
		worker + "--temporal temporal.example:7233 --executors http":    "http noop",
		worker + "--executors command --command-env PATH,HOME":          "command noop",
		worker + "--executors http,llm --llm-url http://127.0.0.1:1/v1": "http llm noop",
		"sweep": "",
	} {
		e, err := configured(t, line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		names := e.Capabilities().Steps
		for i := range names {
			names[i] = strings.TrimPrefix(names[i], "executor:")
		}
		if slices.Sort(names); strings.Join(names, " ") != want {
			t.Errorf("%s: want %q, got %q", line, want, names)
		}
	}
	for line, want := range map[string]string{
		"--secret-env acme=SECRET_,rival=SECRET_RIVAL_": "the prefix SECRET_RIVAL_ begins with SECRET_",
		"--executors shell":                             "name noop, command, http and llm",
		"--executors http --command-env PATH":           "--command-env needs command in --executors",
		"--executors noop --http-networks 10.0.0.0/8":   "--http-networks needs http in --executors",
		"--executors http --http-networks 10.1.2.3/8":   "which is no network",
		"--secrets-dir " + token:                        "is no directory",
	} {
		_, err := configured(t, worker+line)
		wantError(t, line, err, want)
	}
}
