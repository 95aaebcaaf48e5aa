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
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc/wire"
)

// exported is an export, read to its end.
type exported struct {
	events  []*runlogv1.EventRecord
	summary *runlogv1.ExportSummary
	tokens  []string // of the messages
}

// bytes of all that was answered, but for the statement, whose signature may be another key's.
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

// windowDigest works out the digest of records as an auditor would, from what docs/audit.md says.
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

// TestWindowsREAD3READ4: a window has the events that were persisted in it, in commit order,
// through any node, page by page; its digest is that of the records; and the same comes of an
// export.
func TestWindowsREAD3READ4(t *testing.T) {
	t.Parallel()
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
}

// TestClosedWindowsStayREAD4 asks for the same closed windows through every node, before and after
// appends, restarts, changes of the leader, flushes and compactions, and compares the answers byte
// for byte.
func TestClosedWindowsStayREAD4(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	auditLoad(all[0], 0)
	_, first := all.query(&runlogv1.QueryEventsRequest{})
	auditLoad(all[1], 1)
	ahead := &runlogv1.ExportEventsRequest{From: timestamppb.New(first.To.AsTime().Add(time.Hour - time.Minute)), To: timestamppb.New(first.To.AsTime().Add(time.Hour))}
	if _, err := all[0].tryExport(ahead); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a window that lies ahead: %v", err)
	}
	windows := []*runlogv1.ExportEventsRequest{
		{To: first.To},
		{To: first.To, TenantId: "tenant", Types: []string{"StepCompleted"}},
		{From: timestamppb.New(first.To.AsTime().Add(-time.Hour)), To: first.To, RunId: "run-1"},
		{To: timestamppb.New(time.Unix(1_000_000_000, 0))}, // before everything
	}
	want := make([][]byte, len(windows))
	for i, w := range windows {
		x := all[0].export(w)
		if !x.summary.Closed {
			t.Fatalf("window %d is open", i)
		}
		want[i] = x.bytes(t)
	}
	check := func(when string) {
		t.Helper()
		for i, w := range windows {
			for _, n := range all {
				if got := n.export(w).bytes(t); !bytes.Equal(got, want[i]) {
					t.Errorf("%s: node %s answers window %d with other bytes:\n%s\nwant\n%s", when, n.opts.NodeID, i, got, want[i])
				}
			}
		}
	}
	check("at once")
	moveLeader(t, all)
	check("another leader")
	for round := range 4 {
		auditLoad(all[round%3], 2+round)
		for _, n := range all {
			if err := n.server.replica.Store().MakeDurable(0); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("flushed, and compacted in the background")
	for _, n := range all {
		n.restart()
	}
	check("restarted one by one")
	all.close()
	for _, n := range all {
		n.opts.Registry = nil
	}
	all.start()
	check("restarted all at once")
}

// TestWindowTokensREAD3: a token goes on at any node, after restarts and under another leader; what
// comes of it is the rest, with the same digest in the end. An export goes on from a message's
// token.
func TestWindowTokensREAD3(t *testing.T) {
	t.Parallel()
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
}

// queryFrom is query from a page on, before which there were so many events.
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

// TestIdleClusterClosesREAD4: a window that ends in the past is closed on demand though nobody
// appends, through any node, and one proposal does for all who ask for the same.
func TestIdleClusterClosesREAD4(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	all[0].append("run", newEvent("RunStarted"))
	for range 3 {
		for _, n := range all {
			before := n.server.replica.Store().Applied().PersistedAt
			to := timestamppb.New(time.Unix(0, before+1))
			for range 2 {
				resp, err := n.audit.QueryEvents(n.context(), &runlogv1.QueryEventsRequest{To: to})
				if err != nil || !resp.Closed || len(resp.Events) != 1 || !resp.CompleteThrough.AsTime().Equal(to.AsTime()) {
					t.Fatalf("%v, %v", resp, err)
				}
			}
			resp, err := n.audit.QueryEvents(n.context(), &runlogv1.QueryEventsRequest{})
			if err != nil || !resp.Closed {
				t.Fatalf("until now: %v, %v", resp, err)
			}
		}
	}
	// A closed window needs no leader: this node has all of it.
	leader := all.leader()
	follower := all.followers()[0]
	_, last := nodes{follower}.query(&runlogv1.QueryEventsRequest{})
	for _, n := range all {
		if n != follower {
			n.close()
		}
	}
	_ = leader
	events, again := nodes{follower}.query(&runlogv1.QueryEventsRequest{To: last.To})
	if len(events) != 1 || !again.Closed || again.Digest != last.Digest {
		t.Errorf("without a majority: %d events, %v", len(events), again)
	}
}

// TestOpenWindowsREAD4: one that ends ahead has what there is, says that it is open, and is closed
// later.
func TestOpenWindowsREAD4(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.append("run", newEvent("RunStarted"))
	to := timestamppb.New(time.Now().Add(time.Hour))
	events, last := nodes{n}.query(&runlogv1.QueryEventsRequest{To: to})
	if len(events) != 1 || last.Closed || !last.CompleteThrough.AsTime().Before(to.AsTime()) {
		t.Errorf("%d events, %v", len(events), last)
	}
	n.append("run", newEvent("RunPaused"))
	if events, _ := (nodes{n}).query(&runlogv1.QueryEventsRequest{To: to}); len(events) != 2 {
		t.Errorf("%d events, want 2", len(events))
	}
	if x := n.export(&runlogv1.ExportEventsRequest{To: to}); x.summary.Closed || x.summary.Count != 2 {
		t.Errorf("%v", x.summary)
	}
}

// TestWindowsBehindTheClockREAD4: a leader whose clock is behind the last stamp closes windows as
// any other: "until now" has everything that was acknowledged.
func TestWindowsBehindTheClockREAD4(t *testing.T) {
	t.Parallel()
	var behind atomic.Int64
	n := startNode(t, func(o *Options) { o.Clock = func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) } })
	for i := range 3 {
		n.append("run", newEvent("SignalAccepted", func(e *runlogv1.EventWrite) { e.LogicalAttemptId = uint32(i + 1) }))
		last := n.server.replica.Store().Applied().PersistedAt
		events, now := nodes{n}.query(&runlogv1.QueryEventsRequest{})
		if len(events) != i+1 || !now.Closed {
			t.Errorf("until now: %d events, closed %v, want %d", len(events), now.Closed, i+1)
		}
		at := timestamppb.New(time.Unix(0, last))
		if events, now := (nodes{n}).query(&runlogv1.QueryEventsRequest{From: at}); len(events) != 1 || !now.Closed {
			t.Errorf("from the last stamp on: %d events, %v", len(events), now)
		}
		behind.Store(int64(time.Hour))
	}
}

