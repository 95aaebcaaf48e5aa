package servertest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Imports posts lines to the admin listener.
func (n *Node) Imports(lines ...string) HTTPAnswer {
	n.T.Helper()
	return n.ImportsAs("", lines...)
}

// ImportsAs is Imports with a token.
func (n *Node) ImportsAs(token string, lines ...string) HTTPAnswer {
	n.T.Helper()
	req, err := http.NewRequestWithContext(n.Context(), http.MethodPost, "http://"+n.Server.Addresses().Admin+"/import", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		n.T.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := n.HTTPClient().Do(req)
	if err != nil {
		n.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.T.Fatal(err)
	}
	return HTTPAnswer{resp.StatusCode, resp.Header, text}
}

// Foreign is a record of another authority: second s of its run, at runSeq seq.
func Foreign(runID string, seq, s int, eventType, rest string) string {
	return fmt.Sprintf(`{"eventId":"0190b5a4-3c2e-7d11-8a4f-%012d","eventType":%q,"runId":%q,"tenantId":"t","projectId":"p","environmentId":"e","planId":"plan","planVersion":"1",`+
		`"logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2024-05-01T10:00:%02dZ","runSeq":"%d","persistedAt":"2024-05-01T10:00:%02d.5Z"%s}`,
		seq, eventType, runID, s, seq, s, rest)
}

// WithGaps is a run without the events 3, 4 and 6.
func WithGaps(runID string) []string {
	return []string{
		Foreign(runID, 1, 1, "RunStarted", ""),
		Foreign(runID, 2, 2, "StepStarted", `,"stepId":"a"`),
		Foreign(runID, 5, 3, "StepCompleted", `,"stepId":"a"`),
		Foreign(runID, 7, 4, "RunCompleted", ""),
	}
}
