package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/conductor/conductortest"
	"runlog/engine/program"
	"runlog/engine/program/programtest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

func parsed(line string) (*app, error) {
	return parse(new(bytes.Buffer), new(bytes.Buffer), strings.Fields(line))
}

// TestFlags: each fault of a command line is refused with what to write in its place, all at once.
func TestFlags(t *testing.T) {
	t.Parallel()
	const worker = "worker --allow file:///srv/plans --owner-email a@b.example "
	for line, want := range map[string][]string{
		"":                                      {"name a command: runlog-conductor COMMAND --help"},
		"run":                                   {`unknown command "run"`, "name a command"},
		"worker now":                            {`worker takes flags alone, and got "now"`},
		"worker --run run-1":                    {"flag provided but not defined: -run"},
		"worker":                                {"--allow is missing", "file:///srv/plans", "--owner-email is missing"},
		worker + "--allow=":                     {"--allow is empty"},
		worker + "--grace 2h":                   {"--grace is 2h0m0s: write 1s to 1h"},
		worker + "--concurrency 0":              {"--concurrency is 0: write 1 to 1000"},
		worker + "--attempts 0":                 {"--attempts is 0: write 1 or more"},
		worker + "--memory-bytes 0":             {"--memory-bytes is 0"},
		worker + "--wait 1500ms":                {"--wait is 1.5s: write whole seconds"},
		worker + "--response-timeout 10ms":      {"--response-timeout is 10ms: write whole seconds"},
		worker + "--drain-timeout 0":            {"--drain-timeout is 0s"},
		worker + "--sweep-every -1s --queue=":   {"--sweep-every is -1s", "--queue is empty"},
		worker + "--class gpu":                  {`--class is "gpu": write control, data or isolation`},
		worker + "--class isolation":            {"--class isolation needs --isolation"},
		worker + "--class data --isolation a":   {"--isolation needs --class isolation"},
		worker + "--project shop":               {`--project is "shop"`, "name the tenant too"},
		worker + "--environment=":               {"--environment is empty"},
		worker + "--conductor localhost:8080":   {"--conductor is no URL", "http://host:port"},
		worker + "--conductor http://a:b@c":     {"--conductor is no URL", "--conductor-token-file"},
		worker + "--conductor http://c:1/api/":  {`--conductor is "http://c:1/api/": leave /api out`},
		worker + "--conductor-cacert ca.pem":    {"--conductor-cacert", "need an https:// URL"},
		worker + "--conductor-server-name c":    {"need an https:// URL"},
		worker + "--conductor-cert-key key.pem": {"--conductor-cert-key needs --conductor-cert"},
		worker + "--conductor http://c.example --conductor-token-file token": {"would leave this machine in plain text", "write https://"},
		"capabilities --wait 1ms": {"--wait is 1ms"},
	} {
		_, err := parsed(line)
		programtest.WantError(t, line, err, want...)
		if err != nil && strings.Contains(err.Error(), "a:b@") {
			t.Errorf("%s: the error has a password: %v", line, err)
		}
	}
	for _, line := range []string{"--help", "worker --help"} {
		if _, err := parsed(line); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestFiles: each fault of a file that a flag names is refused with the flag and the file.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, open, lines := filepath.Join(dir, "empty"), filepath.Join(dir, "open"), filepath.Join(dir, "lines")
	for path, text := range map[string]string{empty: "", open: "key", lines: "two\nlines"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	const secure = "--conductor https://127.0.0.1:1 "
	for line, want := range map[string]string{
		"--conductor-token-file " + empty:            "--conductor-token-file " + empty + ": it is empty",
		"--conductor-token-file " + open:             "other users can read it",
		"--conductor-token-file " + lines:            "it has a second line",
		"--conductor-token-file " + dir + "/none":    dir + "/none",
		secure + "--conductor-cacert " + empty:       "--conductor-cacert " + empty + " holds no certificate",
		secure + "--conductor-cert " + empty:         "--conductor-cert " + empty,
		secure + "--conductor-cacert " + dir + "/no": dir + "/no",
		"--token-file " + empty:                      "--token-file " + empty + ": it is empty",
		"--cacert " + empty:                          "--cacert " + empty,
		"--cert-key " + empty:                        "--cert-key needs cert",
		"--server https://a,b":                       "--server: ",
		"--executors shell":                          "name noop, command, http and llm",
		"--allow file://host/x":                      "file://host/x",
	} {
		a, err := parsed("capabilities " + line)
		if err == nil {
			err = a.run(t.Context())
		}
		programtest.WantError(t, line, err, want)
	}
}

// TestVersion: the command says which one it is.
func TestVersion(t *testing.T) {
	t.Parallel()
	programtest.WantVersion(t, run, name, version)
}

// TestCapabilitiesENG6: the command says what a worker with these flags can do. Only users of this
// machine can request runs of one without credentials, so that one has commands.
func TestCapabilitiesENG6(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("rlk_"+strings.Repeat("a", 43)), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"":                                  "command http noop",
		"--token-file " + token:             "noop",
		"--conductor-token-file " + token:   "noop",
		"--server 127.0.0.1:7410,a.example": "noop",
		"--conductor http://c.example":      "noop",
		"--conductor https://c.example --executors http":       "http noop",
		"--executors http,llm --llm-url http://127.0.0.1:1/v1": "http llm noop",
	} {
		var out bytes.Buffer
		if err := run(t.Context(), &out, io.Discard, append([]string{"capabilities"}, strings.Fields(line)...)); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		var c engine.Capabilities
		if err := json.Unmarshal(out.Bytes(), &c); err != nil || c.Adapter != "conductor" || !c.Reruns || !c.Knows("RETRY_STEP") {
			t.Errorf("%s: %v, %s", line, err, &out)
		}
		if got := programtest.Executors(c.Steps); got != want {
			t.Errorf("%s: want %q, got %q", line, want, got)
		}
	}
}

// impatient runs a worker that does not wait long for its servers, and returns what it logs.
func (b *bed) impatient(more ...string) (said string, err error) {
	var log bytes.Buffer
	a, err := parse(&log, &log, b.args(more...))
	if err != nil {
		return log.String(), err
	}
	a.patience = 2 * time.Second
	err = a.run(await.Context(b.t))
	return log.String(), err
}

// TestAway: an error about a server that does not answer, that is another one, or that refuses the
// credentials, names the operation, the cause and the remedy.
func TestAway(t *testing.T) {
	t.Parallel()
	b := newBed(t, conductortest.Authorized("key"))
	nothing := programtest.Closed
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	for _, tt := range []struct {
		what, flag, value string
		want              []string
	}{
		{"no Conductor", "--conductor", "http://" + nothing, []string{"cannot ask for the health of Conductor", "connection refused",
			"--conductor is http://" + nothing + ": start a Conductor"}},
		{"no runlog", "--server", nothing, []string{"cannot ask runlog", "--server is " + nothing + ": start a node", "runlog serve"}},
		{"no credentials", "--attempts", "3", []string{"status 401", "--conductor-token-file"}},
		{"too few roles", "--server", programtest.Door(t, runlogv1.Role_PRODUCER), []string{"token:ci has the roles [PRODUCER]", "needs PRODUCER and READER", "runlog token create"}},
		{"another server", "--conductor", other.URL, []string{"status 404", "which is no Conductor"}},
	} {
		said, err := b.impatient(tt.flag, tt.value)
		programtest.WantError(t, tt.what, err, tt.want...)
		if warned := strings.Count(said, "level=WARN"); warned > 1 || program.ExitCode(err) != program.ExitFailed {
			t.Errorf("%s: %d warnings, exit code %d:\n%s", tt.what, warned, program.ExitCode(err), said)
		}
	}
}

// TestStopsWaiting: a worker that gets SIGTERM while it waits for a server ends quietly with 0.
func TestStopsWaiting(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for what, flags := range map[string][]string{
		"call failed; retrying":                 {"--server", programtest.Closed},
		"cannot reach the server of the engine": {"--conductor", "http://" + programtest.Closed},
	} {
		p := programtest.Start(t, programtest.Command(b.args(flags...)...))
		p.Says(t, programtest.Has(what))
		if code := p.Stop(t); code != 0 || strings.Count(p.Said.String(), "\n") != 1 {
			t.Errorf("%q: exit code %d:\n%s", flags, code, p.Said)
		}
	}
}

// TestExitCodes: a fault of the command line, or of a file that it names, exits with 2, as at the
// other programs.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"": 2, "run": 2, "worker now": 2, "worker": 2, "worker --nonsense": 2, "capabilities --token-file /none": 2, "capabilities --executors shell": 2,
		"help": 0, "version": 0, "capabilities": 0, "worker --help": 0,
	} {
		p := programtest.Start(t, programtest.Command(strings.Fields(line)...))
		if code := p.Wait(t); code != want {
			t.Errorf("%q: exit code %d, want %d:\n%s", line, code, want, p.Said)
		}
	}
}

// TestPage: the commands of the page are those of this program, with flags that it has, and a
// worker with the flags of the page executes the plan of the page. The page has each flag.
func TestPage(t *testing.T) {
	t.Parallel()
	page := programtest.ReadPage(t, filepath.Join("..", "..", "..", "docs", "engines-conductor.md"))
	lines := page.Commands(name)
	for _, line := range lines {
		if _, err := parsed(line); err != nil && !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "worker ") {
		t.Fatalf("the page has the commands %q", lines)
	}
	b := newBed(t)
	b.work(append(strings.Fields(lines[0])[1:], "--conductor", b.fake.URL())...)
	b.requestPlan("run-1", "nightly", page.Plan(), "")
	b.until("run-1", "RunCompleted")
	a, err := parsed("capabilities")
	if err != nil {
		t.Fatal(err)
	}
	a.flags.VisitAll(func(f *flag.Flag) {
		if !strings.Contains(string(page), "`--"+f.Name) {
			t.Errorf("the page does not have --%s", f.Name)
		}
	})
}
