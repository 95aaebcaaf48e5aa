package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// patience is how long a test waits for something that must happen. It is long enough for a machine
// that does much else; no test waits for it to pass.
const patience = 30 * time.Second

// node is a running server and its clients. It ends with the test.
type node struct {
	t      *testing.T
	opts   Options
	server *Server

	conn       *grpc.ClientConn
	runs       runlogv1.RunServiceClient
	events     runlogv1.EventServiceClient
	projection runlogv1.ProjectionServiceClient
}

// testOptions are small, on free ports and in a directory of the test's own.
func testOptions(t *testing.T) Options {
	opts := Options{
		DataDir:    t.TempDir(),
		GRPCListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", RaftListen: "127.0.0.1:0",
		MaxWait: patience,
		Fail:    func(err error) { t.Errorf("the node stopped itself: %v", err) },
	}
	opts.Store.CacheBytes, opts.Store.MemTableBytes = 1<<20, 1<<20
	return opts
}

// startNode starts a server that can take appends.
func startNode(t *testing.T, change ...func(*Options)) *node {
	t.Helper()
	n := &node{t: t, opts: testOptions(t)}
	for _, c := range change {
		c(&n.opts)
	}
	n.start()
	t.Cleanup(n.close)
	return n
}

func (n *node) start() {
	n.t.Helper()
	s, err := Start(n.opts)
	if err != nil {
		n.t.Fatalf("Start: %v", err)
	}
	n.server = s
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		n.t.Fatalf("WaitReady: %v", err)
	}
	n.dial()
}

func (n *node) dial() {
	n.t.Helper()
	conn, err := grpc.NewClient(n.server.Addresses().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		n.t.Fatal(err)
	}
	n.conn = conn
	n.runs = runlogv1.NewRunServiceClient(conn)
	n.events = runlogv1.NewEventServiceClient(conn)
	n.projection = runlogv1.NewProjectionServiceClient(conn)
}

// close stops the server and reports what it says. Calling it again does nothing.
func (n *node) close() {
	n.t.Helper()
	if n.server == nil {
		return
	}
	if err := errors.Join(n.conn.Close(), n.server.Close()); err != nil {
		n.t.Errorf("Close: %v", err)
	}
	n.server = nil
}

// restart stops the server, lets between change what lies on disk, and starts it on the same directory.
func (n *node) restart(between ...func()) {
	n.t.Helper()
	n.close()
	for _, b := range between {
		b()
	}
	n.opts.Registry = nil
	n.start()
}

// context of one call.
func (n *node) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	n.t.Cleanup(cancel)
	return ctx
}

func (n *node) append(runID string, events ...*runlogv1.EventWrite) *runlogv1.AppendEventsResponse {
	n.t.Helper()
	resp, err := n.tryAppend(runID, events...)
	if err != nil {
		n.t.Fatalf("append to %q: %v", runID, err)
	}
	return resp
}

func (n *node) tryAppend(runID string, events ...*runlogv1.EventWrite) (*runlogv1.AppendEventsResponse, error) {
	return n.events.AppendEvents(n.context(), &runlogv1.AppendEventsRequest{RunId: runID, Events: events})
}

func (n *node) list(runID string) []*runlogv1.EventRecord {
	n.t.Helper()
	resp, err := n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: runID})
	if err != nil {
		n.t.Fatalf("list %q: %v", runID, err)
	}
	if resp.NextAfterSeq != 0 {
		n.t.Fatalf("list %q: more than a page", runID)
	}
	return resp.Events
}

func (n *node) snapshot(runID string) *runlogv1.RunSnapshot {
	n.t.Helper()
	resp, err := n.projection.GetSnapshot(n.context(), &runlogv1.GetSnapshotRequest{RunId: runID})
	if err != nil {
		n.t.Fatalf("snapshot of %q: %v", runID, err)
	}
	return resp.Snapshot
}

// httpAnswer is an HTTP answer read to its end.
type httpAnswer struct {
	code   int
	header http.Header
	body   []byte
}

// http sends a request; target is the path and query as they go over the wire.
func (n *node) http(method, target, body string, header ...string) httpAnswer {
	n.t.Helper()
	resp := n.httpStream(n.context(), method, target, body, header...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, target, err)
	}
	return httpAnswer{resp.StatusCode, resp.Header, text}
}

func (n *node) httpStream(ctx context.Context, method, target, body string, header ...string) *http.Response {
	n.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.server.Addresses().HTTP+target, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, target, err)
	}
	return resp
}

// httpClient keeps no connections: a closing server must not wait for a test's idle ones.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// get reads JSON that must be there into an object.
func (n *node) get(target string) map[string]any {
	n.t.Helper()
	return n.http(http.MethodGet, target, "").ok(n.t)
}

func (n *node) post(target, body string) map[string]any {
	n.t.Helper()
	return n.http(http.MethodPost, target, body).ok(n.t)
}

func (a httpAnswer) ok(t *testing.T) map[string]any {
	t.Helper()
	if a.code != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("HTTP %d %s: %s", a.code, a.header.Get("Content-Type"), a.body)
	}
	return parseObject(t, a.body)
}

func parseObject(t *testing.T, text []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return m
}

func runPath(runID, rest string) string { return "/v1/runs/" + url.PathEscape(runID) + rest }

