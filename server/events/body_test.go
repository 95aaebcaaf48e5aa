package events_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestLargeBodyIsAnswered: a client that writes its whole request before it reads gets the answer,
// not a broken connection.
func TestLargeBodyIsAnswered(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxRequestBytes = 1 << 20 })
		for name, length := range map[string]string{
			"of a length that is told": fmt.Sprintf("Content-Length: %d\r\n", 24<<20),
			"in chunks":                "Transfer-Encoding: chunked\r\n",
		} {
			bubble.Run(t, name, func(t testing.TB) {
				conn, err := n.DialTo(n.Context(), n.Server.Addresses().HTTP)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := conn.SetDeadline(time.Now().Add(servertest.Patience)); err != nil {
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
		n := servertest.Start(t)
		n.Append("a/b", servertest.NewEvent("Noted"))
		const events = `"events":[{"eventType":"Noted","stepId":"s","tenantId":"tenant","projectId":"project","environmentId":"prod",
		"planId":"plan","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"}]`
		for _, body := range []string{`{"runId":"other",` + events + `}`, `{"run_id":"other",` + events + `}`} {
			r := n.HTTP(http.MethodPost, servertest.RunPath("a/b", "/events:append"), body, "Content-Type", "application/json").Refused(t, contract.ReasonInvalidArgumentField)
			if r.Fields["runId"] == "" {
				t.Errorf("violations %v", r.Fields)
			}
		}
		n.HTTP(http.MethodPost, servertest.RunPath("a/b", ":setEngineRunRef"), `{"runId":"other","engineRunRef":"x"}`, "Content-Type", "application/json").
			Refused(t, contract.ReasonInvalidArgumentField)
		if got := n.List("a/b"); len(got) != 1 {
			t.Errorf("the run has %d events", len(got))
		}
		n.HTTP(http.MethodPost, servertest.RunPath("a/b", "/events:append"), `{"runId":"a/b",`+events+`}`, "Content-Type", "application/json").OK(t)
		n.HTTP(http.MethodPost, servertest.RunPath("a/b", ":setEngineRunRef"), `{"runId":"a/b","engineRunRef":"x"}`, "Content-Type", "application/json").OK(t)
	})
}

// TestMinSeqNotReachedREAD2: a read that times out returns the last runSeq of the run.
func TestMinSeqNotReachedREAD2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxWait = 20 * time.Millisecond })
		n.Append("run", servertest.NewEvent("Noted"))
		_, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", MinSeq: 7})
		if r := servertest.Refused(t, err, contract.ReasonNotReached); r.Metadata["last_seq"] != "1" || r.Metadata["min_seq"] != "7" {
			t.Errorf("metadata %v", r.Metadata)
		}
		n.HTTP(http.MethodGet, servertest.RunPath("run", "/snapshot?minSeq=7"), "").Refused(t, contract.ReasonNotReached)
		if _, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{MinPosition: n.Position(1 << 40)}); err == nil {
			t.Error("a position that is far ahead was reached")
		} else {
			servertest.Refused(t, err, contract.ReasonNotReached)
		}
	})
}
