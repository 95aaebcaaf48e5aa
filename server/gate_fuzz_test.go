package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/gateway"
	"runlog/server/rpc"
	"runlog/server/servertest"
)

// gates are the entries of one node, without a network: the HTTP handler, and the gRPC server
// behind the gateway's in-memory connection.
type gates struct {
	server *server.Server
	http   http.Handler
	conn   *grpc.ClientConn
	runs   atomic.Uint64
}

// openGates starts a node that ends with the fuzzing.
func openGates(f *testing.F, change ...func(*server.Options)) *gates {
	f.Helper()
	opts := server.Options{
		DataDir:    f.TempDir(),
		GRPCListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", RaftListen: "127.0.0.1:0",
		MaxRequestBytes: 1 << 20, MaxWait: time.Millisecond,
		Fail: func(err error) { panic(err) },
	}
	for _, c := range change {
		c(&opts)
	}
	s, err := server.Start(f.Context(), opts)
	if err != nil {
		f.Fatal(err)
	}
	g := &gates{server: s}
	listener, chain := gateway.Listen(), s.Chain(rpc.CallerClient)
	inner := grpc.NewServer(slices.Concat(chain.ServerOptions(), server.TransportOptions())...)
	chain.Register(inner, s.Services())
	served := make(chan error, 1)
	go func() { served <- inner.Serve(listener) }()
	f.Cleanup(func() {
		inner.Stop()
		if err := errors.Join(<-served, s.Close()); err != nil {
			f.Error(err)
		}
	})
	g.conn, err = grpc.NewClient("passthrough:gates", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { g.conn.Close() })
	conn, err := gateway.Dial(chain.Direct(s.Services()), listener, s.Limits())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	api, err := gateway.New(context.Background(), gateway.Options{Conn: conn, Limits: s.Limits(), Services: s.Services()})
	if err != nil {
		f.Fatal(err)
	}
	pages := gateway.NewPages(gateway.PagesOptions{Healthz: s.Healthz, Readyz: s.Readyz})
	pages.Serve(api)
	g.http = pages
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		f.Fatal(err)
	}
	return g
}

// freshRun names a run that is not there yet.
func (g *gates) freshRun() string { return fmt.Sprint("run-", g.runs.Add(1)) }

// lastSeq of a run; 0 when it does not exist.
func (g *gates) lastSeq(runID string) uint64 {
	r, err := g.server.Internals().Replica.Store().Run(runID)
	if err != nil {
		return 0
	}
	return r.LastSeq
}

// requireReason requires a reason of the table with its code: never an internal error.
func requireReason(t testing.TB, err error) contract.Reason {
	t.Helper()
	st := status.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			reason := contract.Reason(info.Reason)
			if info.Domain != "runlog" || reason.Info().Code != st.Code() || st.Code() == codes.Internal || st.Message() == "" {
				t.Fatalf("%v has reason %s of %s", st, reason, info.Domain)
			}
			return reason
		}
	}
	t.Fatalf("without a reason: %v", st)
	return ""
}

// post sends a body, and returns the answer's JSON, or the reason it was refused for.
func (g *gates) post(t testing.TB, target string, body []byte) (map[string]any, contract.Reason) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, bytes.NewReader(body))
	w := httptest.NewRecorder()
	g.http.ServeHTTP(w, r)
	return answered(t, w)
}

func (g *gates) get(t testing.TB, target string) map[string]any {
	t.Helper()
	w := httptest.NewRecorder()
	g.http.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	m, reason := answered(t, w)
	if reason != "" {
		t.Fatalf("GET %s: %s", target, w.Body)
	}
	return m
}

// answered wants JSON: that of a call, or an error with a reason of the table.
func answered(t testing.TB, w *httptest.ResponseRecorder) (map[string]any, contract.Reason) {
	t.Helper()
	var m map[string]any
	d := json.NewDecoder(w.Body)
	d.UseNumber()
	if err := d.Decode(&m); err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("HTTP %d %s: %v", w.Code, w.Header().Get("Content-Type"), err)
	}
	if w.Code == http.StatusOK {
		return m, ""
	}
	details, _ := m["details"].([]any)
	if len(details) == 0 {
		t.Fatalf("HTTP %d without a reason: %v", w.Code, m)
	}
	name, _ := details[0].(map[string]any)["reason"].(string)
	reason := contract.Reason(name)
	if reason.Info().HTTP != w.Code || w.Code == http.StatusInternalServerError {
		t.Fatalf("HTTP %d for %s: %v", w.Code, reason, m)
	}
	return nil, reason
}

