package server

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// exported is an export, read to its end.
type exported struct {
	events  []*runlogv1.EventRecord
	summary *runlogv1.ExportSummary
	tokens  []string // of the messages
}

// bytes returns the whole answer without the statement, whose signature may be by another key.
func (e *exported) bytes(t testing.TB) []byte {
	t.Helper()
	summary := proto.CloneOf(e.summary)
	summary.Statement = ""
	var all bytes.Buffer
	for _, m := range e.events {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%d %x\n", len(b), b)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(summary)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&all, "summary %x\n", b)
	return all.Bytes()
}

func (n *node) export(req *runlogv1.ExportEventsRequest) *exported {
	n.t.Helper()
	e, err := n.tryExport(req)
	if err != nil {
		n.t.Fatalf("export: %v", err)
	}
	return e
}

func (n *node) tryExport(req *runlogv1.ExportEventsRequest) (*exported, error) {
	stream, err := n.audit.ExportEvents(n.context(), req)
	if err != nil {
		return nil, err
	}
	var e exported
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) && e.summary != nil {
			return &e, nil
		}
		if err != nil {
			return nil, err
		}
		e.events = append(e.events, m.Events...)
		e.tokens = append(e.tokens, m.ResumeToken)
		e.summary = m.Summary
	}
}

// query reads all pages of a window, each through the next node.
func (ns nodes) query(req *runlogv1.QueryEventsRequest) (events []*runlogv1.EventRecord, last *runlogv1.QueryEventsResponse) {
	ns[0].t.Helper()
	req = proto.CloneOf(req)
	for i := 0; ; i++ {
		n := ns[i%len(ns)]
		resp, err := n.audit.QueryEvents(n.context(), req)
		if err != nil {
			ns[0].t.Fatalf("page %d: %v", i, err)
		}
		if req.PageSize > 0 && len(resp.Events) > int(req.PageSize) {
			ns[0].t.Fatalf("page %d has %d events, asked for %d", i, len(resp.Events), req.PageSize)
		}
		events = append(events, resp.Events...)
		if resp.Count != uint64(len(events)) {
			ns[0].t.Fatalf("page %d says %d events so far, there were %d", i, resp.Count, len(events))
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
		imported := int64(0)
		if e.ImportedAt != nil {
			imported = e.ImportedAt.AsTime().UnixNano()
		}
		shown := &contract.Event{
			TenantID: e.TenantId, ProjectID: e.ProjectId, EnvironmentID: e.EnvironmentId, PlanID: e.PlanId, PlanVersion: e.PlanVersion,
		}
		for i, name := range []string{"tenantId", "projectId", "environmentId", "planId", "planVersion"} {
			if slices.Contains(e.Inherited, name) {
				shown.Absent |= 1 << i
			}
		}
		d = contract.WindowDigest(d, shown, digest(e.RecordDigest), e.RunSeq, e.PersistedAt.AsTime().UnixNano(), imported, digest(e.ChainDigest))
	}
	return d.String()
}

// auditLoad appends events of three runs of two tenants and returns what was stored, in the order
// of the answers.
func auditLoad(n *node, round int) {
	for i := range 10 {
		for run, tenant := range []string{"tenant", "other", "tenant"} {
			n.mustAppend(fmt.Sprintf("run-%d", run), newEvent("StepStarted", func(e *runlogv1.EventWrite) {
				e.TenantId, e.StepId = tenant, fmt.Sprintf("step-%d-%d", round, i)
			}), newEvent("StepCompleted", func(e *runlogv1.EventWrite) {
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
		all := startNodes(t, 3)
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
			events, last := all.query(c.req)
			if len(events) != c.want || !last.Closed || last.Digest != windowDigest(t, events) {
				t.Errorf("%s: %d events, want %d; closed %v, digest %s", c.name, len(events), c.want, last.Closed, last.Digest)
			}
			for i, e := range events[min(1, len(events)):] {
				if e.PersistedAt.AsTime().Before(events[i].PersistedAt.AsTime()) {
					t.Errorf("%s: event %d comes before the one before", c.name, i)
				}
			}
			x := all[2].export(&runlogv1.ExportEventsRequest{
				From: c.req.From, To: last.To, TenantId: c.req.TenantId, ProjectId: c.req.ProjectId, EnvironmentId: c.req.EnvironmentId,
				PlanId: c.req.PlanId, RunId: c.req.RunId, StepId: c.req.StepId, Types: c.req.Types,
			})
			if len(x.events) != c.want || x.summary.Count != last.Count || x.summary.Digest != last.Digest || !x.summary.Closed {
				t.Errorf("%s: export of %d events, digest %s, want %d, %s", c.name, len(x.events), x.summary.Digest, c.want, last.Digest)
			}
		}
	})
}

// TestWindowTokensREAD3: a token continues at any node, after restarts and under another leader.
// The rest follows, with the same digest at the end. An export continues from a message's token.
func TestWindowTokensREAD3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		auditLoad(all[0], 0)
		whole, last := all.query(&runlogv1.QueryEventsRequest{TenantId: "tenant"})
		req := &runlogv1.QueryEventsRequest{TenantId: "tenant", To: last.To, PageSize: 13}
		page, err := all[0].audit.QueryEvents(all[0].context(), req)
		if err != nil || len(page.Events) != 13 || page.NextPageToken == "" {
			t.Fatalf("%v, %v", page, err)
		}
		auditLoad(all[0], 1)
		moveLeader(t, all)
		for _, n := range all {
			n.restart()
		}
		for _, n := range all {
			req.PageToken = page.NextPageToken
			rest, end := nodes{n}.queryFrom(req, 13)
			if got := slices.Concat(page.Events, rest); len(got) != len(whole) || end.Digest != last.Digest {
				t.Errorf("node %s: %d events, digest %s; want %d, %s", n.opts.NodeID, len(got), end.Digest, len(whole), last.Digest)
			}
			x := n.export(&runlogv1.ExportEventsRequest{TenantId: "tenant", To: last.To, PageToken: page.NextPageToken})
			if x.summary.Digest != last.Digest || x.summary.Count != last.Count || len(x.events) != len(whole)-13 {
				t.Errorf("node %s: the export goes on with %d events to %v", n.opts.NodeID, len(x.events), x.summary)
			}
		}
	})
}

