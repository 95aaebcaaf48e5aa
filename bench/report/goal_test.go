package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestGoals: ratios are medians of the rounds, the longest is that of all rounds, and a goal
// without a must is only told.
func TestGoals(t *testing.T) {
	r := &Report{}
	takeovers := func(ms ...int) []Takeover {
		var all []Takeover
		for _, n := range ms {
			all = append(all, Takeover{Outage: time.Duration(n) * time.Millisecond})
		}
		return all
	}
	unary, failover := Workload{Name: "append-unary", Callers: 1, Batch: 1}, Workload{Name: Failover, Callers: 1, Batch: 1}
	for round, x := range [][]Takeover{takeovers(900, 100, 200), takeovers(300, 301), takeovers(7000, 50, 60)} {
		r.Results = append(r.Results,
			Result{System: "one", Round: round, Workload: unary, EventsPerSecond: 100},
			Result{System: "many", Round: round, Workload: unary, EventsPerSecond: float64(30 * (round + 1))},
			Result{System: "many", Round: round, Workload: failover, Takeovers: x})
	}
	many := SystemOf("many", failover)
	ratio := RatioOf(Events, SystemOf("many", unary), SystemOf("one", unary))
	r.Judge([]Goal{
		{Measure: "a", Figure: ratio, Must: 0.5, Stretch: 0.7},
		{Measure: "b", Figure: ratio, Must: 0.5, Stretch: 0.6},
		{Measure: "c", Figure: ratio, Must: 0.61},
		{Measure: "d", Figure: ratio},
		{Measure: "e", Figure: FigureOf(MedianOutage, many, Median), Must: float64(time.Second), AtMost: true, Duration: true},
		{Measure: "f", Figure: FigureOf(MaxOutage, many, slices.Max[[]float64]), Must: float64(time.Second), AtMost: true, Duration: true},
		{Measure: "g", Figure: FigureOf(MaxPause, many, Median), AtMost: true, Duration: true},
		{Measure: "h", Figure: FigureOf(Events, SystemOf("none", unary), Median)},
	})
	var got []string
	for _, row := range r.GoalTable().Rows {
		got = append(got, strings.Join(row, "|"))
	}
	want := "a|0.600×|≥ 0.5|≥ 0.7|met\nb|0.600×|≥ 0.5|≥ 0.6|stretch\nc|0.600×|≥ 0.61||missed\nd|0.600×|||\n" +
		"e|200 ms|≤ 1000 ms||met\nf|7000 ms|≤ 1000 ms||missed"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	text, err := json.Marshal(r.Goals[5])
	if want := `{"measure":"f","figure":7000,"must":1000,"unit":"ms","atMost":true,"verdict":"missed"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	var rows []string
	for _, row := range takeoverTable(r.Medians(), true).Rows {
		rows = append(rows, strings.Join(row, "|"))
	}
	if want := "many failover|3|100 ms|200 ms|900 ms|900 ms|0.000 ms|0|0.000 ms|0.000 ms"; strings.Join(rows, "\n") != want {
		t.Errorf("%q", rows)
	}
}

func TestQuantile(t *testing.T) {
	var twenty []float64
	for i := range 20 {
		twenty = append(twenty, float64(20-i))
	}
	for _, x := range []struct {
		values      []float64
		share, want float64
	}{{nil, 0.5, 0}, {[]float64{3}, 0, 3}, {[]float64{3}, 1, 3}, {[]float64{3, 1}, 0.5, 1}, {[]float64{3, 1, 2}, 0.5, 2}, {twenty, 0.9, 18}, {twenty, 0, 1}, {twenty, 1, 20}} {
		if got := quantile(x.values, x.share); got != x.want {
			t.Errorf("quantile %v of %v is %v", x.share, x.values, got)
		}
	}
}
