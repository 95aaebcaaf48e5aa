package report

import (
	"time"
)

func takeoverTable(results []Result, many bool) Table {
	t := Table{Heads: []string{"NEXT APPEND AFTER", "TIMES", "MIN", "P50", "P90", "MAX", "LONGEST PAUSE", "FAILED TRIES", "IN SYNC AGAIN, P50", "IN SYNC AGAIN, MAX"}}
	for i := range results {
		r := &results[i]
		if len(r.Takeovers) == 0 {
			continue
		}
		outage, sync := r.outages(outageOf), r.outages(func(t *Takeover) time.Duration { return t.InSync })
		tries := 0
		for _, x := range r.Takeovers {
			tries += x.FailedTries
		}
		t.Rows = append(t.Rows, []string{name(r, many), Grouped(len(outage)), durationText(quantile(outage, 0)), durationText(quantile(outage, 0.5)),
			durationText(quantile(outage, 0.9)), durationText(quantile(outage, 1)), durationText(MaxPause(r)), Grouped(tries),
			durationText(quantile(sync, 0.5)), durationText(quantile(sync, 1))})
	}
	return t
}

// durationText is latencyText of nanoseconds.
func durationText(ns float64) string { return latencyText(time.Duration(ns)) }
