package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/engine/program/programtest"
	"runlog/server"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	programtest.Main(m, main, func() {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
	})
}

// built is the program of nodes, which the first test that needs it builds.
var built struct {
	sync.Once
	dir string
	err error
}

// runlogProgram returns the path of the program runlog of this repository.
func runlogProgram(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "runlog-runner-test-"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-ldflags=-s", "-o", built.dir, "./cmd/runlog")
		build.Dir = filepath.Join("..", "..", "..")
		if said, err := build.CombinedOutput(); err != nil {
			built.err = errors.Join(err, errors.New(string(said)))
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "runlog")
}

// serves is what a node logs once it serves. It has written addresses.json before.
var serves = regexp.MustCompile(`(?m)^.* msg=ready .*\n`)

// startNode starts a node on free ports, and waits until it serves.
func startNode(t *testing.T, dir string, env ...string) server.Addresses {
	t.Helper()
	p := programtest.Start(t, exec.Command(runlogProgram(t), "serve", "--data-dir", dir, "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
		"--admin-listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0"), append(env, "RUNLOG_MEMORY=256MiB")...)
	p.Says(t, serves.MatchString)
	var a server.Addresses
	text, err := os.ReadFile(filepath.Join(dir, "addresses.json"))
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		t.Fatalf("the node serves, and does not say where: %v\n%s", err, p.Said)
	}
	return a
}

// runnerProcess is a runner in a process of its own.
type runnerProcess struct {
	*programtest.Process
	url string
}

var listens = regexp.MustCompile(`runner serves" listen=(\S+) `)

// spawnRunner starts a runner of the scope acme/shop/prod on a free port, and waits until it
// serves.
func spawnRunner(t *testing.T, node string, env []string, flags ...string) *runnerProcess {
	t.Helper()
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--tenant", "acme", "--project", "shop", "--environment", "prod"}, flags...)
	p := &runnerProcess{Process: programtest.Start(t, programtest.Command(args...), append(env, "RUNLOG_SERVER="+node)...)}
	p.Says(t, listens.MatchString)
	p.url = "http://" + listens.FindStringSubmatch(p.Said.String())[1]
	return p
}

// programs runs command lines of both programs at a server.
type programs struct {
	t      *testing.T
	server string
}

// runlog runs a command of the program runlog.
func (p *programs) runlog(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	return p.run(exec.Command(runlogProgram(p.t), args...))
}

// runner runs a command of this program.
func (p *programs) runner(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	return p.run(programtest.Command(args...))
}

func (p *programs) run(cmd *exec.Cmd) (code int, stdout, stderr string) {
	p.t.Helper()
	var out, errs bytes.Buffer
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(cmd.Env, "RUNLOG_SERVER="+p.server), &out, &errs
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			p.t.Fatal(err)
		}
	}
	if strings.Contains(errs.String(), "goroutine ") {
		p.t.Errorf("%v printed a stack:\n%s", cmd.Args, errs.String())
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// testSession is the session of a command line in this process, without an environment.
func testSession(out, errs io.Writer) *session.Session {
	return &session.Session{
		Output: output.Output{Stdout: out, Stderr: errs}, Getenv: func(string) string { return "" }, Version: version,
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.json")
	programtest.Write(t, path, text)
	return path
}

func hexSHA256(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
