package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"runlog/server/servertest/procs"
)

// TestReadme runs the console blocks of the documents as they are written, in order, against one
// node, and compares what the commands print. Only the node's ports differ from the text.
func TestReadme(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{"README.md", "docs/running.md", "docs/reading.md", "docs/ui.md", "docs/audit.md", "docs/auditing.md", "docs/witness.md", "docs/benchmarks.md", "docs/writing.md", "docs/client.md",
		"docs/queue.md", "docs/engines.md", "docs/workers.md", "docs/signals.md", "docs/event-bus.md", "docs/attestation.md"} {
		t.Run(doc, func(t *testing.T) {
			t.Parallel()
			steps := readConsole(t, filepath.Join("..", "..", doc))
			bin := binDir(t)
			buildOthers(t, bin, steps)
			n := spawnNode(t, t.TempDir())
			a := n.ready(t)
			sh := shell{t: t, dir: workDir(t, doc), env: append(os.Environ(), asRunlog+"=1", "RUNLOG_SERVER="+a.GRPC,
				"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))}
			ports := strings.NewReplacer("127.0.0.1:7410", a.GRPC, "127.0.0.1:7411", a.HTTP, "127.0.0.1:7412", a.Admin, "127.0.0.1:7420", procs.Reserve(t, 1)[0], "127.0.0.1:7430", procs.Reserve(t, 1)[0])
			for _, s := range steps {
				if tool, _, _ := strings.Cut(s.command, " "); slices.Contains(others, tool) && !installed(t, tool) {
					continue
				}
				got := sh.run(ports.Replace(s.command))
				if want, have := steady(s.want), steady(got); !matches(want, have) {
					t.Errorf("line %d: $ %s\nprinted:\n%s\nthe document says:\n%s", s.line, s.command, have, want)
				}
			}
		})
	}
}

// others are programs of auditors, which the documents show and developers need not have.
var others = []string{"sqlite3", "python3"}

// installed reports whether a program is installed. If CI is set it must be: .ci/run installs it.
func installed(t *testing.T, tool string) bool {
	t.Helper()
	_, err := exec.LookPath(tool)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	return err == nil
}

// consoleStep is a command of a document and what it says that the command prints.
type consoleStep struct {
	line          int
	command, want string
}

// readConsole collects the ```console blocks: a command begins with "$ " and goes on while its
// quotes are open or its line ends with a backslash.
func readConsole(t *testing.T, path string) []consoleStep {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var steps []consoleStep
	var inBlock, inCommand bool
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case !inBlock:
			inBlock = line == "```console"
		case line == "```":
			inBlock = false
		case inCommand:
			s := &steps[len(steps)-1]
			s.command += "\n" + line
			inCommand = unfinished(s.command)
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, consoleStep{line: i + 1, command: line[2:]})
			inCommand = unfinished(line[2:])
		case len(steps) == 0:
			t.Fatalf("%s:%d: output before a command", path, i+1)
		default:
			steps[len(steps)-1].want += line + "\n"
		}
	}
	if len(steps) == 0 {
		t.Fatalf("%s has no console block: the test proves nothing", path)
	}
	return steps
}

