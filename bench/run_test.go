package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runlog/bench/benchtest"
	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// workloads parses a list of them.
func workloads(t *testing.T, texts ...string) []report.Workload {
	t.Helper()
	var out []report.Workload
	for _, text := range texts {
		w, err := ParseWorkload(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, w)
	}
	return out
}

// brief options measure some calls, however long these take on a busy machine.
func brief(t *testing.T, system target.System, texts ...string) Options {
	return Options{
		Workloads: workloads(t, texts...), Systems: []target.System{system}, Dir: t.TempDir(),
		Duration: time.Minute, WarmUp: 5 * time.Millisecond, Calls: 60,
	}
}

// TestRunEverything runs every workload for a moment over gRPC or in memory, and compares what it
// says was acknowledged with what the target has.
func TestRunEverything(t *testing.T) {
	fake := benchtest.NewStore()
	o := brief(t, inMemory(fake), "append-unary:callers=8", "append-batch:callers=4:batch=20", "append-stream:callers=2:in-flight=5:batch=3",
		"hot-run:callers=4", "many-runs:callers=4", "many-runs:callers=4:runs=40:batch=2", "mixed-read:callers=4:readers=3", "append-unary:callers=4:rate=500")
	var measured []string
	var progress atomic.Int64
	o.Calls = 400
	o.Measured = func(r report.Result) { measured = append(measured, r.Name) }
	o.Progress = func(Progress) { progress.Add(1) }
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := "fsync seq-write grpc-echo grpc-echo grpc-stream append-unary append-batch append-stream hot-run many-runs many-runs mixed-read append-unary"
	if got := strings.Join(measured, " "); got != want || progress.Load() == 0 {
		t.Errorf("measured %q, want %q; %d times progress", got, want, progress.Load())
	}
	var acknowledged uint64
	for _, r := range rep.Results {
		if r.Calls == 0 || r.Events != r.Calls*uint64(r.Batch) || r.Acknowledged < r.Events || len(r.Errors) > 0 || r.Seconds <= 0 || r.RequestBytes == 0 {
			t.Errorf("%+v", r)
		}
		l := r.Latency
		if l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max {
			t.Errorf("%s: %+v", r.Name, l)
		}
		if r.Limit != (r.Ratios == nil) || r.Limit != (r.Usage == nil) || (len(r.Reads) > 0) != (r.Name == "mixed-read") {
			t.Errorf("%s has ratios %v, usage %v, reads %v", r.Name, r.Ratios, r.Usage, r.Reads)
		}
		var events uint64
		for _, n := range r.Timeline.Events {
			events += n
		}
		if events != r.Events {
			t.Errorf("%s: the timeline has %d events of %d", r.Name, events, r.Events)
		}
		if !r.Limit {
			acknowledged += r.Acknowledged
		}
	}
	if acknowledged != fake.Stored.Load() {
		t.Errorf("acknowledged %d events, the target has %d", acknowledged, fake.Stored.Load())
	}
	if files, err := os.ReadDir(o.Dir); err != nil || len(files) > 0 || fake.Closed.Load() != 8 {
		t.Errorf("left behind: %v, %v; closed %d of 8 times", files, err, fake.Closed.Load())
	}
}

func TestRunOverGRPC(t *testing.T) {
	for _, connections := range []int{1, 3} {
		fake := benchtest.NewStore()
		o := brief(t, overGRPC(t, fake, connections), "append-unary:callers=8", "append-stream:callers=2:in-flight=5", "mixed-read:callers=4:readers=3", "duplicates:callers=4")
		o.Connections, o.Calls = connections, 200
		rep, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rep.Results {
			if r.Calls == 0 || len(r.Errors) > 0 {
				t.Errorf("%s: %d calls, %v", r.Name, r.Calls, r.Errors)
			}
			var reads uint64
			for _, q := range r.Reads {
				reads += q.Calls
				if len(q.Errors) > 0 {
					t.Errorf("%+v", q)
				}
			}
			if r.Name == "mixed-read" && reads == 0 {
				t.Errorf("nothing was read: %+v", r.Reads)
			}
		}
	}
}

