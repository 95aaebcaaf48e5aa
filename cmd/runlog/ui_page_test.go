package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPageOfManyRuns runs the page of docs/ui.md against a node with 10,000 runs: the newest run is
// in its first row, changes show, and no request depends on how many runs there are. The page tells
// that a snapshot has more steps than it shows.
func TestPageOfManyRuns(t *testing.T) {
	t.Parallel()
	if !installed(t, "node") {
		t.Skip("needs node")
	}
	n := spawnNode(t, t.TempDir())
	a := n.ready(t)
	dir := t.TempDir()
	sh := shell{t: t, dir: dir, env: append(os.Environ(), asRunlog+"=1", "RUNLOG_SERVER="+a.GRPC, "PATH="+binDir(t)+string(os.PathListSeparator)+os.Getenv("PATH"))}
	stored := 0
	line := func(eventType, run, rest string) string {
		stored++
		return fmt.Sprintf(`{"eventType":%q,"eventId":"%08x-0000-4000-8000-000000000001","runId":%q,"tenantId":"t","projectId":"p","environmentId":"e",`+
			`"planId":"plan","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,"emittedBy":"test","emittedAt":"2026-02-11T10:30:00.000Z",%s}`+"\n",
			eventType, stored, run, rest)
	}
	storeLines := func(lines []string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := sh.run("runlog append events.jsonl"); !strings.Contains(out, "0 duplicates (0 diverged), 0 refused") {
			t.Fatalf("runlog append: %s", out)
		}
	}
	store := func(eventType string, runs ...string) {
		t.Helper()
		lines := make([]string, len(runs))
		for i, run := range runs {
			lines[i] = line(eventType, run, `"payload":{}`)
		}
		storeLines(lines)
	}
	runs := make([]string, 10_000)
	for i := range runs {
		runs[i] = fmt.Sprintf("run-%05d", i)
	}
	store("RunStarted", runs[:9_999]...)
	store("RunStarted", runs[9_999])

	p := openPage(t, sh, a.HTTP)
	p.await("first run-09999 | RUNNING |")
	store("RunStarted", "newer")
	p.await("first newer | RUNNING |")
	store("RunCompleted", "newer")
	p.await("first newer | COMPLETED |")
	p.click("older")
	p.await(" of 100")
	for _, request := range p.requests {
		if request != "/v1/runs:watch" && request != "/v1/runs?pageSize=50" && request != "/v1/runs?pageSize=100" {
			t.Errorf("the page asked for %s", request)
		}
	}
	p.click("first")
	p.await(`run "newer COMPLETED\n`)
	p.click("more")
	p.await(`\n1 RunStarted \n2 RunCompleted \n"`)

	lines := []string{line("RunStarted", "large", `"payload":{}`)}
	for i := range 90 { // Of a page of 4 MiB.
		lines = append(lines, line("StepSkipped", "large", fmt.Sprintf(`"stepId":"step-%02d","payload":{"reason":%q}`, i, strings.Repeat("x", 50<<10))))
	}
	storeLines(lines)
	p.await("first large | RUNNING |")
	p.click("first")
	p.await(`SKIPPED\nand more steps\n"`)
}

// page is the page of docs/ui.md under node.
type page struct {
	t        *testing.T
	in       io.Writer
	out      *bufio.Scanner
	requests []string
}

func openPage(t *testing.T, sh shell, address string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "ui.md"))
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile(`(?s)<script type="module">\n(.*?)</script>`).FindSubmatch(text)
	if script == nil {
		t.Fatal("docs/ui.md has no script")
	}
	file := filepath.Join(sh.dir, "script.js")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(script[1]), "127.0.0.1:7411", address)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", filepath.Join("testdata", "page.mjs"), file)
	sh.background(cmd)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &page{t: t, in: in, out: bufio.NewScanner(out)}
}

// click clicks on a button, or on the first row.
func (p *page) click(name string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, name); err != nil {
		p.t.Fatal(err)
	}
}

// await reads what the page does until a line has a text.
func (p *page) await(text string) {
	p.t.Helper()
	for p.out.Scan() {
		if request, ok := strings.CutPrefix(p.out.Text(), "request "); ok {
			p.requests = append(p.requests, request)
		}
		if strings.Contains(p.out.Text(), text) {
			return
		}
	}
	p.t.Fatalf("the page ended before it showed %q: %v", text, p.out.Err())
}