// TestWindowsAreRefused: each with the field and the reason.
func TestWindowsAreRefused(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	auditLoad(n, 0)
	now := time.Now()
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
	page, err := n.audit.QueryEvents(n.context(), &runlogv1.QueryEventsRequest{PageSize: 5, TenantId: "tenant"})
	if err != nil {
		t.Fatal(err)
	}
	token := page.NextPageToken
	types := make([]string, wire.MaxTypes+1)
	for i := range types {
		types[i] = fmt.Sprint("T", i)
	}
	changed := "A" + token[1:]
	if token[0] == 'A' {
		changed = "B" + token[1:]
	}
	for _, c := range []struct {
		name, field, says string
		req               *runlogv1.QueryEventsRequest
	}{
		{"empty", "to", "is not after from", &runlogv1.QueryEventsRequest{From: at(-time.Hour), To: at(-time.Hour)}},
		{"backward", "to", "is not after from", &runlogv1.QueryEventsRequest{From: at(-time.Hour), To: at(-2 * time.Hour)}},
		{"ahead", "from", "lies ahead", &runlogv1.QueryEventsRequest{From: at(time.Hour), To: at(2 * time.Hour)}},
		{"no time", "from", "between 1970 and 2262", &runlogv1.QueryEventsRequest{From: &timestamppb.Timestamp{Seconds: -1}}},
		{"no time either", "to", "between 1970 and 2262", &runlogv1.QueryEventsRequest{To: &timestamppb.Timestamp{Nanos: -1}}},
		{"tenant", "tenantId", "", &runlogv1.QueryEventsRequest{TenantId: strings.Repeat("x", 300)}},
		{"run", "runId", "", &runlogv1.QueryEventsRequest{RunId: "a|b"}},
		{"step", "stepId", "", &runlogv1.QueryEventsRequest{StepId: "a\nb"}},
		{"type", "types", "", &runlogv1.QueryEventsRequest{Types: []string{"a|b"}}},
		{"types", "types", "at most 100", &runlogv1.QueryEventsRequest{Types: types}},
		{"page size", "pageSize", "at most 1000", &runlogv1.QueryEventsRequest{PageSize: 1001}},
		{"no token", "pageToken", "is not a token", &runlogv1.QueryEventsRequest{PageToken: "what?"}},
		{"list token", "pageToken", "is not a token", &runlogv1.QueryEventsRequest{PageToken: n.watchToken("run", 1)}},
		{"token of another query", "pageToken", "of another query", &runlogv1.QueryEventsRequest{PageToken: token, TenantId: "other"}},
		{"token of another window", "pageToken", "of another query", &runlogv1.QueryEventsRequest{PageToken: token, TenantId: "tenant", From: at(-time.Hour)}},
		{"changed token", "pageToken", "", &runlogv1.QueryEventsRequest{PageToken: changed, TenantId: "tenant"}},
		{"cut token", "pageToken", "", &runlogv1.QueryEventsRequest{PageToken: token[:len(token)-4], TenantId: "tenant"}},
	} {
		_, err := n.audit.QueryEvents(n.context(), c.req)
		if r := refused(t, err, contract.ReasonInvalidArgumentField); !strings.Contains(r.fields[c.field], c.says) || r.fields[c.field] == "" {
			t.Errorf("%s: %v, want %q of %s", c.name, r.fields, c.says, c.field)
		}
	}
	// Over HTTP a filter that does not exist is one that was mistyped.
	r := n.http(http.MethodGet, "/v1/audit/events?tenant=x", "").refused(t, contract.ReasonInvalidArgumentField)
	if _, ok := r.fields["tenant"]; !ok {
		t.Errorf("unknown filter: %v", r.fields)
	}
}

