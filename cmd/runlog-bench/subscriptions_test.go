package main

import (
	"encoding/json"
	"strings"
	"testing"

	"runlog/bench/report"
)

// TestBenchSubscriptions: nodes as they are deliver to consumers and webhooks, also beside appends
// (BUS-9), and every goal has a figure.
func TestBenchSubscriptions(t *testing.T) {
	t.Parallel()
	out := succeed(t, "subscriptions", "--dir", t.TempDir(), "--duration", "300ms", "--rounds", "1",
		"--callers", "8", "--workloads", "consume:callers=1:runs=10:stored=2000,webhook:callers=1:runs=100:stored=2000,delivery-lag,append-unary,append-subscribed,append-dead-sink", "--json")
	var goals []report.Verdict
	for dec := json.NewDecoder(out); dec.More(); {
		var line struct {
			Name          string
			Limit         bool
			Calls, Events uint64
			Errors        map[string]uint64
			Lag           *report.LagResult
			Reads         []report.ReadResult
			Goals         []report.Verdict
		}
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		goals = line.Goals
		if line.Limit || line.Goals != nil {
			continue
		}
		if line.Calls == 0 || line.Events < line.Calls || len(line.Errors) > 0 || (line.Lag != nil) != (line.Name == report.DeliveryLag) {
			t.Errorf("%+v", line)
		}
		if line.Name == report.Subscribed && (len(line.Reads) != 1 || line.Reads[0].Calls == 0) {
			t.Errorf("%+v", line)
		}
	}
	var measures []string
	for _, g := range goals {
		if g.Figure <= 0 || g.Must == 0 || g.Verdict == "" {
			t.Errorf("%+v", g)
		}
		measures = append(measures, g.Measure)
	}
	want := "events to one pull consumer|events to a webhook, 64 requests in flight|persistedAt to consumer at half load: p99|" +
		"appends with 100 idle and 10 busy subscriptions ÷ without|appends beside a dead sink ÷ without"
	if got := strings.Join(measures, "|"); got != want {
		t.Errorf("goals %q, want %q", got, want)
	}
}
