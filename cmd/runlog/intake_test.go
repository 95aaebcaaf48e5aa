package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"runlog/client/command/output"
)

// processes runs command lines of real processes against one node.
type processes struct {
	t      *testing.T
	server string
}

func (p *processes) run(stdin string, args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	cmd := runlogCommand([]string{"RUNLOG_SERVER=" + p.server}, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			p.t.Fatal(err)
		}
	}
	if strings.Contains(errs.String(), "goroutine ") {
		p.t.Errorf("runlog %v printed a stack:\n%s", args, errs.String())
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

const goodLine = `{"eventType":"%s","runId":"%s","tenantId":"t","projectId":"p","environmentId":"e","planId":"plan","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"%s}`

func line(eventType, run, more string) string { return fmt.Sprintf(goodLine, eventType, run, more) }

// TestBadInputOnARealNode: whatever is wrong with a line, it is named with what to do, the rest
// goes in, nothing of it is stored, and the exit code says so (ENV-1, ENV-2, ENV-3, ENV-4, IDM-5).
func TestBadInputOnARealNode(t *testing.T) {
	t.Parallel()
	n := spawnNode(t, t.TempDir())
	p := processes{t: t, server: n.ready(t).GRPC}
	for i, test := range []struct{ name, bad, says string }{
		{"not JSON", `{"eventType": "RunStarted",`, "JSON"},
		{"not an object", `[1, 2]`, "object"},
		{"a missing field", strings.Replace(line("RunQueued", "RUN", ""), `"tenantId":"t",`, "", 1), "tenantId"},
		{"a missing run", strings.Replace(line("RunQueued", "RUN", ""), `"runId":"RUN",`, "", 1), "runId"},
		{"a stepId on a run event", line("RunQueued", "RUN", `,"stepId":"s"`), "stepId"},
		{"a step event without stepId", line("StepStarted", "RUN", ""), "stepId"},
		{"a vertical bar in an id", strings.Replace(line("RunQueued", "RUN", ""), `"plan"`, `"pl|an"`, 1), "planId"},
		{"a wrong key", line("RunQueued", "RUN", `,"idempotencyKey":"abc"`), contractKey("RunQueued", "RUN")},
		{"occurredAt", line("RunQueued", "RUN", `,"occurredAt":"2026-02-11T10:30:00Z"`), "sourceOccurredAt"},
		{"a typing error", line("RunQueued", "RUN", `,"emitedBy":"x"`), "emitedBy"},
		{"a payload that is no object", line("RunQueued", "RUN", `,"payload":[1]`), "payload"},
		{"a payload over the limit", line("RunQueued", "RUN", `,"payload":{"a":"`+strings.Repeat("x", 65529)+`"}`), "payload is 65537 bytes, the limit is 65536: store the data elsewhere"},
		{"invalid UTF-8", line("RunQueued", "RUN", ",\"payload\":{\"a\":\"\xff\"}"), "invalid UTF-8"},
		{"a member twice", line("RunQueued", "RUN", `,"planId":"other"`), "planId appears twice: keep one"},
		{"extensions that are a list", line("RunQueued", "RUN", `,"extensions":[]`), "extensions must be a JSON object, got an array"},
		{"large extensions", line("RunQueued", "RUN", `,"extensions":{"a":"`+strings.Repeat("x", 4089)+`"}`), "extensions is 4097 bytes, the limit is 4096"},
		{"no attempt and no cause", strings.Replace(line("RunPaused", "RUN", ""), `"logicalAttemptId":1,`, "", 1), "logicalAttemptId is required: number the run's RunPaused events from 1"},
		{"another tenant", strings.Replace(line("RunQueued", "RUN", ""), `"t"`, `"u"`, 1), `belongs to tenantId "t", not to "u"`},
		{"a wrong version", line("RunQueued", "RUN", `,"contractVersion":"3"`), "contractVersion"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := processes{t: t, server: p.server}
			run := fmt.Sprintf("bad-%d", i)
			// The key depends on the run's name, so every case has the same one and another prefix.
			bad := strings.ReplaceAll(test.bad, "RUN\"", run+"\"")
			says := test.says
			if test.name == "a wrong key" {
				says = contractKey("RunQueued", run)
			}
			file := filepath.Join(t.TempDir(), "events.jsonl")
			text := line("RunStarted", run, "") + "\n" + bad + "\n\n" + line("RunCompleted", run, "") + "\n"
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			code, _, stderr := p.run("", "append", "--keep-going", "-f", file)
			if code != int(output.ExitRefused) {
				t.Errorf("exit %d, want %d", code, output.ExitRefused)
			}
			if !strings.HasPrefix(stderr, file+":2: ") || !strings.Contains(stderr, says) || strings.Count(stderr, file) != 1 {
				t.Errorf("stderr does not name %s:2 and %q:\n%s", file, says, stderr)
			}
			code, stdout, _ := p.run("", "events", run, "-o", "json")
			if code != 0 || strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, "RunStarted") || !strings.Contains(stdout, "RunCompleted") {
				t.Errorf("the rest did not go in alone: exit %d\n%s", code, stdout)
			}
		})
	}
	t.Run("an unknown run", func(t *testing.T) {
		p := processes{t: t, server: p.server}
		for _, args := range [][]string{{"snapshot", "nowhere"}, {"events", "nowhere"}, {"watch", "nowhere", "--must-exist"}} {
			code, stdout, stderr := p.run("", args...)
			if code != int(output.ExitNotFound) || stdout != "" || !strings.HasPrefix(stderr, "runlog: RUN_NOT_FOUND: ") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("runlog %v: exit %d, %q, %q", args, code, stdout, stderr)
			}
		}
		code, stdout, stderr := p.run("", "watch", "nowhere", "--until-done", "--for", "500ms")
		if code != int(output.ExitTimeout) || stdout != "" || !strings.HasPrefix(stderr, "run \"nowhere\" does not exist yet; waiting for it\n") {
			t.Errorf("a watch that waits: exit %d, %q, %q", code, stdout, stderr)
		}
	})
	t.Run("standard input", func(t *testing.T) {
		p := processes{t: t, server: p.server}
		code, _, stderr := p.run("nonsense\n"+line("RunStarted", "piped", "")+"\n", "append", "-f", "-")
		if code != int(output.ExitRefused) || !strings.Contains(stderr, ":1: ") {
			t.Errorf("exit %d, %q", code, stderr)
		}
	})
	t.Run("no server", func(t *testing.T) {
		p := processes{t: t, server: "127.0.0.1:1"}
		code, _, stderr := p.run("", "snapshot", "r")
		if code != int(output.ExitUnavailable) || !strings.Contains(stderr, "127.0.0.1:1") || !strings.Contains(stderr, "runlog serve") {
			t.Errorf("exit %d, %q", code, stderr)
		}
	})
	if code := n.stop(t); code != 0 {
		t.Errorf("the node ended with exit code %d:\n%s", code, n.stderr)
	}
}

