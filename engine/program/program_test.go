package program_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/engine/program"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// TestChoose: a command line names a verb, asks for help or the version, or is refused with what to
// write in its place.
func TestChoose(t *testing.T) {
	t.Parallel()
	verbs := []program.Verb{{Name: "worker", Short: "work"}, {Name: "start", Args: "FILE", Short: "start"}}
	for line, want := range map[string]string{
		"start plan.json": "1 <nil>  ", "--version": "0 flag: help requested runlog-x v1\n ",
		"help":   "0 flag: help requested  usage: runlog-x COMMAND [flags]\n  worker       work\n  start        start\n  version      print the version",
		"":       "0 name a command: runlog-x COMMAND --help tells its flags  usage:",
		"attack": `0 unknown command "attack": name a command`,
	} {
		out, errs := new(bytes.Buffer), new(bytes.Buffer)
		i, err := program.Choose("runlog-x", "v1", verbs, out, errs, strings.Fields(line))
		if got := strings.Join([]string{string(rune('0' + i)), text(err), out.String(), errs.String()}, " "); !strings.HasPrefix(got, want) {
			t.Errorf("%q: want %q, got %q", line, want, got)
		}
	}
	for i, tt := range []struct {
		args []string
		want string
	}{{[]string{"now"}, `worker takes flags alone, and got "now": leave it out`}, {nil, `start takes one argument, FILE, behind its flags, and got ""`}} {
		if err := verbs[i].CheckArguments(tt.args); text(err) != tt.want {
			t.Errorf("want %s, got %v", tt.want, err)
		}
	}
}

func text(err error) string {
	if err == nil {
		return "<nil>"
	}
	return err.Error()
}

// TestExitCode: a fault of the command line has an exit code of its own, with a remedy or without,
// and stays what it is.
func TestExitCode(t *testing.T) {
	t.Parallel()
	fault := errors.New("--allow is missing")
	for _, err := range []error{program.Usage(fault), program.Remedied(program.Usage(fault), "name it"), fmt.Errorf("worker: %w", program.Usage(fault))} {
		if !errors.Is(err, fault) || program.ExitCode(err) != program.ExitUsage {
			t.Errorf("%v: %d", err, program.ExitCode(err))
		}
	}
	if err := program.Usage(nil); err != nil || program.ExitCode(fault) != program.ExitFailed {
		t.Errorf("got %v, %d", err, program.ExitCode(fault))
	}
}

// waiting is a worker that waits for its servers in fake time. runlog answers.
func waiting(t *testing.T, said io.Writer, ask func(context.Context) error) *program.Servers {
	t.Helper()
	n := network.New(1)
	log := clienttest.Start(t, clienttest.On(n)).Client(client.Options{})
	return &program.Servers{Node: &program.Node{}, Log: log, Engine: "Mill", Address: "mill:1", Patience: 3 * time.Minute, Ask: ask,
		Away: func(err error) bool { return errors.Is(err, errAway) }, Logger: slog.New(slog.NewTextHandler(said, nil))}
}

var errAway, errRefused = errors.New("connection refused"), errors.New("no such namespace")

// TestWait: a worker waits for the server of its engine. It says so when that begins, seldom while
// it lasts, and when the server answers. The end of its patience, a refusal and a signal end the
// wait: its error is the cause.
func TestWait(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers map[time.Duration]error // from when on
		stop    time.Duration
		want    error
		took    time.Duration
		over    int // lines
	}{
		"at once":   {answers: map[time.Duration]error{0: nil}},
		"later":     {answers: map[time.Duration]error{0: errAway, 2 * time.Minute: nil}, took: 2 * time.Minute, over: 1},
		"never":     {answers: map[time.Duration]error{0: errAway}, want: errAway, took: 3 * time.Minute},
		"refused":   {answers: map[time.Duration]error{0: errRefused}, want: errRefused},
		"a signal":  {answers: map[time.Duration]error{0: errAway}, stop: time.Minute, want: errAway, took: time.Minute},
		"then else": {answers: map[time.Duration]error{0: errAway, time.Minute: errRefused}, want: errRefused, took: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var began time.Time
				s := waiting(t, &said, func(context.Context) error {
					last, answer := time.Duration(-1), error(nil)
					for from, err := range tt.answers {
						if time.Since(began) >= from && from > last {
							last, answer = from, err
						}
					}
					return answer
				})
				if began = time.Now(); tt.stop > 0 {
					time.AfterFunc(tt.stop, stop)
				}
				err := s.Wait(ctx)
				if took := time.Since(began); !errors.Is(err, tt.want) || took < tt.took || took > tt.took+5*time.Second {
					t.Errorf("got %v after %v, want %v after %v", err, took, tt.want, tt.took)
				}
				warned, over := strings.Count(said.String(), "cannot reach the server of the engine; retrying\" engine=Mill address=mill:1"), strings.Count(said.String(), "the server of the engine answers")
				if over != tt.over || warned > 4 || (warned > 0) != (tt.took > 0) {
					t.Errorf("logged\n%s", said.String())
				}
			})
		})
	}
}

