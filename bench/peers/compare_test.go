package main

import (
	"strings"
	"testing"
	"time"

	"runlog/bench"
	"runlog/bench/report"
)

// figures of one round.
func figures(system string, round int, w string, rate float64, p50 time.Duration) report.Result {
	workload, err := bench.ParseWorkload(w, nil)
	if err != nil {
		panic(err)
	}
	return report.Result{System: system, Round: round, Workload: workload, EventsPerSecond: rate, Latency: report.Latency{P50: p50, P99: 2 * p50}}
}

func exampleReport() *report.Report {
	r := &report.Report{}
	for round, rate := range []float64{300, 100, 200} {
		const u1, u64, u256 = "append-unary:callers=1", "append-unary:callers=64", "append-unary:callers=256"
		r.Results = append(r.Results,
			report.Result{Limit: true, Round: round + 1, Workload: report.Workload{Name: report.GRPCEcho, Callers: 256, Batch: 1}, EventsPerSecond: 2 * rate},
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
	r := exampleReport()
	r.Judge(goals(1))
	table := r.GoalTable()
	var got []string
	for _, row := range table.Rows {
		if len(row) != len(table.Heads) {
			t.Errorf("%q under %q", row, table.Heads)
		}
		got = append(got, strings.Join(row, "|"))
	}
	want := []string{
		"unary, 1 client: p50 ÷ postgres|1.50×|≤ 1.1|≤ 1|missed",
		"unary, 64 clients: events ÷ postgres|5.00×|≥ 2.5|≥ 4|stretch",
		"unary, 64 clients: events ÷ etcd|2.00×|≥ 2||met",
		"unary, 256 clients: events ÷ gRPC echoes|0.600×|≥ 0.6|≥ 0.75|met",
		"single events on streams, 256 in flight: events ÷ unary|2.00×|≥ 1.5|≥ 3|met",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestClusterGoals: batches are held to transactions of one event, with as many clients as etcd
// likes, and to what etcd makes of batches without a must.
func TestClusterGoals(t *testing.T) {
	r := &report.Report{}
	for round, speed := range []float64{1, 3, 2} {
		r.Results = append(r.Results,
			figures("runlog", round+1, "append-unary:callers=64", 2000*speed, 1), figures("etcd", round+1, "append-unary:callers=64", 1000*speed, 1),
			figures("runlog", round+1, "append-unary:callers=256", 11000*speed, 1), figures("etcd", round+1, "append-unary:callers=256", 2000*speed, 1),
			figures("runlog", round+1, "append-batch:callers=16:batch=100", 9000*speed, 1), figures("etcd", round+1, "append-batch:callers=16:batch=100", 6000*speed, 1))
	}
	r.Judge(goals(3))
	var got []string
	for _, row := range r.GoalTable().Rows {
		got = append(got, strings.Join(row, "|"))
	}
	want := []string{
		"batches of 100, 16 clients: events ÷ etcd's transactions of one event, 64 clients|9.00×|≥ 5||met",
		"batches of 100, 16 clients: events ÷ etcd's transactions of one event, 256 clients|4.50×|≥ 5||missed",
		"unary, 64 clients: events ÷ etcd's transactions of one event, 64 clients|2.00×|≥ 5||missed",
		"unary, 256 clients: events ÷ etcd's transactions of one event, 256 clients|5.50×|≥ 5||met",
		"batches of 100, 16 clients: events ÷ etcd's events in transactions of 100|1.50×|||",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestGoalsAreMeasured: what make bench-peers runs by default is what the goals are about.
func TestGoalsAreMeasured(t *testing.T) {
	for nodes, args := range map[int][]string{1: nil, 3: {"--nodes", "3"}} {
		r := &report.Report{Results: []report.Result{{Limit: true, Round: 1, Workload: report.Workload{Name: report.GRPCEcho, Callers: 256, Batch: 1}, EventsPerSecond: 1}}}
		c, err := parseFlags(args)
		if _, missing := postgresBin(); missing != nil && nodes == 1 {
			t.Log(missing)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.opts.Systems {
			for _, w := range c.opts.Workloads {
				r.Results = append(r.Results, report.Result{System: s.Name, Round: 1, Workload: w, EventsPerSecond: 1, Latency: report.Latency{P50: 1}})
			}
		}
		r.Judge(goals(nodes))
		if got := len(r.Goals); got != len(goals(nodes)) {
			t.Errorf("%d goals of %d are measured", got, len(goals(nodes)))
		}
	}
}

func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		`no system "mysql", there are runlog, postgres`: {"--systems", "runlog,mysql"},
		`no workload "read"`:                            {"--systems", "runlog", "--workloads", "read"},
		`"nats@0": N after @ is 1 to`:                   {"--systems", "nats@0"},
		`"etcd@2": N after @`:                           {"--systems", "runlog,etcd@2"},
		"postgres is compared as one server":            {"--nodes", "3", "--systems", "runlog,postgres"},
		"--nodes 0 is not 1, nor between 2 and":         {"--nodes", "0"},
		`"more" is no flag`:                             {"--systems", "runlog", "more"},
	} {
		if _, err := parseFlags(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
