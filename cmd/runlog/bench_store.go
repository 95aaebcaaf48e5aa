package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"runlog/bench"
	benchload "runlog/bench/load"
	benchreport "runlog/bench/report"
	benchtarget "runlog/bench/target"
)

// The systems of big-store.
const (
	emptyStore = "empty"
	bigStore   = "big"
)

func (a *app) benchStoreCommand() *cobra.Command {
	var f benchFlags
	var fill benchload.Fill
	var store string
	cmd := &cobra.Command{
		Use:   benchreport.BigStore,
		Short: "Measure what new events cost when many are stored",
		Long: `Fill a data directory with many small events, whose receipts are kept for ever, and measure what
new events cost a node that opens it, next to a node with an empty store in the same run.

The events are written past the log, straight into the store's files, so that a hundred million
take minutes; the node opens them as any other. They take about 110 bytes of disk each. The
projection is left as it was, so the runs are read one by one as usual, but not listed; delete
"projection" in the directory and the node folds them all.`,
		Example: `  runlog bench big-store --receipts 1000000
  runlog bench big-store --receipts 100000000 --store /var/tmp/filled --rounds 3`,
		Args: benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err == nil {
				err = fill.Validate()
			}
			if err != nil {
				return usageError("%v", err)
			}
			return a.benchStore(cmd.Context(), &f, opts, fill, store)
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads", []string{"append-unary:callers=1", "append-unary", "append-batch", "many-runs", benchreport.StoredRuns}, "what to measure on both")
	flags.IntVar(&fill.Receipts, "receipts", 1_000_000, "events in the store")
	flags.IntVar(&fill.RunEvents, "run-events", 50, "events of each run")
	flags.StringVar(&store, "store", "", "keep the filled data directory here, and use it again if it is there (default: removed afterwards)")
	f.batch, f.inFlight = 100, 64
	return cmd
}

func (a *app) benchStore(ctx context.Context, f *benchFlags, opts bench.Options, fill benchload.Fill, data string) error {
	if name := wantsOwn(&opts); name != "" {
		return usageError("%s takes an empty node of its own; leave it out of %s", name, benchreport.BigStore)
	}
	for i := range opts.Workloads {
		if w := &opts.Workloads[i]; w.Name == benchreport.StoredRuns {
			w.Runs = fill.Runs()
		}
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	opts.Systems = []benchtarget.System{
		{Name: emptyStore, Open: openChild(opts.Connections)},
		{Name: bigStore, Open: func(ctx context.Context, dir string) (benchtarget.Target, error) {
			return startNode(ctx, benchtarget.NodeOptions{Binary: binary, Dir: dir, Data: data, Connections: opts.Connections})
		}},
	}
	return a.runBench(ctx, f, opts, func(r *benchReport, dir string) error {
		r.versus = bigStore
		if data == "" {
			data = filepath.Join(dir, "filled")
		}
		return a.fill(ctx, r, &fill, binary, data)
	})
}

// filling tells how far the data directory is.
func (r *benchReport) filling(done, total int) {
	text := fmt.Sprintf("filling  %s of %s events", number(done), number(total))
	switch {
	case r.bar != nil:
		fmt.Fprintf(r.bar.w, "\r%s\x1b[K", cut(text, r.bar.width-1))
		r.bar.shown = true
	case r.f.progress:
		fmt.Fprintln(r.a.stderr, text)
	}
}

// startNode is benchtarget.StartNode as a target.
func startNode(ctx context.Context, o benchtarget.NodeOptions) (benchtarget.Target, error) {
	n, err := benchtarget.StartNode(ctx, o)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// noWorkload explains names that are commands of the bench.
func noWorkload(err error, name string) error {
	switch name, _, _ := strings.Cut(name, ":"); name {
	case benchreport.BigStore:
		return errors.New("big-store is a command of its own: runlog bench big-store --receipts 1000000")
	case clusterSystem:
		return errors.New("cluster is a command of its own: runlog bench cluster --nodes 3")
	}
	return err
}
