package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// operated serves the target over gRPC, and asks its operator in memory.
func (f *fakeTarget) operated(t *testing.T, connections int) System {
	s := f.remoteSystem(t, connections)
	open := s.Open
	s.Open = func(ctx context.Context, dir string) (Target, error) {
		target, err := open(ctx, dir)
		if err != nil {
			return nil, err
		}
		return remoteNode{target.(*Remote), fakeNode{f}}, nil
	}
	return s
}

// last runs a workload and returns its result.
func last(t *testing.T, o Options) *Result {
	t.Helper()
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return &report.Results[len(report.Results)-1]
}

func TestSnapshots(t *testing.T) {
	for _, open := range []func(*fakeTarget) System{(*fakeTarget).system, func(f *fakeTarget) System { return f.remoteSystem(t, 2) }} {
		fake := newFakeTarget()
		report, err := Run(t.Context(), brief(t, open(fake), "snapshot:callers=4:runs=3"))
		if err != nil {
			t.Fatal(err)
		}
		n := len(report.Results)
		r, echo := report.Results[n-1], report.Results[n-2]
		if echo.Name != GRPCSnapshot || !echo.Limit || echo.Callers != 4 || echo.Calls == 0 || r.Calls == 0 || len(r.Errors) > 0 || fake.stored.Load() != 3*(2*snapshotSteps+1) {
			t.Errorf("%+v, %+v, %d stored", echo, r, fake.stored.Load())
		}
		if q := r.Ratios; q.EchoCalls != r.CallsPerSecond/echo.CallsPerSecond || q.EchoEvents != 0 || q.FsyncP50 != 0 {
			t.Errorf("%+v", q)
		}
		fake.stale = true
		if r := last(t, brief(t, open(fake), "snapshot:callers=4:runs=3")); r.Errors["STALE_READ"] == 0 {
			t.Errorf("a stale snapshot is not found: %+v", r)
		}
	}
}

func TestWatch(t *testing.T) {
	for name, open := range map[string]func(*fakeTarget) System{
		"memory": (*fakeTarget).system, "one connection": func(f *fakeTarget) System { return f.operated(t, 1) }, "three": func(f *fakeTarget) System { return f.operated(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			fake := newFakeTarget()
			o := brief(t, open(fake), "watch:callers=3:runs=8:watchers=20")
			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			r := &report.Results[len(report.Results)-1]
			w := r.Watch
			if len(r.Errors) > 0 || w.Behind > 0 || w.Watchers != 20 || len(w.Turns) != watchTurns || w.Kept <= 0 || r.Acknowledged != fake.stored.Load() {
				t.Errorf("%+v, %+v, %d stored", r, w, fake.stored.Load())
			}
			// Each run has two watchers or three.
			if events := 60 * uint64(watchTurns); w.Delivered < 2*events || w.Delivered > 3*events || w.Watermarks == 0 || w.Delivery.P50 <= 0 || w.Delivery.Max < w.Delivery.P999 {
				t.Errorf("%+v", w)
			}
			if at := slices.IndexFunc(report.Results, func(r Result) bool { return r.Name == GRPCIdle }); at < 0 || report.Results[at].Memory.Streams != 20 {
				t.Errorf("no limit for the memory: %+v", report.Results)
			}
			if r.Memory == nil || r.Memory.Streams != 20 {
				t.Errorf("%+v", r.Memory)
			}
			tables := report.Tables()
			rows := map[string]int{}
			for _, table := range tables {
				rows[table.Heads[0]] = len(table.Rows)
			}
			if rows["WATCH"] != 1+watchTurns || rows["MEMORY OF AN IDLE STREAM"] != 2 {
				t.Errorf("%v", rows)
			}
		})
	}
}

// TestDeafWatchers: watchers that do not hear of everything are counted.
func TestDeafWatchers(t *testing.T) {
	fake := newFakeTarget()
	fake.deaf = true
	o := brief(t, fake.system(), "watch:callers=1:runs=1:watchers=3")
	o.Grace = 500 * time.Millisecond // enough to open the streams on a busy machine
	if r := last(t, o); r.Errors["WATCHER_BEHIND"] == 0 || r.Watch.Behind == 0 || r.Watch.Behind > 6 || r.Watch.Delivered > 0 {
		t.Errorf("%+v, %+v", r.Errors, r.Watch)
	}
	x := &watching{watchers: []watcher{{run: &watchedRun{}}}, result: &WatchResult{}, o: &o}
	x.told(0, Mark{Seq: 3})
	x.told(0, Mark{Seq: 2})
	res := &Result{}
	if x.check(t.Context(), &fakeWatches{}, res); res.Errors["WATERMARK_WENT_BACK"] != 1 {
		t.Errorf("%v", res.Errors)
	}
}

