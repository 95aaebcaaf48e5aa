package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/client/command/output"
)

// TestOperatorBadInput lists what operators mistype: input, answer, and what is on disk afterwards.
func TestOperatorBadInput(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{"typo.yaml": "grpc-listn: 127.0.0.1:0\n", "list.yaml": "- a\n", "size.yaml": "memory: much\n", "one.key": "no key", "open.token": "rlk_", "bad.token": "rlk_short"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "open.token"), 0o640); err != nil {
		t.Fatal(err)
	}
	const serve = "serve --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --raft-listen 127.0.0.1:0 --data-dir DIR/new/data "
	for _, c := range []struct {
		input string // DIR is a directory, and TAKEN an address in use
		env   string
		code  output.ExitCode
		says  string
	}{
		{serve + "--grpc-listen 7410", "", output.ExitUsage, `--grpc-listen "7410" is no address to listen on: missing port in address; give host and port, as in 127.0.0.1:7410`},
		{serve + "--http-listen localhost", "", output.ExitUsage, `--http-listen "localhost" is no address to listen on: missing port in address; give host and port, as in 127.0.0.1:7411`},
		{serve + "--admin-listen :http", "", output.ExitUsage, `--admin-listen ":http" is no address to listen on: "http" is not a port from 0 to 65535`},
		{serve + "--raft-listen 127.0.0.1:70000", "", output.ExitUsage, `"70000" is not a port from 0 to 65535`},
		{serve + "--raft-listen 1:2:3", "", output.ExitUsage, "too many colons in address"},
		{serve + "--grpc-listen TAKEN", "", output.ExitFailed, "--grpc-listen TAKEN: the port is in use; stop what uses it, or choose another"},
		{serve + "--log-level error --insecure --admin-listen 192.0.2.1:7412", "", output.ExitFailed, "--admin-listen 192.0.2.1:7412: listen tcp"},
		{serve + "--log-level error --insecure --admin-listen 192.0.2.1:7412", "", output.ExitFailed, "name an address of this machine and a port that this user may take"},
		{serve + "--grpc-listen 0.0.0.0:0", "", output.ExitUsage, "--grpc-listen 0.0.0.0:0 is reached from other machines, and anybody could read and write: add --tls-cert, --tls-key and --auth required; --insecure accepts it as it is"},
		{serve + "--http-listen :0 --auth required", "", output.ExitUsage, "--http-listen :0 is reached from other machines, and tokens and data would go in plain text"},
		{serve + "--secret-scan maybe", "", output.ExitUsage, `--secret-scan "maybe" is not refuse, report, off`},
		{serve + "--auth maybe", "", output.ExitUsage, `--auth "maybe" is not required or off`},
		{serve + "--tls-cert DIR/none.crt", "", output.ExitUsage, "--tls-cert and --tls-key need each other"},
		{serve + "--admin-token-file=", "", output.ExitUsage, "--admin-token-file is empty, and the node would not demand what it is for"},
		{serve + "--access-config=", "", output.ExitUsage, "--access-config is empty"},
		{serve + "--tls-client-ca DIR/none.crt", "", output.ExitUsage, "--tls-client-ca needs --tls-cert and --tls-key"},
		{serve + "--tls-cert DIR/none.crt --tls-key DIR/none.key", "", output.ExitUsage, "DIR/none.crt: no such file or directory; name PEM files of a certificate and its key"},
		{serve + "--access-config DIR/none.yaml", "", output.ExitUsage, "--access-config: open DIR/none.yaml: no such file or directory; name a YAML file that this user can read"},
		{serve + "--access-config DIR/typo.yaml", "", output.ExitUsage, "--access-config DIR/typo.yaml: access configuration:"},
		{serve + "--admin-token-file DIR/open.token", "", output.ExitUsage, "--admin-token-file DIR/open.token: other users can read it; make it readable for its owner alone (chmod 600)"},
		{serve + "--admin-token-file DIR/bad.token", "", output.ExitUsage, "--admin-token-file DIR/bad.token: it has no token; want rlk_ and 43 characters; remove the file, and the node makes a new one"},
		{serve + "--admin-token-file DIR/none/admin.token", "", output.ExitUsage, "--admin-token-file: open DIR/none/admin.token: no such file or directory"},
		{serve + "--join n2", "", output.ExitUsage, "--join n2 is no address; give host and port, as in host1:7413"},
		{serve + "--node-id a/b", "", output.ExitFailed, `--node-id "a/b"`},
		{serve + "--memory 2G", "", output.ExitUsage, `"2G" is not a size; want a whole number and KiB, MiB, GiB or TiB (powers of 1,024), or KB, MB, GB or TB (powers of 1,000)`},
		{serve + "--memory 100MB", "", output.ExitUsage, "--memory 100MB is too little; a node needs at least 256MiB"},
		{serve + "--min-free-disk -1GiB", "", output.ExitUsage, "is not a size"},
		{serve + "--max-payload-bytes 2MiB", "", output.ExitUsage, "--max-payload-bytes 2MiB is not between 1 and 1048576"},
		{serve + "--config DIR/none.yaml", "", output.ExitUsage, "DIR/none.yaml: no such file or directory; name a YAML file that this user can read"},
		{serve + "--config DIR/typo.yaml", "", output.ExitUsage, `DIR/typo.yaml: unknown key "grpc-listn"; did you mean grpc-listen?`},
		{serve + "--config DIR/list.yaml", "", output.ExitUsage, "DIR/list.yaml: yaml:"},
		{serve + "--config DIR/size.yaml", "", output.ExitUsage, `DIR/size.yaml: memory: invalid argument "much" for "--memory" flag: "much" is not a size`},
		{serve + "--node-ca DIR/none.crt --node-cert DIR/none.crt --node-key DIR/none.key", "", output.ExitFailed, "DIR/none.crt: no such file or directory; name PEM files that this user can read"},
		{serve + "--node-ca DIR/one.key --node-cert DIR/one.key --node-key DIR/one.key", "", output.ExitFailed, "DIR/one.key"},
		{serve + "--data-dir /proc/runlog/data", "", output.ExitFailed, "make /proc/runlog/data: mkdir /proc/runlog: no such file or directory; choose another with --data-dir"},
		{serve, "RUNLOG_GRPC_LISTN=:1", output.ExitUsage, "unknown environment variable RUNLOG_GRPC_LISTN; did you mean RUNLOG_GRPC_LISTEN?"},
		{serve, "RUNLOG_MIN_FREE_DISK=10XB", output.ExitUsage, `RUNLOG_MIN_FREE_DISK: invalid argument "10XB" for "--min-free-disk" flag: "10XB" is not a size`},
		{"runs", "RUNLOG_SEVER=localhost", output.ExitUsage, "unknown environment variable RUNLOG_SEVER; did you mean RUNLOG_SERVER?"},
		{"version", "RUNLOG_ABSENT_FLAG=1", output.ExitUsage, "unknown environment variable RUNLOG_ABSENT_FLAG; unset it"},
		{"runs", "RUNLOG_SERVER=https://localhost,n2", output.ExitUsage, "has addresses with https:// and others without"},
		{"runs --server localhost:", "", output.ExitUsage, `--server: "localhost:" is not the address of a node: it has no port after the colon; want a host such as localhost, or host:port`},
		{"cluster status --server a,,b", "", output.ExitUsage, "it is empty"},
		{"cluster status --watch 1s --server http://host/v1", "", output.ExitUsage, "it has more than a host and a port"},
		{"cluster doctor --server :7410", "", output.ExitUsage, "it has no host"},
		{"backup --server host:0 DIR/new/backups", "", output.ExitUsage, `"0" is not a port from 1 to 65535`},
		{"import --admin host:x DIR/one.key", "", output.ExitUsage, `"x" is not a port from 1 to 65535`},
		{"projector rebuild --admin https://localhost", "", output.ExitUsage, "leave https:// out"},
		{"restore DIR/none --data-dir DIR/new/data", "", output.ExitUsage, `DIR has no backup "none"`},
	} {
		t.Run(c.input+c.env, func(t *testing.T) {
			replace := strings.NewReplacer("DIR", dir, "TAKEN", taken.Addr().String())
			var out, errs bytes.Buffer
			s := testSession(&out, &errs)
			name, value, _ := strings.Cut(c.env, "=")
			s.Environ = func() []string { return []string{c.env} }
			s.Getenv = func(want string) string {
				if want == name {
					return value
				}
				return ""
			}
			code := run(t.Context(), s, strings.Fields(replace.Replace(c.input)))
			if code != c.code || !strings.Contains(errs.String(), replace.Replace(c.says)) || strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("exit %d, want %d and %q:\n%s", code, c.code, replace.Replace(c.says), errs.String())
			}
			if _, err := os.Stat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
				t.Errorf("something was made: %v", err)
				_ = os.RemoveAll(filepath.Join(dir, "new"))
			}
		})
	}
}

