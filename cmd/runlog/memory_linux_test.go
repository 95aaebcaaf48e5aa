//go:build !race

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"runlog/testbed/await"
)

// residentKiB returns the memory of a process that is in RAM (proc(5), VmRSS).
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmRSS in:\n%s", text)
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestSmallNodeIsSmall: a node with 30 events, some readers and a scraper stays below 80 MiB. The
// race detector needs more by itself.
func TestSmallNodeIsSmall(t *testing.T) {
	t.Parallel()
	n := spawnNode(t, t.TempDir())
	a := n.ready(t)
	call := func(resp *http.Response, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v: %s", resp.StatusCode, err, text)
		}
	}
	for i := range 30 {
		event := fmt.Sprintf(`{"events":[{"eventType":"Noted","tenantId":"t","projectId":"p","environmentId":"e","planId":"plan","planVersion":"1",
			"logicalAttemptId":%d,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"}]}`, i+1)
		call(http.Post("http://"+a.HTTP+"/v1/runs/run/events:append", "application/json", strings.NewReader(event)))
	}
	const most = 80 << 10
	for range 100 {
		for _, url := range []string{a.Admin + "/metrics", a.HTTP + "/v1/runs", a.HTTP + "/v1/cluster", a.HTTP + "/v1/runs/run/snapshot", a.HTTP + "/v1/runs/run/events"} {
			call(http.Get("http://" + url))
		}
	}
	// After calls without pauses, the node returns the memory that they took.
	await.Poll(t, fmt.Sprintf("at most %d KiB that are resident", most), func() bool { return residentKiB(t, n.cmd.Process.Pid) <= most })
}
