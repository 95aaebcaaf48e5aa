package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/engine"
	"runlog/engine/conductor/conductortest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// wantError checks that an error names each of some texts.
func wantError(t *testing.T, what string, err error, texts ...string) {
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
		wantError(t, line, err, want...)
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
		wantError(t, line, err, want)
	}
}

// TestVersion: the command says which one it is.
func TestVersion(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"version", "--version", "-version"} {
		out, errs := new(bytes.Buffer), new(bytes.Buffer)
		if err := run(t.Context(), out, errs, []string{arg}); !errors.Is(err, flag.ErrHelp) || out.String() != "runlog-conductor "+version+"\n" || errs.Len() > 0 {
			t.Errorf("%s: %v, %q, %q", arg, err, out, errs)
		}
	}
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
		var names []string
		for _, capability := range c.Steps {
			if name, executes := strings.CutPrefix(capability, "executor:"); executes {
				names = append(names, name)
			}
		}
		if slices.Sort(names); strings.Join(names, " ") != want {
			t.Errorf("%s: want %q, got %q", line, want, names)
		}
	}
}

// closed returns an address where nothing listens.
func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// impatient runs a worker that does not wait long for its servers.
func (b *bed) impatient(more ...string) error {
	a, err := parse(new(bytes.Buffer), new(bytes.Buffer), b.args(more...))
	if err != nil {
		return err
	}
	a.patience = 2 * time.Second
	return a.run(await.Context(b.t))
}

// TestAway: an error about a server that does not answer, that is another one, or that refuses the
// credentials, names the operation, the cause and the remedy.
func TestAway(t *testing.T) {
	t.Parallel()
	b := newBed(t, conductortest.Authorized("key"))
	nothing := closed(t)
	wantError(t, "no Conductor", b.impatient("--conductor", "http://"+nothing), "cannot ask for the health of Conductor", "connection refused",
		"--conductor is http://"+nothing+": start a Conductor")
	wantError(t, "no runlog", b.impatient("--server", nothing), "cannot ask runlog", "--server is "+nothing+": start a node", "runlog serve")
	wantError(t, "no credentials", b.impatient(), "status 401", "--conductor-token-file")
	wantError(t, "too few roles", b.impatient("--server", door(t, runlogv1.Role_PRODUCER)), "token:ci has the roles [PRODUCER]", "needs PRODUCER and READER", "runlog token create")
	other := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = other.Serve(l); close(ended) }()
	t.Cleanup(func() { _ = other.Close(); <-ended })
	wantError(t, "another server", b.impatient("--conductor", "http://"+l.Addr().String()), "status 404", "which is no Conductor")
}

// doorman answers whose credentials a call has.
type doorman struct {
	runlogv1.UnimplementedAccessServiceServer
	roles []runlogv1.Role_Value
}

// WhoAmI answers as a node that demands credentials.
func (d doorman) WhoAmI(context.Context, *runlogv1.WhoAmIRequest) (*runlogv1.WhoAmIResponse, error) {
	return &runlogv1.WhoAmIResponse{Name: "token:ci", Tenants: []string{"*"}, Roles: d.roles}, nil
}

// door returns the address of a doorman.
func door(t *testing.T, roles ...runlogv1.Role_Value) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runlogv1.RegisterAccessServiceServer(s, doorman{roles: roles})
	ended := make(chan struct{})
	go func() { _ = s.Serve(l); close(ended) }()
	t.Cleanup(func() { s.Stop(); <-ended })
	return l.Addr().String()
}

// TestPage: the commands of the page are those of this program, with flags that it has, and a
// worker with the flags of the page executes the plan of the page. The page has each flag.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "engines-conductor.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(text), "\\\n", " ")
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^runlog-conductor (.*)$`).FindAllStringSubmatch(page, -1) {
		if _, err := parsed(m[1]); err != nil && !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", m[0], err)
		}
		lines = append(lines, m[1])
	}
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "worker ") {
		t.Fatalf("the page has the commands %q", lines)
	}
	_, body, _ := strings.Cut(string(text), "plan.json <<'PLAN'\n")
	body, _, _ = strings.Cut(body, "PLAN\n")
	b := newBed(t)
	b.work(append(strings.Fields(lines[0])[1:], "--conductor", b.fake.URL())...)
	b.requestPlan("run-1", "nightly", body, "")
	b.until("run-1", "RunCompleted")
	a, err := parsed("capabilities")
	if err != nil {
		t.Fatal(err)
	}
	a.flags.VisitAll(func(f *flag.Flag) {
		if !strings.Contains(page, "`--"+f.Name) {
			t.Errorf("the page does not have --%s", f.Name)
		}
	})
}