// queryFrom is query from a later page on; before is the number of events on the pages before it.
func (ns nodes) queryFrom(req *runlogv1.QueryEventsRequest, before int) (events []*runlogv1.EventRecord, last *runlogv1.QueryEventsResponse) {
	ns[0].t.Helper()
	req = proto.CloneOf(req)
	for {
		resp, err := ns[0].audit.QueryEvents(ns[0].context(), req)
		if err != nil {
			ns[0].t.Fatal(err)
		}
		events = append(events, resp.Events...)
		if resp.Count != uint64(before+len(events)) {
			ns[0].t.Fatalf("%d events so far, there were %d", resp.Count, before+len(events))
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
		n := startNode(t)
		auditLoad(n, 0)
		a := n.http(http.MethodGet, "/v1/audit/events?tenantId=tenant&types=StepCompleted&pageSize=2", "")
		m := parseObject(t, a.body)
		events, _ := m["events"].([]any)
		if a.code != http.StatusOK || len(events) != 2 || m["closed"] != true || m["nextPageToken"] == "" {
			t.Fatalf("%d %s", a.code, a.body)
		}
		first, _ := events[0].(map[string]any)
		if _, natural := first["payload"].(map[string]any); !natural {
			t.Errorf("payload %v", first["payload"])
		}
		a = n.http(http.MethodGet, "/v1/audit/events:export?runId=run-1", "", "Accept", "text/event-stream")
		if a.code != http.StatusOK || strings.Count(string(a.body), "event: events\nid: ") != 1 || !strings.Contains(string(a.body), "event: summary\ndata: ") {
			t.Fatalf("%d %s", a.code, a.body)
		}
		_, id, _ := strings.Cut(string(a.body), "id: ")
		id, _, _ = strings.Cut(id, "\n")
		a = n.http(http.MethodGet, "/v1/audit/events:export?runId=run-1", "", "Accept", "text/event-stream", "Last-Event-ID", id)
		if a.code != http.StatusOK || strings.Contains(string(a.body), `"runId":"run-1"`) || !strings.Contains(string(a.body), `"count":"20"`) {
			t.Errorf("resumed behind everything: %d %s", a.code, a.body)
		}
		a = n.http(http.MethodGet, "/v1/audit/runs/run-1:verify", "")
		m = parseObject(t, a.body)
		if a.code != http.StatusOK || m["ok"] != true || m["verified"] != "20" {
			t.Errorf("%d %s", a.code, a.body)
		}
		n.http(http.MethodGet, "/v1/audit/runs/nope:verify", "").refused(t, contract.ReasonRunNotFound)
	})
}
