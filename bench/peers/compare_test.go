package main

import (
	"strings"
	"testing"
	"time"

	"runlog/bench"
)

// figures of one round.
func figures(system string, round int, w string, rate float64, p50 time.Duration) bench.Result {
	workload, err := bench.ParseWorkload(w, nil)
	if err != nil {
		panic(err)
	}
	return bench.Result{System: system, Round: round, Workload: workload, EventsPerSecond: rate, Latency: bench.Latency{P50: p50, P99: 2 * p50}}
}

func exampleReport() *bench.Report {
	r := &bench.Report{}
	for round, rate := range []float64{300, 100, 200} {
		const u1, u64, u256 = "append-unary:callers=1", "append-unary:callers=64", "append-unary:callers=256"
		r.Results = append(r.Results,
			bench.Result{Limit: true, Round: round + 1, Workload: bench.Workload{Name: bench.GRPCEcho, Callers: 256, Batch: 1}, EventsPerSecond: 2 * rate},
			// The machine is slower in some rounds, for everybody.
			figures("runlog", round+1, u1, rate, 3*time.Millisecond), figures("postgres", round+1, u1, rate, 2*time.Millisecond),
			figures("runlog", round+1, u64, 5*rate, 1), figures("postgres", round+1, u64, rate, 1), figures("etcd", round+1, u64, 2.5*rate, 1),
			figures("runlog", round+1, u256, 1.2*rate, 1), figures("runlog", round+1, "append-stream:callers=4:in-flight=64", 2.4*rate, 1),
		)
	}
	return r
}

// TestGoals: ratios are taken within a round, and a goal says whether it is met.
func TestGoals(t *testing.T) {
	table := goalTable(exampleReport())
	var got []string
	for _, row := range table.Rows {
		if len(row) != len(table.Heads) {
			t.Errorf("%q under %q", row, table.Heads)
		}
		got = append(got, strings.Join(row, "|"))
	}
	want := []string{
		"unary, 1 client: p50 ÷ postgres|1.50×|≤ 1.3|≤ 1|missed",
		"unary, 64 clients: events ÷ postgres|5.00×|≥ 2.5|≥ 4|stretch",
		"unary, 64 clients: events ÷ etcd|2.00×|≥ 2||met",
		"unary, 256 clients: events ÷ gRPC echoes|0.600×|≥ 0.6|≥ 0.75|met",
		"single events on streams, 256 in flight: events ÷ unary|2.00×|≥ 1.5|≥ 3|met",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestGoalsAreMeasured: what make bench-peers runs by default is what the goals are about.
func TestGoalsAreMeasured(t *testing.T) {
	r := &bench.Report{Results: []bench.Result{{Limit: true, Round: 1, Workload: bench.Workload{Name: bench.GRPCEcho, Callers: 256, Batch: 1}, EventsPerSecond: 1}}}
	c, err := parseFlags(nil)
	if err != nil {
		t.Skip(err) // PostgreSQL is not installed
	}
	for _, s := range c.opts.Systems {
		for _, w := range c.opts.Workloads {
			r.Results = append(r.Results, bench.Result{System: s.Name, Round: 1, Workload: w, EventsPerSecond: 1, Latency: bench.Latency{P50: 1}})
		}
	}
	if got := len(goalTable(r).Rows); got != len(goals()) {
		t.Errorf("%d goals of %d are measured", got, len(goals()))
	}
}

func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		`no system "mysql", there are runlog, postgres`: {"--systems", "runlog,mysql"},
		`no workload "read"`:                            {"--systems", "runlog", "--workloads", "read"},
		`"nats@0": N after @ is 1 to`:                   {"--systems", "nats@0"},
		`"etcd@2": N after @`:                           {"--systems", "runlog,etcd@2"},
		`"more" is no flag`:                             {"--systems", "runlog", "more"},
	} {
		if _, err := parseFlags(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