// TestQueuesENG3: a worker has the task queues of its classes and tenants alone. Each fault of its
// flags is told.
func TestQueuesENG3(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                                   "tq-control-prod tq-data-prod",
		"--isolation acme --queue tq-gpu":    "tq-gpu tq-control-prod tq-data-prod tq-isolation-acme-prod",
		"--class control":                    "tq-control-prod",
		"--class data --queue tq-gpu":        "tq-gpu tq-data-prod",
		"--class isolation --isolation acme": "tq-isolation-acme-prod",
		"--class isolation":                  "--class isolation needs --isolation",
		"--class data --isolation acme":      "--isolation needs --class isolation",
		"--class gpu":                        `--class is "gpu"`,
		"--queue= --isolation=":              "--isolation is empty",
	} {
		var q program.Queues
		set := flag.NewFlagSet("", flag.ContinueOnError)
		q.Register(set)
		if err := set.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		var f program.Faults
		q.Check(&f)
		queues, isolation := q.Of("prod")
		for _, o := range isolation {
			queues = append(queues, o.Queue())
		}
		if got := text(f.Join()); !strings.Contains(got, want) && (got != "<nil>" || strings.Join(queues, " ") != want) {
			t.Errorf("%s: want %s, got %q, %s", line, want, queues, got)
		}
	}
}

// TestNodeENG7: a connection with credentials, or to another machine, is not private. Its errors
// get the remedy that they lack.
func TestNodeENG7(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"": true, "--server localhost:7410,127.0.0.1:1": true, "--server a.example": false, "--server 127.0.0.1:1,a.example": false,
		"--token-file token": false, "--cert client.pem": false,
	} {
		var n program.Node
		set := flag.NewFlagSet("", flag.ContinueOnError)
		n.Register(set)
		if err := set.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		if got := n.Private(); got != want {
			t.Errorf("%q: got %v, want %v", line, got, want)
		}
	}
	n := program.Node{Page: "docs/x.md"}
	n.Server = "127.0.0.1:7410"
	for want, err := range map[string]error{
		"--token-file":          &client.Error{Code: codes.Unauthenticated, Reason: client.ReasonUnauthenticated, Message: "who"},
		"docs/x.md":             &client.Error{Code: codes.PermissionDenied, Reason: client.ReasonPermissionDenied, Message: "no"},
		"runlog serve":          &client.Error{Code: codes.Unavailable, Message: "connection refused"},
		"no node of runlog":     &client.Error{Code: codes.Unimplemented, Message: "unknown service"},
		"speaks no gRPC":        &client.Error{Code: codes.Unavailable, Message: "error reading server preface"},
		"cannot do it; correct": errors.New("cannot do it; correct"),
	} {
		if got := program.Remedied(err, n.Remedy(err)); !strings.Contains(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("want %s, got %v", want, got)
		}
	}
}

// TestHealth: a worker serves its metrics, and says whether it works. It serves nothing else.
func TestHealth(t *testing.T) {
	t.Parallel()
	h, errs := program.NewHealth(), new(bytes.Buffer)
	set := flag.NewFlagSet("", flag.ContinueOnError)
	h.Register(set)
	if err := set.Parse([]string{"--metrics-listen", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	end, err := h.Serve("x", slog.New(slog.NewTextHandler(errs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	listen := regexp.MustCompile(`listen=(\S+)`).FindStringSubmatch(errs.String())
	if listen == nil {
		t.Fatalf("the log has no address: %s", errs)
	}
	ctx, stop := context.WithCancel(t.Context())
	asks := func(ready string, statuses ...int) {
		t.Helper()
		var got []int
		for _, path := range []string{"/healthz", "/readyz", "/debug/pprof/", "/metrics"} {
			resp, err := http.Get("http://" + listen[1] + path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if got = append(got, resp.StatusCode); err != nil || path == "/metrics" && !strings.Contains(string(text), "runlog_x_ready "+ready) {
				t.Errorf("%s: %v, %s", path, err, text)
			}
		}
		if !slices.Equal(got, statuses) {
			t.Errorf("got %d, want %d", got, statuses)
		}
	}
	asks("0", 200, 503, 404, 200)
	h.Works(ctx)
	asks("1", 200, 200, 404, 200)
	stop()
	asks("0", 200, 503, 404, 200)
}
