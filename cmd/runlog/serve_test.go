package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"runlog/client/command/output"
)

// serveFailure runs a node that must not start, and returns its exit code and what it said.
func serveFailure(t *testing.T, env []string, args ...string) (int, string) {
	t.Helper()
	cmd := runlogCommand(env, append([]string{"serve", "--log-level", "error",
		"--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
		"--admin-listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Fatalf("the node did not fail: %v", err)
	}
	text := stderr.String()
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "runlog: ") || strings.Contains(text, "goroutine") {
		t.Errorf("not one clear line:\n%s", text)
	}
	return cmd.ProcessState.ExitCode(), text
}

// TestServeRefusals: a node that cannot start says why and what to do, in one line, and touches
// nothing.
func TestServeRefusals(t *testing.T) {
	t.Parallel()
	t.Run("data directory in use", func(t *testing.T) {
		dir := t.TempDir()
		n := spawnNode(t, dir)
		n.ready(t)
		code, text := serveFailure(t, nil, "--data-dir", dir)
		if want := fmt.Sprintf("data directory %s is in use by process %d", dir, n.cmd.Process.Pid); code != int(output.ExitFailed) || !strings.Contains(text, want) {
			t.Errorf("exit %d, %q; want %q", code, text, want)
		}
		if code := n.stop(t); code != 0 {
			t.Errorf("the first node ended with %d", code)
		}
	})
	t.Run("port in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		dir := t.TempDir()
		for _, flag := range []string{"--grpc-listen", "--http-listen", "--admin-listen", "--raft-listen"} {
			code, text := serveFailure(t, nil, "--data-dir", dir, flag, l.Addr().String())
			if code != int(output.ExitFailed) || !strings.Contains(text, flag+" "+l.Addr().String()) || !strings.Contains(text, "port is in use") {
				t.Errorf("%s: exit %d, %q", flag, code, text)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "store")); !os.IsNotExist(err) {
			t.Errorf("a node that never started made a store: %v", err)
		}
	})
	t.Run("read-only directory", func(t *testing.T) {
		// The kernel's own file systems take no new directories, not even from root.
		code, text := serveFailure(t, nil, "--data-dir", "/sys/runlog-data")
		if code != int(output.ExitFailed) || !strings.Contains(text, "/sys/runlog-data") || !strings.Contains(text, "--data-dir") {
			t.Errorf("exit %d, %q", code, text)
		}
	})
	t.Run("data directory is a file, or below one", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{file, filepath.Join(file, "x"), "/dev/null/x"} {
			code, text := serveFailure(t, nil, "--data-dir", path)
			if code != int(output.ExitFailed) || !strings.Contains(text, "make "+path+": ") || !strings.Contains(text, "not a directory; choose another with --data-dir") {
				t.Errorf("%s: exit %d, %q", path, code, text)
			}
		}
	})
	t.Run("clocks", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data")
		for value, want := range map[string]string{
			"-1h": "--max-clock-ahead -1h0m0s is less than 10s; 0 means no limit",
			"9s":  "--max-clock-ahead 9s is less than 10s; 0 means no limit",
			"1":   "missing unit", "soon": "invalid duration", "": "invalid duration",
		} {
			code, text := serveFailure(t, nil, "--data-dir", dir, "--max-clock-ahead="+value)
			if code != int(output.ExitUsage) || !strings.Contains(text, want) {
				t.Errorf("--max-clock-ahead=%q: exit %d, %q; want %q", value, code, text, want)
			}
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("a refused flag leaves a directory: %v", err)
		}
	})
	t.Run("configuration", func(t *testing.T) {
		config := filepath.Join(t.TempDir(), "runlog.yaml")
		if err := os.WriteFile(config, []byte("grpc-listn: 127.0.0.1:0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if code, text := serveFailure(t, nil, "--config", config); code != int(output.ExitUsage) || !strings.Contains(text, `unknown key "grpc-listn"`) {
			t.Errorf("exit %d, %q", code, text)
		}
		env := []string{"RUNLOG_MAX_PAYLOAD_BYTES=many"}
		if code, text := serveFailure(t, env); code != int(output.ExitUsage) || !strings.Contains(text, "RUNLOG_MAX_PAYLOAD_BYTES") {
			t.Errorf("exit %d, %q", code, text)
		}
	})
}

// TestServerThatSpeaksHTTP: the usual mix-up of ports is named.
func TestServerThatSpeaksHTTP(t *testing.T) {
	t.Parallel()
	n := spawnNode(t, t.TempDir())
	addresses := n.ready(t)
	var out, errs bytes.Buffer
	code := run(t.Context(), testSession(&out, &errs), []string{"runs", "--server", addresses.HTTP, "--timeout", "30s"})
	if code != output.ExitUnavailable || !strings.Contains(errs.String(), "does not speak gRPC") || !strings.Contains(errs.String(), "--grpc-listen") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
	if code := n.stop(t); code != 0 {
		t.Errorf("the node ended with %d", code)
	}
}
