package main

import (
	"strconv"

	"runlog/bench"
)

// goal is a line of the table that runlog is held to: a ratio, and how large or small it must be.
type goal struct {
	measure string
	ratio   func(r *bench.Report) (float64, bool)
	must    float64
	stretch float64 // 0: none
	// atMost: smaller is better.
	atMost bool
}

// goals are what runlog means to reach next to the others; each is met by the median of the rounds.
func goals() []goal {
	unary := func(callers int) bench.Workload {
		return bench.Workload{Name: "append-unary", Callers: callers, Batch: 1}
	}
	batch := bench.Workload{Name: "append-batch", Callers: 16, Batch: 100}
	streamBatch := bench.Workload{Name: "append-stream", Callers: 16, InFlight: 1, Batch: 100}
	stream := bench.Workload{Name: "append-stream", Callers: 4, InFlight: 64, Batch: 1}
	return []goal{
		{"unary, 1 client: p50 ÷ postgres", ratioOf(bench.P50, runlog(unary(1)), bench.SystemOf("postgres", unary(1))), 1.3, 1, true},
		{"unary, 64 clients: events ÷ postgres", ratioOf(bench.Events, runlog(unary(64)), bench.SystemOf("postgres", unary(64))), 2.5, 4, false},
		{"unary, 64 clients: events ÷ etcd", ratioOf(bench.Events, runlog(unary(64)), bench.SystemOf("etcd", unary(64))), 2, 0, false},
		{"unary, 64 clients: events ÷ nats", ratioOf(bench.Events, runlog(unary(64)), bench.SystemOf("nats", unary(64))), 3, 0, false},
		{"unary, 256 clients: events ÷ gRPC echoes", ratioOf(bench.Events, runlog(unary(256)), bench.LimitOf(bench.GRPCEcho, 256)), 0.6, 0.75, false},
		{"unary, 256 clients: events ÷ postgres", ratioOf(bench.Events, runlog(unary(256)), bench.SystemOf("postgres", unary(256))), 3.5, 0, false},
		{"batches of 100, 16 clients: events ÷ postgres", ratioOf(bench.Events, runlog(batch), bench.SystemOf("postgres", batch)), 4, 0, false},
		{"batches of 100, 16 clients: events ÷ etcd", ratioOf(bench.Events, runlog(batch), bench.SystemOf("etcd", batch)), 6, 0, false},
		{"batches of 100, 16 clients: events ÷ nats", ratioOf(bench.Events, runlog(batch), bench.SystemOf("nats", batch)), 10, 0, false},
		{"streamed batches of 100, 16 clients: events ÷ postgres", ratioOf(bench.Events, runlog(streamBatch), bench.SystemOf("postgres", batch)), 4, 0, false},
		{"streamed batches of 100, 16 clients: events ÷ etcd", ratioOf(bench.Events, runlog(streamBatch), bench.SystemOf("etcd", batch)), 6, 0, false},
		{"streamed batches of 100, 16 clients: events ÷ nats", ratioOf(bench.Events, runlog(streamBatch), bench.SystemOf("nats", batch)), 10, 0, false},
		{"single events on streams, 256 in flight: events ÷ unary", ratioOf(bench.Events, runlog(stream), runlog(unary(256))), 1.5, 3, false},
	}
}

// usualWorkloads are those that the goals are about.
func usualWorkloads() []string {
	return []string{
		"append-unary:callers=1", "append-unary:callers=64", "append-unary:callers=256", "append-batch:callers=16:batch=100",
		"append-stream:callers=16:in-flight=1:batch=100", "append-stream:callers=4:in-flight=64",
	}
}

func runlog(w bench.Workload) bench.Of { return bench.SystemOf("runlog", w) }

func ratioOf(figure func(*bench.Result) float64, a, b bench.Of) func(*bench.Report) (float64, bool) {
	return func(r *bench.Report) (float64, bool) { return r.Ratio(figure, a, b) }
}

// goalTable says for each goal that was measured what the ratio is, and whether it is met.
func goalTable(r *bench.Report) bench.Table {
	t := bench.Table{Heads: []string{"MEASURE", "RATIO", "MUST", "STRETCH", ""}}
	for _, g := range goals() {
		ratio, ok := g.ratio(r)
		if !ok {
			continue
		}
		sign, stretch := "≥ ", ""
		if g.atMost {
			sign = "≤ "
		}
		if g.stretch > 0 {
			stretch = sign + strconv.FormatFloat(g.stretch, 'g', -1, 64)
		}
		t.Rows = append(t.Rows, []string{g.measure, bench.RatioText(ratio), sign + strconv.FormatFloat(g.must, 'g', -1, 64), stretch, g.verdict(ratio)})
	}
	return t
}

func (g *goal) verdict(ratio float64) string {
	met := func(than float64) bool { return g.atMost && ratio <= than || !g.atMost && ratio >= than }
	switch {
	case g.stretch > 0 && met(g.stretch):
		return "stretch"
	case met(g.must):
		return "met"
	default:
		return "missed"
	}
}
