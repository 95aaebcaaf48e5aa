package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/client/command/output"
	"runlog/server/auth"
)

var fenced = regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```")

// TestAccessPage runs the commands of docs/access.md as they are, but for addresses and files, and
// reads its configurations. The three lines of a team give it a node and a token (SEC-1, SEC-2).
func TestAccessPage(t *testing.T) {
	t.Parallel()
	page := readTestdata(t, filepath.Join("..", "..", "..", "docs", "access.md"))
	blocks := map[string][]string{}
	for _, b := range fenced.FindAllStringSubmatch(page, -1) {
		blocks[b[1]] = append(blocks[b[1]], b[2])
	}
	for _, text := range blocks["yaml"] {
		if _, err := auth.ParseConfig([]byte(text)); err != nil {
			t.Errorf("%v:\n%s", err, text)
		}
	}
	if provider := blocks["yaml"][0]; strings.Count(provider, "\n") != 10 || !strings.HasPrefix(provider, "oidc:") {
		t.Errorf("a provider takes not ten lines:\n%s", provider)
	}

	team := strings.Split(strings.TrimSpace(blocks["sh"][0]), "\n")
	if len(team) != 3 {
		t.Fatalf("a team takes not three lines:\n%s", blocks["sh"][0])
	}
	a := &certificates{t: t, dir: t.TempDir()}
	runShell(t, a.dir, blocks["sh"][1]) // The certificate.
	files := func(line string, replace ...string) []string {
		line = strings.NewReplacer(replace...).Replace(line)
		line, _, _ = strings.Cut(strings.TrimPrefix(line, "(umask 077; "), " > ")
		words := strings.Fields(line)[1:]
		for i, word := range words {
			if slices.Contains([]string{"tls.crt", "tls.key", "ca.crt", "admin.token", "ci.token", "log.token"}, word) {
				words[i] = a.path(word)
			}
		}
		return words
	}
	flags := files(team[0]+" --admin-listen 127.0.0.1:0 --raft-listen 127.0.0.1:0", ":7410", "127.0.0.1:0", ":7411", "127.0.0.1:0")
	address := spawnServe(t, a.path("data"), nil, flags[1:]...).ready(t).GRPC
	c := commandLine{t, map[string]string{"HOME": a.dir}}
	here := []string{"https://localhost", "https://" + address, "https://runlog.example.com", "https://" + address}
	token, _, _ := strings.Cut(c.do(output.ExitOK, "", files(team[1], here...)...), "\n")
	a.secretFile("ci.token", token)
	c.do(output.ExitOK, "token:ci", files(team[2], here...)...)

	lines := strings.Split(strings.TrimSpace(blocks["sh"][3]), "\n")
	c.do(output.ExitOK, "prod is stored", files(lines[0], here...)...)
	c.do(output.ExitOK, "prod is in use", files(lines[1])...)
	c.do(output.ExitOK, "token:ci", files(lines[2])...)

	// A reader of the access log.
	lines = strings.Split(strings.TrimSpace(blocks["sh"][4]), "\n")
	token, _, _ = strings.Cut(c.do(output.ExitOK, "", files(lines[0])...), "\n")
	a.secretFile("log.token", token)
	for _, line := range lines[1:] {
		c.do(output.ExitOK, "AccessDecided", files(line, "2026-02-11", time.Now().UTC().Format(time.DateOnly))...)
	}
}

// runShell runs the lines of a page in a directory.
func runShell(t *testing.T, dir, lines string) {
	t.Helper()
	name := strings.Fields(lines)[0]
	if !installed(t, name) {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.Command("bash", "-ec", lines)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, lines, text)
	}
}

// TestAccessPageJoiningSEC1: the two lines of docs/access.md join a node to another.
func TestAccessPageJoiningSEC1(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	loopback := []string{"--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0"}
	first := spawnServe(t, path("first"), nil, loopback...).ready(t)

	page := readTestdata(t, filepath.Join("..", "..", "..", "docs", "access.md"))
	lines := regexp.MustCompile(`\(umask 077; runlog (.*) > join\.token\)\nrunlog serve (.*)\n`).FindStringSubmatch(page)
	if lines == nil {
		t.Fatal("docs/access.md does not show how a node joins")
	}
	c := commandLine{t, nil}
	token := c.do(output.ExitOK, "rlj_", strings.Fields(strings.ReplaceAll(lines[1], "127.0.0.1:7410", first.GRPC))...)
	if err := os.WriteFile(path("join.token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := strings.NewReplacer(":7510", ":0", ":7511", ":0", ":7512", ":0", ":7513", ":0", "127.0.0.1:7413", first.Raft,
		"--data-dir ./second ", "", "join.token", path("join.token"))
	spawnServe(t, path("second"), nil, strings.Fields(shown.Replace(lines[2]))...).ready(t)
	if n := strings.Count(c.do(output.ExitOK, "", "cluster", "status", "--server", first.GRPC, "-o", "json"), `"raftAddress"`); n != 2 {
		t.Errorf("the cluster has %d members", n)
	}
}