// FuzzGateWire sends any bytes as a message of an append. The answer has the results of all events
// or a reason. A run has all of a request's events or none (APP-3).
func FuzzGateWire(f *testing.F) {
	for _, m := range []proto.Message{
		&runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("a", 2)},
		&runlogv1.AppendEventsRequest{RunId: "run", RequestId: "r", Events: []*runlogv1.EventWrite{servertest.NewEvent("RunStarted", servertest.Payload(`{"a":1e400}`)), servertest.NewEvent("x", servertest.Sparse)}},
		&runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{servertest.NewEvent("RunPaused", func(e *runlogv1.EventWrite) { e.EmittedAt.Nanos = -1 })}, ExpectedLastSeq: proto.Uint64(7)},
	} {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, uint8(0))
		f.Add(wire, uint8(3))
		f.Add(append(wireField(1, wire), wireField(1, wire)...), uint8(1))
	}
	created, err := proto.Marshal(&runlogv1.CreateRunRequest{Run: &runlogv1.Run{RunId: "c", TenantId: "t", ProjectId: "p", EnvironmentId: "e",
		PlanRef: &runlogv1.PlanRef{PlanId: "p", PlanVersion: "1", Uri: "u", Sha256: strings.Repeat("ab", 32), SchemaVersion: "1"}, Labels: map[string]string{"a": "b"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(created, uint8(2))
	f.Add(emptyEvents("run", 1001), uint8(0))
	f.Add(wireField(2, wireField(9, []byte("a\xff"))), uint8(3))
	f.Add([]byte("hello"), uint8(1))
	g := openGates(f)
	f.Fuzz(func(t *testing.T, wire []byte, which uint8) {
		before := g.lastSeqs(wire, which%4)
		var stored map[string]uint64
		switch which % 4 {
		case 0:
			stored = g.appendWire(t, wire)
		case 1:
			stored = g.batchWire(t, wire)
		case 2:
			stored = g.createWire(t, wire)
		default:
			stored = g.streamWire(t, wire)
		}
		for run, last := range before {
			if got := g.lastSeq(run); got != last+stored[run] {
				t.Fatalf("run %q went from %d to %d, answered as stored: %d", run, last, got, stored[run])
			}
		}
	})
}

// lastSeqs of the runs that a request names.
func (g *gates) lastSeqs(wire []byte, which uint8) map[string]uint64 {
	var one runlogv1.AppendEventsRequest
	var batch runlogv1.BatchAppendRequest
	var create runlogv1.CreateRunRequest
	before := map[string]uint64{}
	switch which {
	case 1:
		_ = proto.Unmarshal(wire, &batch)
	case 2:
		_ = proto.Unmarshal(wire, &create)
		before[create.GetRun().GetRunId()] = 0
	default:
		_ = proto.Unmarshal(wire, &one)
		before[one.RunId] = 0
	}
	for _, r := range batch.Requests {
		before[r.RunId] = 0
	}
	for run := range before {
		before[run] = g.lastSeq(run)
	}
	return before
}

// inserted counts the results that are new. There is one for each event.
func inserted(t testing.TB, results []*runlogv1.AppendResult, events int) uint64 {
	t.Helper()
	if len(results) != events {
		t.Fatalf("%d results for %d events", len(results), events)
	}
	var n uint64
	for _, r := range results {
		if r.Persisted {
			n++
		}
	}
	return n
}

func (g *gates) invoke(t testing.TB, method string, wire []byte, to proto.Message) bool {
	t.Helper()
	var answer []byte
	if err := g.conn.Invoke(t.Context(), method, wire, &answer, grpc.ForceCodecV2(rawCodec{})); err != nil {
		requireReason(t, err)
		return false
	}
	if err := proto.Unmarshal(answer, to); err != nil {
		t.Fatal(err)
	}
	return true
}

func (g *gates) appendWire(t testing.TB, wire []byte) map[string]uint64 {
	var req runlogv1.AppendEventsRequest
	var resp runlogv1.AppendEventsResponse
	if !g.invoke(t, runlogv1.EventService_AppendEvents_FullMethodName, wire, &resp) {
		return nil
	}
	if err := proto.Unmarshal(wire, &req); err != nil {
		t.Fatal(err)
	}
	return map[string]uint64{req.RunId: inserted(t, resp.Results, len(req.Events))}
}

func (g *gates) createWire(t testing.TB, wire []byte) map[string]uint64 {
	var req runlogv1.CreateRunRequest
	var resp runlogv1.CreateRunResponse
	if !g.invoke(t, runlogv1.RunService_CreateRun_FullMethodName, wire, &resp) {
		return nil
	}
	if err := proto.Unmarshal(wire, &req); err != nil {
		t.Fatal(err)
	}
	return map[string]uint64{req.Run.RunId: inserted(t, resp.Results, len(req.Events))}
}

func (g *gates) batchWire(t testing.TB, wire []byte) map[string]uint64 {
	var req runlogv1.BatchAppendRequest
	var resp runlogv1.BatchAppendResponse
	if !g.invoke(t, runlogv1.EventService_BatchAppend_FullMethodName, wire, &resp) {
		return nil
	}
	if err := proto.Unmarshal(wire, &req); err != nil || len(resp.Outcomes) != len(req.Requests) {
		t.Fatal(len(resp.Outcomes), err)
	}
	stored := map[string]uint64{}
	for i, o := range resp.Outcomes {
		if o.GetStatus().GetCode() != 0 {
			requireReason(t, status.FromProto(o.Status).Err())
			continue
		}
		stored[req.Requests[i].RunId] += inserted(t, o.Results, len(req.Requests[i].Events))
	}
	return stored
}

// streamWire sends the bytes between two requests that are refused, each with an answer of its own.
func (g *gates) streamWire(t testing.TB, wire []byte) map[string]uint64 {
	stream, err := g.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		runlogv1.EventService_AppendStream_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	other := wireField(4, []byte("other"))
	for _, message := range [][]byte{other, wire, other} {
		if err := stream.SendMsg(message); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	_ = stream.CloseSend()
	stored := map[string]uint64{}
	for i := 0; ; i++ {
		var answer []byte
		var resp runlogv1.AppendStreamResponse
		switch err := stream.RecvMsg(&answer); {
		case errors.Is(err, io.EOF) && i == 3:
			return stored
		case err != nil && i != 1:
			t.Fatalf("answer %d: %v", i, err)
		case err != nil:
			requireReason(t, err)
			return nil
		}
		if err := proto.Unmarshal(answer, &resp); err != nil {
			t.Fatal(err)
		}
		if resp.Status != nil || i != 1 {
			requireReason(t, status.FromProto(resp.Status).Err())
			continue
		}
		var req runlogv1.AppendEventsRequest
		if err := proto.Unmarshal(wire, &req); err != nil {
			t.Fatal(err)
		}
		stored[req.RunId] = inserted(t, resp.Results, len(req.Events))
	}
}