func unfinished(command string) bool {
	return strings.Count(command, "'")%2 == 1 || strings.HasSuffix(command, `\`)
}

// binDir has a runlog that is this test binary.
func binDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "runlog")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ours are the other programs of this repository, and the modules that they are in.
var ours = map[string]struct{ module, path string }{
	"runlog-bench":  {".", "./cmd/runlog-bench"},
	"runlog-runner": {"engine", "./cmd/runlog-runner"},
}

// buildOthers builds those of them into a directory that a step uses. The load generator starts the
// nodes of the runlog there.
func buildOthers(t *testing.T, dir string, steps []consoleStep) {
	t.Helper()
	for name := range ours {
		if slices.ContainsFunc(steps, func(s consoleStep) bool { return strings.HasPrefix(s.command, name+" ") }) {
			buildOther(t, dir, name)
		}
	}
}

func buildOther(t *testing.T, dir, name string) {
	t.Helper()
	build := exec.Command("go", "build", "-ldflags=-w", "-o", dir, ours[name].path)
	build.Dir = filepath.Join("..", "..", ours[name].module)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// workDir has the documents where the commands look for them, and room for what they write.
func workDir(t *testing.T, doc string) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := sameDir(t, root+"/"+doc)
	for _, name := range []string{"docs", "proto", "client", "engine", "examples", "go.mod", "go.sum",
		"server", "storage", "raft", "projector", "audit", "testbed"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sameDir returns an empty directory, which is the same one in the next run of the test. Go then
// has in its cache what programs of a document import: to Go, the same package in another directory
// is another one. While another run of the tests has the directory, it returns another one.
func sameDir(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "runlog-"+hexSHA256(name)[:16])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return t.TempDir()
	}
	work := filepath.Join(dir, "work")
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	return work
}

type shell struct {
	t   *testing.T
	dir string
	env []string
}

// background ends what commands leave running, with the test: each command is a process group.
func (s *shell) background(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.t.Cleanup(func() {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	})
}

// run returns what a command prints. Its exit code is part of what commands here are for: refusals
// are shown too, so only bash's own failures count.
func (s *shell) run(command string) string {
	s.t.Helper()
	if variable, ok := strings.CutPrefix(command, "export "); ok {
		s.env = append(s.env, variable)
		return ""
	}
	cmd := exec.Command("bash", "-c", command)
	s.background(cmd)
	cmd.Dir = s.dir
	cmd.Env = s.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() >= 126 {
		s.t.Fatalf("$ %s\n%v\n%s", command, err, out.String())
	}
	return out.String()
}

// volatile is what differs from one node to the next.
var volatile = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<uuid>"},
	// These hold the event's id and time; keys, payload and snapshot digests do not, and are
	// compared.
	{regexp.MustCompile(`"(payloadSalt|payloadDigest|recordDigest|chainDigest)":"[0-9a-f]{32,64}"`), `"$1":"<digest>"`},
	{regexp.MustCompile(`\b2026-(0[3-9]|1\d)-\d\dT[0-9:.]+Z|\b20(2[7-9]|[3-9]\d)-\d\d-\d\dT[0-9:.]+Z`), "<now>"},
	{regexp.MustCompile(`"position":"[0-9a-f]{16}-\d+"`), `"position":"<position>"`},
	{regexp.MustCompile(`\b[0-9a-f]{16}-(\d+-payroll)\b`), "<incarnation>-$1"},
	// A resume token begins with the incarnation of the cluster.
	{regexp.MustCompile(`"resumeToken":"[0-9a-f]{16}-Ag[\w-]+"`), `"resumeToken":"<token>"`},
	{regexp.MustCompile(`^id: [0-9a-f]{16}-Ag[\w-]+$`), "id: <token>"},
	// An entity tag holds a hash over the form of the answer.
	{regexp.MustCompile(`"etag":"W/\\"(\d+)-[\w-]{16}\\""`), `"etag":"W/\"$1-<tag>\""`},
	{regexp.MustCompile(`"lagMs":"\d+"`), `"lagMs":"<lag>"`},
	{regexp.MustCompile(`in [0-9.µm]+s \([0-9,]+/s\)`), "in <time>"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<cluster>"},
	{regexp.MustCompile(`(?i)\b(digest +)[0-9a-f]{64}\b`), "$1<digest>"},
	{regexp.MustCompile(`^(Signed by|Signature) .*`), "$1"},
	{regexp.MustCompile(`\bnode-[0-9a-f]{8}\b`), "<node>"},
	{regexp.MustCompile(`\b20\d{6}T\d{6}\.\d{3}Z-\d+-[0-9a-f]{16}\b`), "<backup>"},
	{regexp.MustCompile(`\d+ files, [0-9.]+ [KMG]?i?B`), "<files>"},
	{regexp.MustCompile(`not signed$|signed with .*, which was not checked \(--key\)$`), "<signature>"},
	{regexp.MustCompile(`serve --data-dir \S+`), "serve --data-dir <dir>"},
	{regexp.MustCompile(`directory is not empty: .*; name`), "directory is not empty: <dir>; name"},
	{regexp.MustCompile(` +`), " "},
}

// steady brings text into a form that does not depend on the time, the node or the spelling of
// JSON.
func steady(text string) string {
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		field, value := "", line
		if rest, ok := strings.CutPrefix(line, "data: "); ok {
			field, value = "data: ", rest
		}
		var v any
		if strings.HasPrefix(value, "{") && json.Unmarshal([]byte(value), &v) == nil {
			compact, err := json.Marshal(v)
			if err != nil {
				panic(fmt.Sprintf("JSON that was just read: %v", err))
			}
			line = field + string(compact)
		}
		for _, f := range volatile {
			line = f.pattern.ReplaceAllString(line, f.with)
		}
		out = append(out, strings.TrimSpace(line))
	}
	return strings.Join(out, "\n")
}

// matches compares line by line; a line "..." stands for any lines, also none, and "..." at the end
// of a line for its rest.
func matches(want, have string) bool {
	var pattern strings.Builder
	for _, line := range strings.Split(want, "\n") {
		if line == "..." {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		begin, open := strings.CutSuffix(line, "...")
		pattern.WriteString(regexp.QuoteMeta(begin))
		if open {
			pattern.WriteString(`.*`)
		}
		pattern.WriteString(`\n`)
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(have + "\n")
}