// TestWindowsOverHTTP: the routes, the natural payload, and Server-Sent Events that a browser
// resumes.
func TestWindowsOverHTTP(t *testing.T) {
	t.Parallel()
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
}

// TestAheadByTheLeaderREAD3: whether a window lies ahead is a matter of the leader's clock, which
// stamps, and not of that of the node that is asked.
func TestAheadByTheLeaderREAD3(t *testing.T) {
	t.Parallel()
	offsets := make([]atomic.Int64, 3)
	all := startNodes(t, 3, func(i int, o *Options) {
		o.Clock = func() time.Time { return time.Now().Add(time.Duration(offsets[i].Load())) }
	})
	all[0].mustAppend("run", numbered(0))
	leader := all.leader()
	for i, n := range all {
		if n == leader {
			offsets[i].Store(int64(time.Hour))
		}
	}
	for _, n := range all {
		soon := timestamppb.New(time.Now().Add(30 * time.Minute))
		if got, err := n.audit.QueryEvents(n.context(), &runlogv1.QueryEventsRequest{From: soon}); err != nil || len(got.Events) > 0 {
			t.Errorf("node %s, which does not lead: %t: %v, %v", n.opts.NodeID, n != leader, got, err)
		}
		later := timestamppb.New(time.Now().Add(3 * time.Hour))
		_, err := n.audit.QueryEvents(n.context(), &runlogv1.QueryEventsRequest{From: later})
		if r := refused(t, err, contract.ReasonInvalidArgumentField); !strings.Contains(r.fields["from"], "lies ahead") {
			t.Errorf("node %s: %v", n.opts.NodeID, r.fields)
		}
	}
}