// TestDuplicates: most requests are sent again and nothing of them is stored; what a target stores
// twice, or answers otherwise, is found.
func TestDuplicates(t *testing.T) {
	fake := benchtest.NewStore()
	o := brief(t, inMemory(fake), "duplicates:callers=4:repeats=0.8")
	o.Calls = 300
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r := rep.Results[len(rep.Results)-1]
	if share := float64(fake.Stored.Load()) / float64(r.Acknowledged); len(r.Errors) > 0 || r.Acknowledged < 100 || share > 0.4 {
		t.Errorf("%d of %d stored, %v", fake.Stored.Load(), r.Acknowledged, r.Errors)
	}
	for reason, spoil := range map[string]func(*runlogv1.AppendResult){
		"STORED_TWICE": func(r *runlogv1.AppendResult) { r.Persisted = true },
		"OTHER_ANSWER": func(r *runlogv1.AppendResult) { r.RunSeq++ },
		"DIVERGED":     func(r *runlogv1.AppendResult) { r.Diverged = true },
	} {
		fake := benchtest.NewStore()
		fake.Spoil = func(_ uint64, res *runlogv1.AppendEventsResponse) error {
			if res.Results[0].Idempotent {
				spoil(res.Results[0])
			}
			return nil
		}
		rep, err := Run(t.Context(), brief(t, inMemory(fake), "duplicates:callers=1"))
		if err != nil || rep.Results[3].Errors[reason] == 0 {
			t.Errorf("want %s, got %v, %v", reason, rep.Results[3].Errors, err)
		}
	}
}

func TestSparseSystem(t *testing.T) {
	fake := benchtest.NewStore()
	fake.Gap = 7
	o := brief(t, inMemory(fake), "append-batch:callers=2:batch=5")
	for _, sparse := range []bool{true, false} {
		o.Systems[0].Sparse = sparse
		rep, err := Run(t.Context(), o)
		if refused := err != nil && strings.Contains(err.Error(), "runSeq 8 after 0"); refused == sparse {
			t.Errorf("sparse %t: %v, %v", sparse, rep, err)
		}
	}
}

func TestRunCountsRefusals(t *testing.T) {
	for _, workload := range []string{"append-unary:callers=4", "append-stream:callers=1:in-flight=4"} {
		fake := benchtest.NewStore()
		fake.Spoil = func(call uint64, _ *runlogv1.AppendEventsResponse) error {
			if call == 5 {
				return status.Error(codes.ResourceExhausted, "busy")
			}
			return nil
		}
		o := brief(t, inMemory(fake), workload)
		o.WarmUp, o.Calls = time.Nanosecond, 40
		rep, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r := rep.Results[3]; r.Errors["ResourceExhausted"] != 1 || r.Calls != 39 || r.Acknowledged != fake.Stored.Load()-1 {
			t.Errorf("%+v, the target has %d", r, fake.Stored.Load())
		}
		if got := rep.Failures(); len(got) != 1 || !strings.HasSuffix(got[0], ": 1 calls failed (1 ResourceExhausted)") {
			t.Errorf("%q", got)
		}
	}
}

// TestBrokenStream: what was on it fails, and the loop goes on with another one.
func TestBrokenStream(t *testing.T) {
	fake := benchtest.NewStore()
	fake.Spoil = func(call uint64, _ *runlogv1.AppendEventsResponse) error {
		if call == 20 {
			return status.Error(codes.Unavailable, "cut")
		}
		return nil
	}
	o := brief(t, inMemory(fake), "append-stream:callers=1:in-flight=4")
	o.Calls = 100
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r := rep.Results[3]
	if failed := r.Errors["Unavailable"]; failed == 0 || failed > 4 || r.Calls < 90 {
		t.Errorf("%d calls, %v", r.Calls, r.Errors)
	}
}

func TestRecovery(t *testing.T) {
	fake := benchtest.NewStore()
	o := brief(t, inMemory(fake), "recovery:callers=8:kills=2")
	o.Duration, o.Calls = 60*time.Millisecond, 0
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r := rep.Results[3]
	if len(r.Restarts) != 2 || len(r.Errors) > 0 || r.Usage != nil {
		t.Fatalf("%+v", r)
	}
	for _, x := range r.Restarts {
		if x.FirstAppend < 15*time.Millisecond || x.Outage < x.FirstAppend || x.AcknowledgedEvents == 0 {
			t.Errorf("%+v", x)
		}
	}
	fake.Forget = true
	o.Workloads[0].Kills = 1
	rep, err = Run(t.Context(), o)
	if err != nil || rep.Results[3].Errors["LOST"] != 1 {
		t.Errorf("a lost event is not found: %+v, %v", rep.Results[3].Errors, err)
	}
}

