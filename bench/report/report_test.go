package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// exampleReport has two systems, three rounds and everything that a table or a drawing can show.
func exampleReport() *Report {
	r := &Report{
		Machine:  Machine{CPU: `Engine <&> "1"`, Cores: 1, FileSystem: "cards", Platform: "linux/amd64", Go: "go1"},
		Settings: Settings{Seconds: 5, WarmUpSeconds: 1, PayloadBytes: 4000, Connections: 2, Rounds: 3},
		Systems:  []SystemFacts{{"a", []Fact{{"version", "1 < 2"}}}},
		LeftOut:  []string{"b, append-stream: it has no streaming append"},
	}
	for round := range 3 {
		rate := []float64{300, 100, 200}[round]
		limits := []Result{
			{Limit: true, Workload: Workload{Name: Fsync, Callers: 1, Batch: 1}, CallsPerSecond: rate, Latency: Latency{P50: 100, P99: 200}},
			{Limit: true, Workload: Workload{Name: SeqWrite, Callers: 1, Batch: 1}, CallsPerSecond: 10, RequestBytes: 1 << 20},
			{Limit: true, Workload: Workload{Name: GRPCEcho, Callers: 8, Batch: 1}, CallsPerSecond: 2 * rate, Latency: Latency{P50: 50, P99: 400}},
			{Limit: true, Workload: Workload{Name: GRPCEcho, Callers: 9, Batch: 1}, CallsPerSecond: 1},
		}
		for i := range limits {
			limits[i].Round = round + 1
		}
		r.Results = append(r.Results, limits...)
		for _, system := range []string{"a", "b"} {
			unary := Result{System: system, Workload: Workload{Name: "append-unary", Callers: 8, Batch: 1}, CallsPerSecond: rate, EventsPerSecond: rate,
				RequestBytes: 1 << 10, Latency: Latency{P50: 300, P99: 800, Max: time.Second}, Acknowledged: 100,
				Percentiles: []Percentile{{0, 0.1}, {0.5, 1}, {0.999, 30}}, Timeline: Timeline{100, []uint64{3, 4, 0}}, Seconds: 0.25,
				Errors: map[string]uint64{"OVERLOADED": 1200, "NO_LEADER": 1}, Usage: &Usage{PeakBytes: 5 << 20, WrittenBytes: 204800, CPUSeconds: 0.001}}
			mixed := Result{System: system, Workload: Workload{Name: "mixed-read", Callers: 8, Batch: 1, Rate: 1e3, Readers: 2}, EventsPerSecond: 4 * rate, Unsent: 7,
				LateP99: time.Millisecond, Reads: []ReadResult{{Name: "get-run", Calls: 9, Errors: map[string]uint64{"STALE_READ": 2}}},
				Restarts: []Restart{{FirstAppend: time.Second}, {FirstAppend: 3 * time.Second}, {FirstAppend: 2 * time.Second}}}
			for _, res := range []Result{unary, mixed} {
				res.Round = round + 1
				res.Ratios = r.RatiosOf(&res)
				r.Results = append(r.Results, res)
			}
		}
	}
	return r
}

// TestRatios: each workload is divided by the limits of its own round that have as many callers.
func TestRatios(t *testing.T) {
	r := exampleReport()
	for _, res := range r.Results {
		if res.Limit {
			continue
		}
		q, unary := res.Ratios, res.Name == "append-unary"
		if unary && (q.EchoCalls != 0.5 || q.EchoEvents != 0.5 || q.EchoP50 != 6 || q.EchoP99 != 2 || q.FsyncEvents != 1 || q.FsyncP50 != 3 || q.FsyncP99 != 4 || q.UnaryEvents != 0) {
			t.Errorf("%+v", q)
		}
		if unary && math.Abs(q.WriteBytes-res.CallsPerSecond/10/1024) > 1e-12 {
			t.Errorf("%+v", q)
		}
		if !unary && (q.UnaryEvents != 4 || q.FsyncEvents != 4) {
			t.Errorf("%+v", q)
		}
	}
}