// TestFailedStartLeavesDirectories: a start that fails removes only a directory that it made.
func TestFailedStartLeavesDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if code, text := serveFailure(t, nil, "--data-dir", dir, "--http-listen", "192.0.2.1:7411", "--insecure"); code != int(output.ExitFailed) {
		t.Errorf("exit %d, %s", code, text)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := spawnNode(t, dir) // The directory is good for the next start.
	n.ready(t)
	before, err := os.ReadFile(filepath.Join(dir, "identity.json"))
	if err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	serveFailure(t, nil, "--data-dir", dir, "--http-listen", "192.0.2.1:7411", "--insecure")
	if after, err := os.ReadFile(filepath.Join(dir, "identity.json")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("identity.json after a failed start: %v; the directory had %v", err, names)
	}
}

// TestServerForms: every command of a client takes the forms of an address, and a session without a
// port has the default one (client.TestAddresses).
func TestServerForms(t *testing.T) {
	t.Parallel()
	n := spawnNode(t, t.TempDir())
	a := n.ready(t)
	_, port, err := net.SplitHostPort(a.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	run1 := filepath.Join("testdata", "run-1.jsonl")
	for _, form := range []string{"localhost:" + port, "http://localhost:" + port, "http://127.0.0.1:" + port + "/", a.GRPC + ", http://" + a.GRPC} {
		for _, args := range []string{
			"append " + run1, "runs", "runs get run-1", "events run-1", "snapshot run-1", "watch run-1",
			"audit query --run run-1", "audit keys", "cluster status", "cluster doctor", "backup " + filepath.Join(t.TempDir(), "b") + " --allow-unsigned",
		} {
			var out, errs bytes.Buffer
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if strings.HasPrefix(args, "watch") { // It has no end.
				ctx, cancel = context.WithTimeout(ctx, time.Second)
			}
			code := run(ctx, testSession(&out, &errs), append(strings.Fields(args), "--server", form))
			cancel()
			if code == output.ExitUsage || code == output.ExitUnavailable {
				t.Errorf("%s --server %q: exit %d, %s", args, form, code, errs.String())
			}
		}
	}
	for _, admin := range []string{a.Admin, "http://" + a.Admin} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), testSession(&out, &errs), []string{"projector", "rebuild", "--admin", admin}); code != output.ExitOK {
			t.Errorf("--admin %s: exit %d, %s", admin, code, errs.String())
		}
	}
}
