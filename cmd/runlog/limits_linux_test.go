package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// metricOf returns a metric without labels, or with those in its name, of a node.
func metricOf(t *testing.T, admin, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestIdleConnectionsD10: idle connections use up what clients may have. The node closes further
// ones at once and counts them, keeps files for its data, and takes appends on a connection that
// was open before; it does not stop. The soft limit of open files is raised to the hard one.
func TestIdleConnectionsD10(t *testing.T) {
	t.Parallel()
	const limit = 256 // of which clients get a quarter
	dir := t.TempDir()
	serve := runlogCommand([]string{smallNode + "=1"}, "serve", "--data-dir", dir, "--grpc-listen", "127.0.0.1:0",
		"--http-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0")
	cmd := exec.Command("bash", append([]string{"-c", fmt.Sprintf(`ulimit -Sn 64 && ulimit -Hn %d && exec "$@"`, limit), "bash"}, serve.Args...)...)
	cmd.Env = serve.Env
	n := spawnCommand(t, dir, cmd)
	a := n.ready(t)
	// Go leaves one out.
	if got := metricOf(t, a.Admin, "process_max_fds"); got < limit-1 || got > limit {
		t.Errorf("the process may open %v files, want %d", got, limit)
	}
	events := runlogv1.NewEventServiceClient(dialNode(t, a.GRPC))
	ctx := await.Context(t)
	appendOne := func(i int) {
		t.Helper()
		req := &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{{
			EventType: "RunQueued", TenantId: "t", ProjectId: "p", EnvironmentId: "e", PlanId: "plan", PlanVersion: "1",
			LogicalAttemptId: uint32(i), EngineAttemptId: 1, EmittedAt: seconds(0),
			PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", 30_000))},
		}}}
		if _, err := events.AppendEvents(ctx, req); err != nil {
			t.Fatalf("append %d: %v\n%s", i, err, n.stderr)
		}
	}
	appendOne(1)

	const refused = `runlog_connections_refused_total{listeners="clients"}`
	for i := 0; metricOf(t, a.Admin, refused) < limit; i++ {
		if i > 10 {
			t.Fatal("connections above the limit are not refused")
		}
		for j := range 2 * limit {
			c, err := net.Dial("tcp", []string{a.GRPC, a.HTTP}[j%2])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	// The store and the projection flush and compact: they open files.
	for i := range 300 {
		appendOne(i + 2)
	}
	if open := metricOf(t, a.Admin, "process_open_fds"); open >= limit {
		t.Errorf("%v of %d files are open", open, limit)
	}
	if !strings.Contains(n.stderr.String(), "too many connections") {
		t.Errorf("the log says nothing:\n%s", n.stderr)
	}
	if code := n.stop(t); code != 0 {
		t.Errorf("the node ended with %d:\n%s", code, n.stderr)
	}
}