// TestDelivery: an event that a watcher was not told of by itself is heard of with a later one.
func TestDelivery(t *testing.T) {
	run := &watchedRun{}
	x := &watching{watchers: []watcher{{run: run}}, result: &WatchResult{}}
	x.from.Store(1000)
	x.to.Store(2000)
	at := func(nanos int64) time.Time { return time.Unix(0, nanos) }
	for seq, persisted := range []int64{900, 990, 1000, 1100, 1500} {
		run.acknowledge(uint64(seq+1), persisted)
	}
	x.told(0, Mark{Seq: 1, PersistedAt: 900, At: at(1200)})
	x.told(0, Mark{Seq: 4, PersistedAt: 1100, At: at(1200)}) // and 2, which is too old, and 3
	x.told(0, Mark{Seq: 4, PersistedAt: 1100, At: at(1300)})
	x.told(0, Mark{Seq: 6, PersistedAt: 1600, At: at(1700)}) // not acknowledged yet, and 5
	x.told(0, Mark{Seq: 7, PersistedAt: 2000, At: at(2100)}) // too late
	if n, longest := x.delivery.Count(), x.delivery.Max(); n != 4 || longest != 200 || x.watermarks.Load() != 3 {
		t.Errorf("%d deliveries, the longest took %v; %d watermarks", n, longest, x.watermarks.Load())
	}
}

func TestWatchNeedsWatches(t *testing.T) {
	for _, workload := range []string{"watch:callers=1:runs=1:watchers=1", "lag:callers=1", "rebuild:callers=1:stored=1", "snapshot:callers=1"} {
		o := brief(t, System{Name: "x", Open: func(context.Context, string) (Target, error) { return writeOnly{fakeNode{newFakeTarget()}}, nil }}, workload)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "it has no ") {
			t.Errorf("%s: %v", workload, err)
		}
	}
}

func TestLag(t *testing.T) {
	fake := newFakeTarget()
	r := last(t, brief(t, fake.system(), "lag:callers=3"))
	l := r.Lag
	if l == nil || len(r.Errors) > 0 || l.Events < 60 || l.P50 != time.Millisecond || l.P999 != time.Millisecond || l.Rate != l.HighestRate/2 || l.Rate <= 0 {
		t.Errorf("%+v, %+v", r, l)
	}
	if r.Acknowledged != fake.stored.Load() {
		t.Errorf("acknowledged %d events, the target has %d", r.Acknowledged, fake.stored.Load())
	}
	series := func(bound string) string { return fmt.Sprintf(`%s_bucket{le="%s"}`, metricLag, bound) }
	l = lagBetween(Metrics{series("0.1"): 5, series("0.2"): 5, series("+Inf"): 5, metricLag + "_count": 5},
		Metrics{series("0.1"): 995, series("0.2"): 1003, series("+Inf"): 1005, metricLag + "_count": 1005})
	if l.Events != 1000 || l.P50 != 100*time.Millisecond || l.P99 != 100*time.Millisecond || l.P999 < time.Hour {
		t.Errorf("%+v", l)
	}
}

func TestRebuild(t *testing.T) {
	fake := newFakeTarget()
	r := last(t, brief(t, fake.system(), "rebuild:callers=3:batch=10:stored=95"))
	if b := r.Rebuild; b == nil || b.Events != 100 || b.Runs != 10 || b.EventsPerSecond <= 0 || b.FoldSeconds > b.Seconds || len(r.Errors) > 0 {
		t.Errorf("%+v, %+v", r, b)
	}
	fake.differing = 2
	if r := last(t, brief(t, fake.system(), "rebuild:callers=3:batch=10:stored=95")); r.Errors["DIFFERING"] != 2 {
		t.Errorf("%+v", r)
	}
}

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
	if m, err := a.Memory(t.Context()); err != nil || m != (Memory{LiveBytes: 1_500_500, ResidentBytes: 7}) || collected != collections {
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
	target, err := newFakeTarget().remoteSystem(t, 1).Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	address := target.(*Remote).address
	told := func(int, []byte, time.Time) bool { return false }
	requests := []proto.Message{&runlogv1.WatchRunRequest{}, &runlogv1.WatchRunRequest{}}
	if _, err := subscribe(t.Context(), address, "/no.such/Method", 1, requests, told); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := subscribe(ctx, address, runlogv1.ProjectionService_WatchRun_FullMethodName, 2, requests, told); err == nil {
		t.Error("streams that say nothing are live")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := subscribe(t.Context(), l.Addr().String(), "/x/Y", 1, requests, told); err == nil {
		t.Error("nobody listens")
	}
}