// TestMedians: of three rounds the one in the middle by events a second, with each ratio's own
// median.
func TestMedians(t *testing.T) {
	r := exampleReport()
	r.Results[4].Ratios.EchoP50 = 100 // round 1 of append-unary on a
	medians := r.Medians()
	var names []string
	for _, m := range medians {
		names = append(names, m.System+" "+m.Name)
		if m.Name == "append-unary" && (m.EventsPerSecond != 200 || m.Round != 3 || m.Ratios.EchoP50 != 6) {
			t.Errorf("%+v, %+v", m, m.Ratios)
		}
	}
	if want := []string{" fsync", " seq-write", " grpc-echo", " grpc-echo", "a append-unary", "a mixed-read", "b append-unary", "b mixed-read"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	for want, values := range map[float64][]float64{0: nil, 1: {1}, 2: {3, 2}, 5: {9, 5, 1}} {
		if got := Median(values); got != want {
			t.Errorf("median of %v is %v", values, got)
		}
	}
	if got := medianRestart(medians[5].Restarts).FirstAppend; got != 2*time.Second {
		t.Errorf("the median restart took %v", got)
	}
}

// TestVersus: systems are compared within a round, and the median counts.
func TestVersus(t *testing.T) {
	r := &Report{}
	for round, rate := range []float64{300, 100, 200} {
		for _, x := range []struct {
			system  string
			factor  float64
			p50     time.Duration
			callers int
		}{{"a", 5, 3, 1}, {"b", 1, 2, 1}, {"c", float64(round + 1), 2, 1}, {"a", 1, 1, 2}, {"c", 1, 1, 3}} {
			r.Results = append(r.Results, Result{System: x.system, Round: round + 1, Workload: Workload{Name: "append-unary", Callers: x.callers, Batch: 1},
				EventsPerSecond: rate * x.factor, Latency: Latency{P50: x.p50, P99: 2 * x.p50}})
		}
	}
	var got []string
	for _, row := range r.Versus("a").Rows {
		got = append(got, strings.Join(row, "|"))
	}
	want := "append-unary|1|1|b|5.00×|1.50×|1.50×\nappend-unary|1|1|c|2.50×|1.50×|1.50×"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	echo := Result{Limit: true, Round: 2, Workload: Workload{Name: GRPCEcho, Callers: 1}, EventsPerSecond: 1000}
	r.Results = append(r.Results, echo)
	if q, ok := r.Ratio(Events, SystemOf("a", r.Results[0].Workload), LimitOf(GRPCEcho, 1)); !ok || q != 0.5 {
		t.Errorf("%v, %t", q, ok)
	}
}

// TestTables: every row has a cell for each head, and says what it should.
func TestTables(t *testing.T) {
	r := exampleReport()
	var text strings.Builder
	for _, table := range r.Tables() {
		for _, row := range append([][]string{table.Heads}, table.Rows...) {
			if len(row) != len(table.Heads) {
				t.Errorf("%d cells under %q", len(row), table.Heads)
			}
			text.WriteString(strings.Join(row, "|") + "\n")
		}
	}
	for _, f := range r.Facts() {
		text.WriteString(f.Name + ": " + f.Value + "\n")
	}
	for _, want := range []string{
		"a append-unary|8||1|200|200|0.000 ms", "|1,201\n", "0.500×|0.500×|6.00×|2.00×", "a mixed-read|8|1,000|0|1.00 ms|7",
		"a mixed-read get-run|2|", "b mixed-read 2|0|3000 ms", "b mixed-read median|0|2000 ms", "5 MiB|0 MiB|2.00×|10.0 µs",
		`Machine: Engine <&> "1", 1 core, linux/amd64`, "a version: 1 < 2", "Left out: b, append-stream",
		"Measured: 5s each after a warm-up of 1s, payloads of 4,000 bytes, 2 connections; medians of 3 rounds",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if got := r.Failures()[0]; got != "a append-unary: 1,201 calls failed (1 NO_LEADER, 1,200 OVERLOADED)" {
		t.Error(got)
	}
	if got := r.Failures()[1]; got != "a mixed-read: 7 calls were due and never sent" {
		t.Error(got)
	}
}

// TestSVG: the drawing is well-formed XML without a coordinate that is no number, also of next to
// nothing.
func TestSVG(t *testing.T) {
	alone := &Report{Results: []Result{{Limit: true, Workload: Workload{Name: Fsync}, Percentiles: []Percentile{{0.5, 1}}}}}
	for name, r := range map[string]*Report{"example": exampleReport(), "nothing": {}, "limits": alone} {
		var b bytes.Buffer
		if err := r.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		svg := b.String()
		paths, dec := 0, xml.NewDecoder(&b)
		for {
			token, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, svg)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" {
				paths++
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, "%!") || paths == 0 {
			t.Errorf("%s: %s", name, svg)
		}
		if name == "example" && (!strings.Contains(svg, "append-unary, 8 callers") || strings.Count(svg, ">b</text>") != 4 || !strings.Contains(svg, "&lt;&amp;&gt;")) {
			t.Errorf("%s", svg)
		}
	}
}

// TestLastToFirst compares the ends of a run, without the last interval, which ends early.
func TestLastToFirst(t *testing.T) {
	events := func(n int, count func(int) uint64) []uint64 {
		list := make([]uint64, n)
		for i := range list {
			list[i] = count(i)
		}
		return list
	}
	for want, line := range map[float64]Timeline{
		0: {1000, events(4, func(int) uint64 { return 7 })},
		1: {1000, append(events(20, func(int) uint64 { return 7 }), 1)},
		// the last minute alone
		0.5: {1000, append(events(900, func(i int) uint64 { return []uint64{8, 4}[i/60%15/14] }), 0)},
		// quarters
		2: {1000, append(events(16, func(i int) uint64 { return []uint64{3, 9, 9, 6}[i/4] }), 0)},
	} {
		if got := line.lastToFirst(); got != want {
			t.Errorf("%v intervals: %v, want %v", len(line.Events), got, want)
		}
	}
}

// TestJSON: a report is JSON, also where nothing was measured.
func TestJSON(t *testing.T) {
	r := Result{System: "s", Workload: Workload{Name: "append-unary", Callers: 3}, LongestPause: 1500 * time.Microsecond, EventsPerSecond: 1}
	r.Ratios = ratiosOf(&r, &Result{}, &Result{}, &Result{}, nil)
	text, err := json.Marshal(Report{Results: []Result{r}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"append-unary"`, `"callers":3`, `"longestPauseMs":1.5`, `"eventsToUnary":0`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s has no %s", text, want)
		}
	}
}
