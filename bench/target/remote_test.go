package target

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/bench/benchtest"
	"runlog/bench/report"
	runlogv1 "runlog/proto/runlog/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// TestAdmin talks to a listener that answers as a node's does.
func TestAdmin(t *testing.T) {
	collected, last := 0, `{"phase":"done","compared":3}`
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# HELP a b c\n# TYPE a gauge\n", metricHeap, " 1.5e+06\n", metricStacks, " 500\n", metricResident, " 7\n", `h_bucket{le="+Inf"} 12`, "\n")
	})
	mux.HandleFunc("GET /debug/pprof/heap", func(http.ResponseWriter, *http.Request) { collected++ })
	mux.HandleFunc("POST /projection/rebuild", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"phase":"fold","folded":1}`)
		fmt.Fprintln(w, last)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	a := &Admin{address: s.Listener.Addr().String()}
	if m, err := a.Memory(t.Context()); err != nil || m != (report.Memory{LiveBytes: 1_500_500, ResidentBytes: 7}) || collected != collections {
		t.Errorf("%+v, %v, collected %d times", m, err, collected)
	}
	if m, err := a.Metrics(t.Context()); err != nil || len(m) != 4 || m[`h_bucket{le="+Inf"}`] != 12 {
		t.Errorf("%v, %v", m, err)
	}
	var states []RebuildState
	told := func(s RebuildState) { states = append(states, s) }
	if err := a.RebuildProjection(t.Context(), told); err != nil || len(states) != 2 || states[1].Compared != 3 {
		t.Errorf("%v, %v", states, err)
	}
	last = `{"phase":"failed","error":"no room"}`
	if err := a.RebuildProjection(t.Context(), told); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("%v", err)
	}
	s.Config.Handler = http.NotFoundHandler()
	if _, err := a.Metrics(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
}

// TestParseMark reads by hand what protobuf has written.
func TestParseMark(t *testing.T) {
	at := time.Unix(1_800_000_000, 987_654_321)
	mark := &runlogv1.Watermark{RunId: "run", LastEventSeq: 300, Status: runlogv1.RunStatus_RUNNING, PersistedAt: timestamppb.New(at), LagMs: 7}
	for _, live := range []bool{false, true} {
		res := &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: mark}, ResumeToken: "token"}
		if live {
			res.Kind = &runlogv1.WatchRunResponse_CaughtUp{CaughtUp: &runlogv1.CaughtUp{Watermark: mark}}
		}
		b, err := proto.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		if m, is := parseMark(b); m != (Mark{Seq: 300, PersistedAt: at.UnixNano()}) || is != live {
			t.Errorf("%+v, %t", m, is)
		}
		for n := range b {
			parseMark(b[:n]) // no more than that it ends
		}
		if n := testing.AllocsPerRun(100, func() { parseMark(b) }); n > 0 {
			t.Errorf("%v allocations a watermark", n)
		}
	}
}

// TestMessages: however the bytes of a stream come, the messages are the same.
func TestMessages(t *testing.T) {
	var stream []byte
	for _, text := range []string{"one", "", "three"} {
		stream = append(stream, 0)
		stream = append(binary.BigEndian.AppendUint32(stream, uint32(len(text))), text...)
	}
	for size := 1; size <= len(stream); size++ {
		var got []string
		var rest []byte
		for part := range slices.Chunk(stream, size) {
			var err error
			if rest, err = messages(rest, part, func(m []byte) { got = append(got, string(m)) }); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Join(got, "|") != "one||three" || len(rest) > 0 {
			t.Errorf("in parts of %d: %q and %d bytes", size, got, len(rest))
		}
	}
	if _, err := messages(nil, []byte{1, 0, 0, 0, 0}, func([]byte) {}); err == nil {
		t.Error("a compressed message is read")
	}
}

// TestSubscribeFails: a stream that ends, and a server that is none, are told.
func TestSubscribeFails(t *testing.T) {
	address := benchtest.NewStore().Serve(t)
	told := func(int, []byte, time.Time) bool { return false }
	requests := []proto.Message{&runlogv1.WatchRunRequest{}, &runlogv1.WatchRunRequest{}}
	if _, err := Subscribe(t.Context(), address, "/no.such/Method", 1, requests, told); !strings.Contains(fmt.Sprint(err), "has ended") || status.Code(err) != codes.Unimplemented {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Subscribe(ctx, address, runlogv1.ProjectionService_WatchRun_FullMethodName, 2, requests, told); err == nil {
		t.Error("streams that say nothing are live")
	}
	// No server can have port 0.
	if _, err := Subscribe(t.Context(), "127.0.0.1:0", "/x/Y", 1, requests, told); err == nil {
		t.Error("no server listens")
	}
}
