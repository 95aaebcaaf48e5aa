package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"runlog/engine/program/programtest"
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

// TestVersion: the command says which one it is.
func TestVersion(t *testing.T) { programtest.WantVersion(t, run, name, version) }

// TestClassesENG3: a worker has the task queues of its classes alone.
func TestClassesENG3(t *testing.T) {
	for line, want := range map[string]string{
		"": "tq-control-prod tq-data-prod",
		"--isolation acme --isolation shop --queue tq-gpu": "tq-gpu tq-control-prod tq-data-prod tq-isolation-acme-prod tq-isolation-shop-prod",
		"--class control":                                       "tq-control-prod",
		"--class data --queue tq-gpu":                           "tq-gpu tq-data-prod",
		"--class isolation --isolation acme":                    "tq-isolation-acme-prod",
		"--class data --class control":                          "tq-control-prod tq-data-prod",
		"--environment test --class isolation --isolation acme": "tq-isolation-acme-test",
	} {
		a, _, err := parse(new(bytes.Buffer), new(bytes.Buffer), append([]string{"worker", "--allow", "file:///srv/plans"}, strings.Fields(line)...))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		queues, isolation := a.queues.Of(a.scope.Environment)
		for _, o := range isolation {
			queues = append(queues, o.Queue())
		}
		if got := strings.Join(queues, " "); got != want {
			t.Errorf("%s: want %s, got %s", line, want, got)
		}
	}
}

// TestMetricsPLAN6: a worker serves the metrics of plans and of starts, and says whether it works.
// It serves nothing else.
func TestMetricsPLAN6(t *testing.T) {
	errs := new(bytes.Buffer)
	a, _, err := parse(new(bytes.Buffer), errs, []string{"worker", "--allow", "file:///srv/plans", "--metrics-listen", "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.dial(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	if _, err := a.engine(); err != nil {
		t.Fatal(err)
	}
	end, err := a.health.Serve("temporal", a.logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	listen := regexp.MustCompile(`metrics are served" listen=(\S+)`).FindStringSubmatch(errs.String())
	if listen == nil {
		t.Fatalf("the log has no address: %s", errs)
	}
	wants := func(path string, status int, texts ...string) {
		t.Helper()
		resp, err := http.Get("http://" + listen[1] + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status {
			t.Errorf("%s: %s, %v, want %d", path, resp.Status, err, status)
		}
		for _, want := range texts {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %s in %s", path, want, text)
			}
		}
	}
	wants("/healthz", 200, "ok")
	wants("/readyz", 503)
	wants("/metrics", 200, "plan_fetch_integrity_failure_count 0", "plan_fetch_duration_ms_count 0", "plan_fetch_size_bytes_count 0", "runlog_temporal_ready 0", "go_goroutines")
	ctx, stop := context.WithCancel(t.Context())
	a.health.Works(ctx)
	wants("/readyz", 200, "ready")
	wants("/metrics", 200, "runlog_temporal_ready 1")
	stop()
	wants("/readyz", 503, "starts or stops")
	wants("/debug/pprof/", 404)
	other, _, err := parse(new(bytes.Buffer), errs, []string{"worker", "--allow", "file:///srv/plans", "--metrics-listen", listen[1]})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.health.Serve("temporal", a.logger); err == nil {
		t.Error("an address that is in use is taken")
	}
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
		if got := programtest.Executors(e.Capabilities().Steps); got != want {
			t.Errorf("%s: want %q, got %q", line, want, got)
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
		programtest.WantError(t, line, err, want)
	}
}
