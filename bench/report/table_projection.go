package report

import "fmt"

// Tables of the workloads about the projection.

func watches(results []Result, many bool) Table {
	t := Table{Heads: []string{"WATCH", "P50", "P99", "P99.9", "MAX", "DELIVERED", "WATERMARKS", "BEHIND", "EVENTS/S ALONE", "WATCHED", "WATCHED ÷ ALONE"}}
	for i := range results {
		w := results[i].Watch
		if w == nil {
			continue
		}
		l := &w.Delivery
		t.Rows = append(t.Rows, []string{name(&results[i], many), latencyText(l.P50), latencyText(l.P99), latencyText(l.P999), latencyText(l.Max),
			Grouped(w.Delivered), Grouped(w.Watermarks), Grouped(w.Behind), "", "", RatioText(w.Kept)})
		for n, turn := range w.Turns {
			t.Rows = append(t.Rows, []string{name(&results[i], many) + fmt.Sprintf(" turn %d", n+1), "", "", "", "", "", "", "",
				Grouped(turn.Alone), Grouped(turn.Watched), RatioText(Quotient(turn.Watched, turn.Alone))})
		}
	}
	return t
}

// memories has each workload with watchers after the limit with as many streams.
func memories(results []Result, many bool) Table {
	t := Table{Heads: []string{"MEMORY OF AN IDLE STREAM", "STREAMS", "LIVE", "LIVE − ECHO", "RESIDENT", "RESIDENT − ECHO"}}
	echo := make(map[Workload]*StreamMemory)
	for i := range results {
		r := &results[i]
		m := r.Memory
		if m == nil {
			continue
		}
		row := []string{name(r, many), Grouped(m.Streams), kibibytes(m.LiveBytes), "", kibibytes(m.ResidentBytes), ""}
		if r.Limit {
			echo[r.Workload] = m
		} else if e := echo[r.IdleBeside()]; e != nil {
			row[3], row[5] = kibibytes(m.LiveBytes-e.LiveBytes), kibibytes(m.ResidentBytes-e.ResidentBytes)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func lags(results []Result, many bool) Table {
	return lagsOf("PROJECTION LAG", results, many, func(r *Result) bool { return r.Name != DeliveryLag })
}

func deliveryLags(results []Result, many bool) Table {
	return lagsOf("DELIVERY LAG", results, many, func(r *Result) bool { return r.Name == DeliveryLag })
}

func lagsOf(what string, results []Result, many bool, of Of) Table {
	t := Table{Heads: []string{what, "MOST CALLS/S", "DUE/S", "BEGAN LATE, P99", "NEVER SENT", "EVENTS", "P50", "P99", "P99.9"}}
	for i := range results {
		r := &results[i]
		if l := r.Lag; l != nil && of(r) {
			t.Rows = append(t.Rows, []string{name(r, many), Grouped(l.HighestRate), Grouped(l.Rate), latencyText(r.LateP99), Grouped(r.Unsent),
				Grouped(l.Events), "≤ " + latencyText(l.P50), "≤ " + latencyText(l.P99), "≤ " + latencyText(l.P999)})
		}
	}
	return t
}

func rebuilds(results []Result, many bool) Table {
	t := Table{Heads: []string{"REBUILD", "EVENTS", "RUNS", "EVENTS/S", "SECONDS", "FOLDED/S", "SECONDS OF IT", "DIFFERING"}}
	for i := range results {
		if b := results[i].Rebuild; b != nil {
			t.Rows = append(t.Rows, []string{name(&results[i], many), Grouped(b.Events), Grouped(b.Runs), Grouped(b.EventsPerSecond),
				threeDigits(b.Seconds), Grouped(b.FoldEventsPerSecond), threeDigits(b.FoldSeconds), Grouped(b.Differing)})
		}
	}
	return t
}

// kibibytes shows a number that may be negative: a difference.
func kibibytes(n float64) string { return fmt.Sprintf("%.1f KiB", n/1024) }
