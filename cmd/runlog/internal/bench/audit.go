package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/cmd/runlog/internal/output"

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
	var f benchFlags
	var fill load.Fill
	var store string
	cmd := &cobra.Command{
		Use:   report.Audit,
		Short: "Measure windows, exports and verification on a large store",
		Long: `Fill a data directory with events that have payloads, and measure the queries of an auditor: the
first page of a window of a million events in the middle, the export of the window, the export of a
tenant with one event in a hundred, and the verification of a long run. Also measure appends during
an export, next to appends alone in the same run.

The events are written without the log, as in runlog bench big-store.`,
		Example: `  runlog bench audit --receipts 2000000
  runlog bench audit --receipts 50000000 --store /var/tmp/audited --rounds 3`,
		Args: benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err == nil {
				err = fill.Validate()
			}
			if err != nil {
				return output.UsageError("%v", err)
			}
			return a.benchAudit(cmd.Context(), &f, opts, fill, store)
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads", []string{report.Audit + ":rate=1000"}, "workloads to measure")
	flags.IntVar(&fill.Receipts, "receipts", 2_000_000, "events in the store")
	flags.IntVar(&fill.RunEvents, "run-events", 100, "events of each run")
	flags.IntVar(&fill.PayloadBytes, "stored-payload-bytes", 300, "size of their payloads")
	flags.StringVar(&store, "store", "", "place of the filled data directory, which is kept and used again (default: removed afterwards)")
	f.batch, f.inFlight = 100, 64
	return cmd
}

func (a *app) benchAudit(ctx context.Context, f *benchFlags, opts bench.Options, fill load.Fill, data string) error {
	if name := wantsOwn(&opts); name != "" {
		return output.UsageError("%s needs its own, empty node; leave it out of %s", name, report.Audit)
	}
	for i := range opts.Workloads {
		opts.Workloads[i].Stored = fill.Receipts
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	opts.Systems = []target.System{{Name: bigStore, Open: func(ctx context.Context, dir string) (target.Target, error) {
		return startNode(ctx, target.NodeOptions{Binary: binary, Dir: dir, Data: data, Connections: opts.Connections})
	}}}
	return a.runBench(ctx, f, opts, func(r *benchReport, dir string) error {
		r.goals = auditGoals(opts.Workloads)
		if data == "" {
			data = filepath.Join(dir, "filled")
		}
		return a.fill(ctx, r, &fill, binary, data)
	})
}

// fill fills a data directory, unless it is filled already.
func (a *app) fill(ctx context.Context, r *benchReport, fill *load.Fill, binary, data string) error {
	began := time.Now()
	err := fill.FillDataDir(ctx, binary, data, func(events int) { r.filling(events, fill.Receipts) })
	r.bar.Clear()
	if taken := time.Since(began); err == nil && taken > time.Second {
		fmt.Fprintf(a.Stderr, "runlog: wrote %s events in %s in %v\n", output.Number(fill.Receipts), output.Plural(fill.Runs(), "run"), taken.Round(time.Second/10))
	}
	return err
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
