package report

import (
	"slices"
)

// Of selects results.
type Of func(*Result) bool

// SystemOf means a workload on a system.
func SystemOf(system string, w Workload) Of {
	return func(r *Result) bool { return r.System == system && r.Workload == w }
}

// LimitOf means a limit of the machine.
func LimitOf(name string, callers int) Of {
	return func(r *Result) bool { return r.Limit && r.Name == name && r.Callers == callers }
}

// Events is a figure to compare, as P50 and P99 are: events a second.
func Events(r *Result) float64 { return r.EventsPerSecond }

// P50 is in nanoseconds.
func P50(r *Result) float64 { return float64(r.Latency.P50) }

// P99 is in nanoseconds.
func P99(r *Result) float64 { return float64(r.Latency.P99) }

// LagP99 is the lag of a projection or a delivery, in nanoseconds; 0: it was not measured.
func LagP99(r *Result) float64 {
	if r.Lag == nil {
		return 0
	}
	return float64(r.Lag.P99)
}

// Ratio divides a figure of a by that of b, within each round, and returns the median; false
// without a pair.
func (r *Report) Ratio(figure func(*Result) float64, a, b Of) (float64, bool) {
	var ratios []float64
	for i := range r.Results {
		x := &r.Results[i]
		if !a(x) {
			continue
		}
		at := slices.IndexFunc(r.Results, func(y Result) bool { return b(&y) && y.Round == x.Round })
		if at >= 0 && figure(&r.Results[at]) > 0 {
			ratios = append(ratios, figure(x)/figure(&r.Results[at]))
		}
	}
	return Median(ratios), len(ratios) > 0
}

// Versus divides one system by every other one, workload by workload.
func (r *Report) Versus(system string) Table {
	t := Table{Heads: []string{system + " ÷ OTHER", "CALLERS", "BATCH", "OTHER", "EVENTS/S", "P50", "P99"}}
	for _, other := range r.Medians() {
		if system == "" || other.Limit || other.System == system {
			continue
		}
		row := []string{name(&other, false), Grouped(other.Callers), Grouped(other.Batch), other.System}
		for _, figure := range []func(*Result) float64{Events, P50, P99} {
			if ratio, ok := r.Ratio(figure, SystemOf(system, other.Workload), SystemOf(other.System, other.Workload)); ok {
				row = append(row, RatioText(ratio))
			}
		}
		if len(row) == len(t.Heads) {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
