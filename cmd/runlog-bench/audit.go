package main

import (
	"time"

	"runlog/bench/load"
	"runlog/bench/report"

	"github.com/spf13/cobra"

	"runlog/bench"
)

// Goals of an audit.
const (
	auditFirstPage = 50 * time.Millisecond
	auditExported  = 150_000
	auditVerified  = 500_000
	auditSlowdown  = 1.2
)

func (a *app) benchAuditCommand() *cobra.Command {
	fill := load.Fill{Receipts: 2_000_000, RunEvents: 100, PayloadBytes: 300}
	cmd := &cobra.Command{
		Use:   report.Audit,
		Short: "Measure windows, exports and verification on a large store",
		Long: `Fill a data directory with events that have payloads, and measure the queries of an auditor: the
first page of a window of a million events in the middle, the export of the window, the export of a
tenant with one event in a hundred, and the verification of a long run. Also measure appends during
an export, next to appends alone in the same run.

The events are written without the log, as in runlog-bench big-store.`,
		Example: `  runlog-bench audit --receipts 2000000
  runlog-bench audit --receipts 50000000 --store /var/tmp/audited --rounds 3`,
	}
	a.onFilled(cmd, &fill, []string{report.Audit + ":rate=1000"}, func(_ string, opts *bench.Options) func(*benchReport) {
		for i := range opts.Workloads {
			opts.Workloads[i].Stored = fill.Receipts
		}
		return func(r *benchReport) { r.goals = auditGoals(opts.Workloads) }
	})
	cmd.Flags().IntVar(&fill.PayloadBytes, "stored-payload-bytes", fill.PayloadBytes, "size of their payloads")
	return cmd
}

// auditGoals are the goals of an audit, for the medians of the rounds.
func auditGoals(workloads []report.Workload) []report.Goal {
	var goals []report.Goal
	for _, w := range workloads {
		if w.Name != report.Audit {
			continue
		}
		of := report.SystemOf(bigStore, w)
		add := func(measure string, figure func(*report.AuditResult) float64, g report.Goal) {
			g.Measure = measure
			g.Figure = report.FigureOf(func(r *report.Result) float64 { return figure(r.Audit) }, of, report.Median)
			goals = append(goals, g)
		}
		add("first page of the window", func(r *report.AuditResult) float64 { return float64(r.FirstPage.P50) }, report.Goal{Must: float64(auditFirstPage), AtMost: true, Duration: true})
		add("events exported a second", func(r *report.AuditResult) float64 { return r.Exported }, report.Goal{Must: auditExported})
		add("1 % tenant: share of the window's time", func(r *report.AuditResult) float64 { return r.TenantTime }, report.Goal{})
		add("events verified a second", func(r *report.AuditResult) float64 { return r.Verified }, report.Goal{Must: auditVerified})
		add("p99 of appends beside an export ÷ alone", func(r *report.AuditResult) float64 { return r.Slowdown }, report.Goal{Must: auditSlowdown, AtMost: true})
	}
	return goals
}
