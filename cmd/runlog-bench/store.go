package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client/command/output"

	"github.com/spf13/cobra"

	"runlog/bench"
)

// The systems of big-store.
const (
	emptyStore = "empty"
	bigStore   = "big"
)

func (a *app) benchStoreCommand() *cobra.Command {
	fill := load.Fill{Receipts: 1_000_000, RunEvents: 50, Folded: true}
	cmd := &cobra.Command{
		Use:   report.BigStore,
		Short: "Measure appends to a large store",
		Long: `Fill a data directory with many small events, whose receipts are kept forever. Measure appends of
a node that opens it, next to a node with an empty store in the same run.

The events are written directly into the files of the store, without the log: a hundred million
take minutes. An event takes about 110 bytes of disk. Then a node folds all of them, so that runs
have snapshots, as they have in a node that took them one by one. That takes longer.`,
		Example: `  runlog-bench big-store --receipts 1000000
  runlog-bench big-store --receipts 100000000 --store /var/tmp/filled --rounds 3`,
	}
	workloads := []string{"append-unary:callers=1", "append-unary", "append-batch", "many-runs", report.StoredRuns}
	a.onFilled(cmd, &fill, workloads, func(binary string, opts *bench.Options) func(*benchReport) {
		for i := range opts.Workloads {
			if w := &opts.Workloads[i]; w.Name == report.StoredRuns {
				w.Runs = fill.Runs()
			}
		}
		opts.Systems = append([]target.System{child(emptyStore, binary, opts.Connections)}, opts.Systems...)
		return func(r *benchReport) { r.versus = bigStore }
	})
	return cmd
}

// onFilled completes a command that measures a node with a filled data directory. fill has the
// defaults of the flags. setUp gets the program of the nodes, adjusts the options, and returns what
// adjusts the report.
func (a *app) onFilled(cmd *cobra.Command, fill *load.Fill, workloads []string, setUp func(binary string, opts *bench.Options) func(*benchReport)) {
	f := benchFlags{batch: 100, inFlight: 64}
	var data string
	cmd.Args = benchArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		opts, err := f.options()
		if err == nil {
			err = fill.Validate()
		}
		if err != nil {
			return output.UsageError("%v", err)
		}
		if name := wantsOwn(&opts); name != "" {
			return output.UsageError("%s needs its own, empty node; leave it out of %s", name, cmd.Name())
		}
		binary, err := a.node()
		if err != nil {
			return err
		}
		opts.Systems = []target.System{{Name: bigStore, Open: func(ctx context.Context, dir string) (target.Target, error) {
			return startNode(ctx, target.NodeOptions{Binary: binary, Dir: dir, Data: data, Connections: opts.Connections})
		}}}
		adjust := setUp(binary, &opts)
		return a.runBench(cmd.Context(), &f, opts, func(r *benchReport, dir string) error {
			adjust(r)
			if data == "" {
				data = filepath.Join(dir, "filled")
			}
			return a.fill(cmd.Context(), r, fill, binary, data)
		})
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads", workloads, "workloads to measure")
	flags.IntVar(&fill.Receipts, "receipts", fill.Receipts, "events in the store")
	flags.IntVar(&fill.RunEvents, "run-events", fill.RunEvents, "events of each run")
	flags.StringVar(&data, "store", "", "place of the filled data directory, which is kept and used again (default: removed afterwards)")
}

// fill fills a data directory, unless it is filled already.
func (a *app) fill(ctx context.Context, r *benchReport, fill *load.Fill, binary, data string) error {
	began := time.Now()
	err := fill.FillDataDir(ctx, binary, data, func(events int) { r.filling(events, fill.Receipts) })
	r.bar.Clear()
	if taken := time.Since(began); err == nil && taken > time.Second {
		fmt.Fprintf(a.Stderr, "runlog-bench: wrote %s events in %s in %v\n", output.Number(fill.Receipts), output.Plural(fill.Runs(), "run"), taken.Round(time.Second/10))
	}
	return err
}

// filling shows the progress of filling the data directory.
func (r *benchReport) filling(done, total int) {
	text := fmt.Sprintf("filling  %s of %s events", output.Number(done), output.Number(total))
	switch {
	case r.bar != nil:
		r.bar.Say(text)
	case r.f.progress:
		fmt.Fprintln(r.a.Stderr, text)
	}
}

// noWorkload explains a name that is a command and no workload.
func noWorkload(err error, name string) error {
	switch name, _, _ := strings.Cut(name, ":"); name {
	case report.BigStore:
		return errors.New("big-store is a command of its own: runlog-bench big-store --receipts 1000000")
	case clusterSystem:
		return errors.New("cluster is a command of its own: runlog-bench cluster --nodes 3")
	}
	return err
}
