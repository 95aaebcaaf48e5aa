package audit_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// query reads all pages of a window, each through the next node.
func query(ns servertest.Nodes, req *runlogv1.QueryEventsRequest) (events []*runlogv1.EventRecord, last *runlogv1.QueryEventsResponse) {
	ns[0].T.Helper()
	req = proto.CloneOf(req)
	for i := 0; ; i++ {
		n := ns[i%len(ns)]
		resp, err := n.Audit.QueryEvents(n.Context(), req)
		if err != nil {
			ns[0].T.Fatalf("page %d: %v", i, err)
		}
		if req.PageSize > 0 && len(resp.Events) > int(req.PageSize) {
			ns[0].T.Fatalf("page %d has %d events, asked for %d", i, len(resp.Events), req.PageSize)
		}
		events = append(events, resp.Events...)
		if resp.Count != uint64(len(events)) {
			ns[0].T.Fatalf("page %d says %d events so far, there were %d", i, resp.Count, len(events))
		}
		if resp.NextPageToken == "" {
			return events, resp
		}
		req.PageToken = resp.NextPageToken
	}
}

// windowDigest computes the digest of records as an auditor would, from docs/audit.md.
func windowDigest(t testing.TB, events []*runlogv1.EventRecord) string {
	t.Helper()
	digest := func(text string) (d contract.Digest) {
		if n, err := hex.Decode(d[:], []byte(text)); err != nil || n != len(d) {
			t.Fatalf("digest %q", text)
		}
		return d
	}
	var d contract.Digest
	for _, e := range events {
		shown := &contract.Event{
			TenantID: e.TenantId, ProjectID: e.ProjectId, EnvironmentID: e.EnvironmentId, PlanID: e.PlanId, PlanVersion: e.PlanVersion,
		}
		for i, name := range []string{"tenantId", "projectId", "environmentId", "planId", "planVersion"} {
			if slices.Contains(e.Inherited, name) {
				shown.Absent |= 1 << i
			}
		}
		d = contract.WindowDigest(d, shown, digest(e.RecordDigest), e.RunSeq, e.PersistedAt.AsTime().UnixNano(), digest(e.ChainDigest))
	}
	return d.String()
}

// auditLoad appends events of three runs of two tenants and returns what was stored, in the order
// of the answers.
func auditLoad(n *servertest.Node, round int) {
	for i := range 10 {
		for run, tenant := range []string{"tenant", "other", "tenant"} {
			n.MustAppend(fmt.Sprintf("run-%d", run), servertest.NewEvent("StepStarted", func(e *runlogv1.EventWrite) {
				e.TenantId, e.StepId = tenant, fmt.Sprintf("step-%d-%d", round, i)
			}), servertest.NewEvent("StepCompleted", func(e *runlogv1.EventWrite) {
				e.TenantId, e.StepId = tenant, fmt.Sprintf("step-%d-%d", round, i)
			}))
		}
	}
}

// TestWindowsREAD3READ4: a window contains the events persisted in it, in commit order, through any
// node and page by page. Its digest is that of the records. An export gives the same.
func TestWindowsREAD3READ4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		begin := time.Now()
		auditLoad(all[0], 0)
		middle := time.Now()
		auditLoad(all[1], 1)
		from, mid := timestamppb.New(begin.Add(-time.Minute)), timestamppb.New(middle)
		for _, c := range []struct {
			name string
			req  *runlogv1.QueryEventsRequest
			want int
		}{
			{"all", &runlogv1.QueryEventsRequest{}, 120},
			{"from", &runlogv1.QueryEventsRequest{From: mid}, 60},
			{"to", &runlogv1.QueryEventsRequest{From: from, To: mid}, 60},
			{"tenant", &runlogv1.QueryEventsRequest{From: from, TenantId: "tenant"}, 80},
			{"other", &runlogv1.QueryEventsRequest{To: mid, TenantId: "other"}, 20},
			{"run", &runlogv1.QueryEventsRequest{To: mid, RunId: "run-2"}, 20},
			{"run of another tenant", &runlogv1.QueryEventsRequest{TenantId: "other", RunId: "run-2"}, 0},
			{"step", &runlogv1.QueryEventsRequest{StepId: "step-1-3"}, 6},
			{"type", &runlogv1.QueryEventsRequest{TenantId: "tenant", Types: []string{"StepCompleted", "RunStarted"}}, 40},
			{"plan", &runlogv1.QueryEventsRequest{PlanId: "plan", ProjectId: "project", EnvironmentId: "prod"}, 120},
			{"nothing", &runlogv1.QueryEventsRequest{EnvironmentId: "nowhere"}, 0},
		} {
			c.req.PageSize = 7
			events, last := query(all, c.req)
			if len(events) != c.want || !last.Closed || last.Digest != windowDigest(t, events) {
				t.Errorf("%s: %d events, want %d; closed %v, digest %s", c.name, len(events), c.want, last.Closed, last.Digest)
			}
			for i, e := range events[min(1, len(events)):] {
				if e.PersistedAt.AsTime().Before(events[i].PersistedAt.AsTime()) {
					t.Errorf("%s: event %d comes before the one before", c.name, i)
				}
			}
			x := all[2].Export(&runlogv1.ExportEventsRequest{
				From: c.req.From, To: last.To, TenantId: c.req.TenantId, ProjectId: c.req.ProjectId, EnvironmentId: c.req.EnvironmentId,
				PlanId: c.req.PlanId, RunId: c.req.RunId, StepId: c.req.StepId, Types: c.req.Types,
			})
			if len(x.Events) != c.want || x.Summary.Count != last.Count || x.Summary.Digest != last.Digest || !x.Summary.Closed {
				t.Errorf("%s: export of %d events, digest %s, want %d, %s", c.name, len(x.Events), x.Summary.Digest, c.want, last.Digest)
			}
		}
	})
}

