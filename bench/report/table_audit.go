package report

import "fmt"

func audits(results []Result, many bool) Table {
	t := Table{Heads: []string{"AUDIT", "WINDOW", "FIRST PAGE P50", "P99", "EXPORTED/S", "1 % TENANT'S EVENTS", "ITS TIME", "MEMORY GREW", "VERIFIED/S", "APPENDS' P99", "BESIDE EXPORT", "÷ ALONE"}}
	for i := range results {
		a := results[i].Audit
		if a == nil {
			continue
		}
		t.Rows = append(t.Rows, []string{name(&results[i], many), Grouped(a.Window), latencyText(a.FirstPage.P50), latencyText(a.FirstPage.P99),
			Grouped(a.Exported), RatioText(a.TenantEvents), RatioText(a.TenantTime), kibibytes(float64(a.GrownBytes)), Grouped(a.Verified), "", "", RatioText(a.Slowdown)})
		for n, turn := range a.Turns {
			t.Rows = append(t.Rows, []string{name(&results[i], many) + fmt.Sprintf(" turn %d", n+1), "", "", "", threeDigits(turn.Exported) + " MiB/s", "", "", "", "",
				threeDigits(turn.AloneMs) + " ms", threeDigits(turn.BesideMs) + " ms", RatioText(Quotient(turn.BesideMs, turn.AloneMs))})
		}
	}
	return t
}