// writeOnly can append and nothing else.
type writeOnly struct{ n fakeNode }

func (w writeOnly) Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	return w.n.Append(ctx, req)
}
func (w writeOnly) Close() error { return nil }

// TestRounds: systems take turns, each workload is compared within its round, and a system that
// cannot do a workload is left out of it and said to be.
func TestRounds(t *testing.T) {
	a, b := benchtest.NewStore(), benchtest.NewStore()
	o := brief(t, inMemory(a), "append-unary:callers=2", "append-stream:callers=1:in-flight=2")
	o.Systems[0].Name = "a"
	o.Systems = append(o.Systems, target.System{Name: "b", Open: func(context.Context, string) (target.Target, error) { return writeOnly{fakeNode{b}}, nil }})
	o.Rounds = 3
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, r := range rep.Results {
		if r.Name == "append-unary" {
			order = append(order, r.System)
		}
		if r.Name == "append-stream" && (r.System != "a" || r.Ratios.UnaryEvents == 0) {
			t.Errorf("%s: %+v", r.System, r.Ratios)
		}
	}
	if got := strings.Join(order, ""); got != "abbaab" {
		t.Errorf("the systems came in the order %s", got)
	}
	if len(rep.LeftOut) != 1 || !strings.Contains(rep.LeftOut[0], "b, append-stream") || len(rep.Medians()) != 4+3 {
		t.Errorf("left out %q, %d medians", rep.LeftOut, len(rep.Medians()))
	}
	o.Systems = o.Systems[1:]
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no streaming append") {
		t.Errorf("one system alone that cannot: %v", err)
	}
}

func TestRunWithoutANode(t *testing.T) {
	o := brief(t, target.System{Name: "x", Open: func(context.Context, string) (target.Target, error) { return target.Connect("127.0.0.1:1", 1) }})
	o.Calls = 1
	rep, err := Run(t.Context(), o)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != codes.Unavailable || len(rep.Results) != 5 {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestLimitsAlone(t *testing.T) {
	rep, err := Run(t.Context(), Options{Dir: t.TempDir(), Duration: time.Minute, WarmUp: time.Nanosecond, Calls: 5, EchoCallers: []int{1, 8}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rep.Results {
		names = append(names, r.Name)
	}
	if want := []string{report.Fsync, report.SeqWrite, report.GRPCEcho, report.GRPCEcho, report.GRPCStream}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

func TestOptionsReportEveryFault(t *testing.T) {
	_, err := Run(t.Context(), Options{
		Workloads: []report.Workload{{Name: "read"}, {Name: "append-unary", Callers: -1, Batch: 1001, Rate: math.NaN(), Repeats: 1},
			{Name: "many-runs", Callers: 8, Batch: 1, Runs: 7}, {Name: "append-stream", Callers: 1, Batch: 1}},
		Systems: []target.System{{Name: "closed"}}, Duration: -1, PayloadBytes: 1, Rounds: -1, Connections: -1, EchoCallers: []int{-7},
	})
	for _, want := range []string{`"read"`, "duration", "callers is -1", "callers is -7", "batch", "payload", "Dir", "rate", "repeats", "7 runs", "in-flight", "rounds", "connections", `"closed"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestParseWorkload(t *testing.T) {
	w, err := ParseWorkload("append-stream:callers=2:batch=100", func(w *report.Workload, _ Kind) { w.InFlight, w.Batch = 8, 3 })
	if want := (report.Workload{Name: "append-stream", Callers: 2, InFlight: 8, Batch: 100}); err != nil || w != want {
		t.Errorf("%+v, %v", w, err)
	}
	for text, want := range map[string]string{
		"":                          `no workload ""`,
		"append":                    "there are append-unary",
		"append-unary:in-flight=3":  `append-unary takes callers=, rate=, not "in-flight=3"`,
		"append-unary:callers":      `not "callers"`,
		"append-unary:callers=many": "callers=many: not a number",
		"append-unary:callers=0":    "want 1 to",
		"append-unary:rate=-1":      "rate is -1",
		"duplicates:repeats=1":      "want a share",
	} {
		if _, err := ParseWorkload(text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", text, err, want)
		}
	}
	for _, k := range Kinds() {
		if _, err := ParseWorkload(k.Name, nil); err != nil || k.About == "" {
			t.Errorf("%s by its defaults: %v", k.Name, err)
		}
	}
}
