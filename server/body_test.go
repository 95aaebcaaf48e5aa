package server

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/testbed/bubble"
)

// TestLargeBodyIsAnswered: a client that writes its whole request before it reads gets the answer,
// not a broken connection.
func TestLargeBodyIsAnswered(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.MaxRequestBytes = 1 << 20 })
		for name, length := range map[string]string{
			"of a length that is told": fmt.Sprintf("Content-Length: %d\r\n", 24<<20),
			"in chunks":                "Transfer-Encoding: chunked\r\n",
		} {
			bubble.Run(t, name, func(t testing.TB) {
				conn, err := n.dialTo(n.context(), n.server.Addresses().HTTP)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(conn, "POST /v1/runs/run/events:append HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n", length)
				piece := bytes.Repeat([]byte(" "), 1<<20)
				for range 24 {
					if name == "in chunks" {
						fmt.Fprintf(conn, "%x\r\n%s\r\n", len(piece), piece)
					} else if _, err := conn.Write(piece); err != nil {
						t.Fatal(err)
					}
				}
				if name == "in chunks" {
					fmt.Fprint(conn, "0\r\n\r\n")
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("no answer: %v", err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != contract.ReasonPayloadTooLarge.Info().HTTP {
					t.Errorf("HTTP %d", resp.StatusCode)
				}
			})
		}
	})
}

// TestRunIDInTheBody: a body with another runId than its path is refused.
func TestRunIDInTheBody(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("a/b", newEvent("Noted"))
		const events = `"events":[{"eventType":"Noted","stepId":"s","tenantId":"tenant","projectId":"project","environmentId":"prod",
		"planId":"plan","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"}]`
		for _, body := range []string{`{"runId":"other",` + events + `}`, `{"run_id":"other",` + events + `}`} {
			r := n.http(http.MethodPost, runPath("a/b", "/events:append"), body, "Content-Type", "application/json").refused(t, contract.ReasonInvalidArgumentField)
			if r.fields["runId"] == "" {
				t.Errorf("violations %v", r.fields)
			}
		}
		n.http(http.MethodPost, runPath("a/b", ":setEngineRunRef"), `{"runId":"other","engineRunRef":"x"}`, "Content-Type", "application/json").
			refused(t, contract.ReasonInvalidArgumentField)
		if got := n.list("a/b"); len(got) != 1 {
			t.Errorf("the run has %d events", len(got))
		}
		n.http(http.MethodPost, runPath("a/b", "/events:append"), `{"runId":"a/b",`+events+`}`, "Content-Type", "application/json").ok(t)
		n.http(http.MethodPost, runPath("a/b", ":setEngineRunRef"), `{"runId":"a/b","engineRunRef":"x"}`, "Content-Type", "application/json").ok(t)
	})
}

// TestMinSeqNotReachedREAD2: a read that times out returns the last runSeq of the run.
func TestMinSeqNotReachedREAD2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.MaxWait = 20 * time.Millisecond })
		n.append("run", newEvent("Noted"))
		_, err := n.projection.GetSnapshot(n.context(), &runlogv1.GetSnapshotRequest{RunId: "run", MinSeq: 7})
		if r := refused(t, err, contract.ReasonNotReached); r.metadata["last_seq"] != "1" || r.metadata["min_seq"] != "7" {
			t.Errorf("metadata %v", r.metadata)
		}
		n.http(http.MethodGet, runPath("run", "/snapshot?minSeq=7"), "").refused(t, contract.ReasonNotReached)
		if _, err := n.runs.ListRuns(n.context(), &runlogv1.ListRunsRequest{MinPosition: rpc.FormatPosition(1 << 40)}); err == nil {
			t.Error("a position that is far ahead was reached")
		} else {
			refused(t, err, contract.ReasonNotReached)
		}
	})
}