// newEvent builds a valid 2.x event; change makes it another one.
func newEvent(eventType string, change ...func(*runlogv1.EventWrite)) *runlogv1.EventWrite {
	e := &runlogv1.EventWrite{
		EventType: eventType,
		TenantId:  "tenant", ProjectId: "project", EnvironmentId: "prod", PlanId: "plan", PlanVersion: "1",
		LogicalAttemptId: 1, EngineAttemptId: 1,
		EmittedAt: &timestamppb.Timestamp{Seconds: 1770805800, Nanos: 123456789},
	}
	for _, c := range change {
		c(e)
	}
	return e
}

func step(id string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.StepId = id }
}

func attempt(number uint32) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.LogicalAttemptId = number }
}

func payload(text string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) {
		e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(text)}
	}
}

// sparse makes an event of contract 1.1 that names nothing but its run.
func sparse(e *runlogv1.EventWrite) {
	e.ContractVersion = "1.1"
	e.TenantId, e.ProjectId, e.EnvironmentId, e.PlanId, e.PlanVersion = "", "", "", "", ""
	e.LogicalAttemptId, e.EngineAttemptId = 0, 0
}

func key(text string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.IdempotencyKey = text }
}

// steps makes count events of unknown type that differ in their stepId.
func steps(prefix string, count int) []*runlogv1.EventWrite {
	out := make([]*runlogv1.EventWrite, count)
	for i := range out {
		out[i] = newEvent("Noted", step(fmt.Sprintf("%s%d", prefix, i)))
	}
	return out
}

// refusal is what an error says in the terms of the contract.
type refusal struct {
	code       codes.Code
	reason     contract.Reason
	metadata   map[string]string
	message    string
	fields     map[string]string // of BadRequest: field to description
	retryAfter time.Duration
}

func refusalOf(t *testing.T, err error) refusal {
	t.Helper()
	st, ok := status.FromError(err)
	if err == nil || !ok {
		t.Fatalf("error %v is no status", err)
	}
	r := refusal{code: st.Code(), message: st.Message(), fields: map[string]string{}}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.Domain != "runlog" {
				t.Errorf("domain %q", d.Domain)
			}
			r.reason, r.metadata = contract.Reason(d.Reason), d.Metadata
		case *errdetails.BadRequest:
			for _, v := range d.FieldViolations {
				r.fields[v.Field] = v.Description
			}
		case *errdetails.RetryInfo:
			r.retryAfter = d.RetryDelay.AsDuration()
		}
	}
	return r
}

// refused wants an error of a reason, with the gRPC code of the contract's table.
func refused(t *testing.T, err error, reason contract.Reason) refusal {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", reason)
	}
	r := refusalOf(t, err)
	if r.reason != reason || r.code != reason.Info().Code {
		t.Fatalf("%v: reason %q, code %v; want %s, %v", err, r.reason, r.code, reason, reason.Info().Code)
	}
	return r
}

// refused wants an HTTP error of a reason, with the HTTP code of the contract's table.
func (a httpAnswer) refused(t *testing.T, reason contract.Reason) refusal {
	t.Helper()
	if a.code != reason.Info().HTTP || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("HTTP %d %s, want %d for %s: %s", a.code, a.header.Get("Content-Type"), reason.Info().HTTP, reason, a.body)
	}
	m := parseObject(t, a.body)
	r := refusal{fields: map[string]string{}, metadata: map[string]string{}}
	r.message, _ = m["message"].(string)
	if code, _ := m["code"].(json.Number); code.String() != fmt.Sprint(int(reason.Info().Code)) {
		t.Fatalf("code %v, want %d: %s", m["code"], reason.Info().Code, a.body)
	}
	details, _ := m["details"].([]any)
	for _, d := range details {
		d := d.(map[string]any)
		switch d["@type"] {
		case "type.googleapis.com/google.rpc.ErrorInfo":
			r.reason = contract.Reason(d["reason"].(string))
			for k, v := range d["metadata"].(map[string]any) {
				r.metadata[k] = v.(string)
			}
		case "type.googleapis.com/google.rpc.BadRequest":
			for _, v := range d["fieldViolations"].([]any) {
				v := v.(map[string]any)
				r.fields[v["field"].(string)] = v["description"].(string)
			}
		}
	}
	if r.reason != reason {
		t.Fatalf("reason %q, want %s: %s", r.reason, reason, a.body)
	}
	return r
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after %v: %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// within fails the test when f takes longer than patience, and says so instead of hanging.
func within[T any](t *testing.T, what string, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-time.After(patience):
		t.Fatalf("not done after %v: %s", patience, what)
		panic("unreachable")
	}
}

func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func wantProto(t *testing.T, what string, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// haltingLog is a logger that stops its caller at a message, which is how a test holds a room still.
type haltingLog struct {
	slog.Handler
	message string
	reached chan struct{} // a caller waits
	resume  chan struct{} // lets one caller go
}

func newHaltingLog(message string) *haltingLog {
	return &haltingLog{slog.DiscardHandler, message, make(chan struct{}, 100), make(chan struct{})}
}

func (h *haltingLog) Enabled(context.Context, slog.Level) bool { return true }
func (h *haltingLog) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *haltingLog) WithGroup(string) slog.Handler            { return h }
func (h *haltingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.reached <- struct{}{}
		<-h.resume
	}
	return nil
}
