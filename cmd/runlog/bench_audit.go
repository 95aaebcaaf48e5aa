package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"runlog/bench"
	benchload "runlog/bench/load"
	benchreport "runlog/bench/report"
	benchtarget "runlog/bench/target"
)

// What an audit is held to.
const (
	auditFirstPage = 50 * time.Millisecond
	auditExported  = 150_000
	auditVerified  = 500_000
	auditSlowdown  = 1.2
)

func (a *app) benchAuditCommand() *cobra.Command {
	var f benchFlags
	var fill benchload.Fill
	var store string
	cmd := &cobra.Command{
		Use:   benchreport.Audit,
		Short: "Measure windows of time, exports and verification on a large store",
		Long: `Fill a data directory with events that have payloads, and measure what an auditor's questions take:
the first page of a window of a million events in the midst of them, the export of the window, that
of a tenant who has one event in a hundred, the verification of a long run; and what appends take
beside an export, next to appends alone in the same run.

The events are written past the log, as runlog bench big-store does it.`,
		Example: `  runlog bench audit --receipts 2000000
  runlog bench audit --receipts 50000000 --store /var/tmp/audited --rounds 3`,
		Args: benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err == nil {
				err = fill.Validate()
			}
			if err != nil {
				return usageError("%v", err)
			}
			return a.benchAudit(cmd.Context(), &f, opts, fill, store)
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads", []string{benchreport.Audit + ":rate=1000"}, "what to measure")
	flags.IntVar(&fill.Receipts, "receipts", 2_000_000, "events in the store")
	flags.IntVar(&fill.RunEvents, "run-events", 100, "events of each run")
	flags.IntVar(&fill.PayloadBytes, "stored-payload-bytes", 300, "size of their payloads")
	flags.StringVar(&store, "store", "", "keep the filled data directory here, and use it again if it is there (default: removed afterwards)")
	f.batch, f.inFlight = 100, 64
	return cmd
}

func (a *app) benchAudit(ctx context.Context, f *benchFlags, opts bench.Options, fill benchload.Fill, data string) error {
	if name := wantsOwn(&opts); name != "" {
		return usageError("%s takes an empty node of its own; leave it out of %s", name, benchreport.Audit)
	}
	for i := range opts.Workloads {
		opts.Workloads[i].Stored = fill.Receipts
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	opts.Systems = []benchtarget.System{{Name: bigStore, Open: func(ctx context.Context, dir string) (benchtarget.Target, error) {
		return startNode(ctx, benchtarget.NodeOptions{Binary: binary, Dir: dir, Data: data, Connections: opts.Connections})
	}}}
	return a.runBench(ctx, f, opts, func(r *benchReport, dir string) error {
		r.goals = auditGoals(opts.Workloads)
		if data == "" {
			data = filepath.Join(dir, "filled")
		}
		return a.fill(ctx, r, &fill, binary, data)
	})
}

// fill fills a data directory, unless it is.
func (a *app) fill(ctx context.Context, r *benchReport, fill *benchload.Fill, binary, data string) error {
	began := time.Now()
	err := fill.FillDataDir(ctx, binary, data, func(events int) { r.filling(events, fill.Receipts) })
	r.bar.clear()
	if taken := time.Since(began); err == nil && taken > time.Second {
		fmt.Fprintf(a.stderr, "runlog: %s events in %s were written in %v\n", number(fill.Receipts), plural(fill.Runs(), "run"), taken.Round(time.Second/10))
	}
	return err
}

// auditGoals are what an audit means to reach: medians of the rounds.
func auditGoals(workloads []benchreport.Workload) []benchreport.Goal {
	var goals []benchreport.Goal
	for _, w := range workloads {
		if w.Name != benchreport.Audit {
			continue
		}
		of := benchreport.SystemOf(bigStore, w)
		add := func(measure string, figure func(*benchreport.AuditResult) float64, g benchreport.Goal) {
			g.Measure = measure
			g.Figure = benchreport.FigureOf(func(r *benchreport.Result) float64 { return figure(r.Audit) }, of, benchreport.Median)
			goals = append(goals, g)
		}
		add("first page of the window", func(r *benchreport.AuditResult) float64 { return float64(r.FirstPage.P50) }, benchreport.Goal{Must: float64(auditFirstPage), AtMost: true, Duration: true})
		add("events exported a second", func(r *benchreport.AuditResult) float64 { return r.Exported }, benchreport.Goal{Must: auditExported})
		add("1 % tenant: share of the window's time", func(r *benchreport.AuditResult) float64 { return r.TenantTime }, benchreport.Goal{})
		add("events verified a second", func(r *benchreport.AuditResult) float64 { return r.Verified }, benchreport.Goal{Must: auditVerified})
		add("p99 of appends beside an export ÷ alone", func(r *benchreport.AuditResult) float64 { return r.Slowdown }, benchreport.Goal{Must: auditSlowdown, AtMost: true})
	}
	return goals
}