// TestWindowTokensREAD3: a token continues at any node, after restarts and under another leader.
// The rest follows, with the same digest at the end. An export continues from a message's token.
func TestWindowTokensREAD3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		auditLoad(all[0], 0)
		whole, last := query(all, &runlogv1.QueryEventsRequest{TenantId: "tenant"})
		req := &runlogv1.QueryEventsRequest{TenantId: "tenant", To: last.To, PageSize: 13}
		page, err := all[0].Audit.QueryEvents(all[0].Context(), req)
		if err != nil || len(page.Events) != 13 || page.NextPageToken == "" {
			t.Fatalf("%v, %v", page, err)
		}
		auditLoad(all[0], 1)
		servertest.MoveLeader(t, all)
		for _, n := range all {
			n.Restart()
		}
		for _, n := range all {
			req.PageToken = page.NextPageToken
			rest, end := queryFrom(servertest.Nodes{n}, req, 13)
			if got := slices.Concat(page.Events, rest); len(got) != len(whole) || end.Digest != last.Digest {
				t.Errorf("node %s: %d events, digest %s; want %d, %s", n.Opts.NodeID, len(got), end.Digest, len(whole), last.Digest)
			}
			x := n.Export(&runlogv1.ExportEventsRequest{TenantId: "tenant", To: last.To, PageToken: page.NextPageToken})
			if x.Summary.Digest != last.Digest || x.Summary.Count != last.Count || len(x.Events) != len(whole)-13 {
				t.Errorf("node %s: the export goes on with %d events to %v", n.Opts.NodeID, len(x.Events), x.Summary)
			}
		}
	})
}

// queryFrom is query from a later page on; before is the number of events on the pages before it.
func queryFrom(ns servertest.Nodes, req *runlogv1.QueryEventsRequest, before int) (events []*runlogv1.EventRecord, last *runlogv1.QueryEventsResponse) {
	ns[0].T.Helper()
	req = proto.CloneOf(req)
	for {
		resp, err := ns[0].Audit.QueryEvents(ns[0].Context(), req)
		if err != nil {
			ns[0].T.Fatal(err)
		}
		events = append(events, resp.Events...)
		if resp.Count != uint64(before+len(events)) {
			ns[0].T.Fatalf("%d events so far, there were %d", resp.Count, before+len(events))
		}
		if resp.NextPageToken == "" {
			return events, resp
		}
		req.PageToken = resp.NextPageToken
	}
}

// TestWindowsOverHTTP: the routes, the natural payload, and Server-Sent Events that a browser
// resumes.
func TestWindowsOverHTTP(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		auditLoad(n, 0)
		a := n.HTTP(http.MethodGet, "/v1/audit/events?tenantId=tenant&types=StepCompleted&pageSize=2", "")
		m := servertest.ParseObject(t, a.Body)
		events, _ := m["events"].([]any)
		if a.Code != http.StatusOK || len(events) != 2 || m["closed"] != true || m["nextPageToken"] == "" {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		first, _ := events[0].(map[string]any)
		if _, natural := first["payload"].(map[string]any); !natural {
			t.Errorf("payload %v", first["payload"])
		}
		a = n.HTTP(http.MethodGet, "/v1/audit/events:export?runId=run-1", "", "Accept", "text/event-stream")
		if a.Code != http.StatusOK || strings.Count(string(a.Body), "event: events\nid: ") != 1 || !strings.Contains(string(a.Body), "event: summary\ndata: ") {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		_, id, _ := strings.Cut(string(a.Body), "id: ")
		id, _, _ = strings.Cut(id, "\n")
		a = n.HTTP(http.MethodGet, "/v1/audit/events:export?runId=run-1", "", "Accept", "text/event-stream", "Last-Event-ID", id)
		if a.Code != http.StatusOK || strings.Contains(string(a.Body), `"runId":"run-1"`) || !strings.Contains(string(a.Body), `"count":"20"`) {
			t.Errorf("resumed behind everything: %d %s", a.Code, a.Body)
		}
		a = n.HTTP(http.MethodGet, "/v1/audit/runs/run-1:verify", "")
		m = servertest.ParseObject(t, a.Body)
		if a.Code != http.StatusOK || m["ok"] != true || m["verified"] != "20" {
			t.Errorf("%d %s", a.Code, a.Body)
		}
		n.HTTP(http.MethodGet, "/v1/audit/runs/nope:verify", "").Refused(t, contract.ReasonRunNotFound)
	})
}