// TestOddInputOnARealNode: what the command line takes although it is odd, what it says of it, and
// what is stored (ENV-6, ENV-8, ENV-9, IDM-7, IDM-10).
func TestOddInputOnARealNode(t *testing.T) {
	t.Parallel()
	n := spawnNode(t, t.TempDir())
	p := processes{t: t, server: n.ready(t).GRPC}
	pause := strings.Replace(line("RunPaused", "odd", `,"causedBySignalId":"SIGNAL"`), `"logicalAttemptId":1,`, "", 1)
	for _, c := range []struct{ name, line, says, stored string }{
		{"the first event", line("RunStarted", "odd", `,"payload":{"n":9007199254740993,"m":1.10}`), "1 inserted, 0 duplicates (0 diverged), 0 refused", `"payload":{"n":9007199254740993,"m":1.10}`},
		{"another payload", line("RunStarted", "odd", `,"payload":{"n":1}`), "0 inserted, 1 duplicate (1 diverged), 0 refused", ""},
		{"a misspelled type", line("RunPuased", "odd", ""), `warning: unknown event type "RunPuased" changes no snapshot; did you mean RunPaused?`, `"RunPuased"`},
		{"a field of another form", line("StepFailed", "odd", `,"stepId":"s","payload":{"error":7}`), "payload/error should be an object, got 7", `"payload":{"error":7}`},
		{"members twice in the payload", line("Noted", "odd", `,"payload":{"a":1,"a":2}`), "1 inserted", `"payload":{"a":1,"a":2}`},
		{"a pause", strings.Replace(pause, "SIGNAL", "a", 1), "1 inserted", `"logicalAttemptId":1,`},
		{"another pause", strings.Replace(pause, "SIGNAL", "b", 1), "1 inserted", `"logicalAttemptId":2,`},
		{"the same pause", strings.Replace(pause, "SIGNAL", "b", 1), "0 inserted, 1 duplicate (0 diverged)", ""},
		{"nothing", "", "0 events", ""},
	} {
		_, before, _ := p.run("", "events", "odd", "-o", "json")
		code, stdout, stderr := p.run(c.line+"\n", "append", "-f", "-")
		if code != 0 || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s: exit %d, %q, %q; want %q", c.name, code, stdout, stderr, c.says)
		}
		_, after, _ := p.run("", "events", "odd", "-o", "json")
		added, ok := strings.CutPrefix(after, before)
		if !ok || strings.Count(added, "\n") != min(1, len(c.stored)) || !strings.Contains(added, c.stored) {
			t.Errorf("%s: stored\n%s\nwant one event with %s", c.name, added, c.stored)
		}
	}
}

// contractKey is the derived key of a run event of goodLine, worked out by the formula of IDM-1.
func contractKey(eventType, run string) string {
	return hexSHA256(run + "|RUN|1|" + eventType + "|plan|1")
}

// TestDemo runs the demonstration of the README as make demo does: what goes in the second time is
// recognised and nothing is inserted (IDM-6). A compute step is attested, and the proof of its run
// is verified (ATT-4, ATT-6).
func TestDemo(t *testing.T) {
	t.Parallel()
	bin := binDir(t)
	buildOther(t, bin, "runlog-runner")
	cmd := exec.Command("./tools/demo.sh")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), asRunlog+"=1", "RUNLOG="+filepath.Join(bin, "runlog"), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	for _, want := range []string{
		": 154 inserted, 0 duplicates (0 diverged), 0 refused",
		": 0 inserted, 154 duplicates (0 diverged), 0 refused",
		"Status        COMPLETED",
		" is waiting\n", `"new_status":"SUCCESS"`, " is success\n", "StepAttested", "Records     up to runSeq 11, each in the log", "Signature   verified",
		"The node serves HTTP on http://127.0.0.1:",
		"Both stop now",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the demo does not print %q:\n%s", want, text)
		}
	}
}
