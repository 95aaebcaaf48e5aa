package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/bench"
	"runlog/client"
)

// benchGCPercent is how much the heap of the bench may grow between collections.
const benchGCPercent = 400

func (a *app) benchCommand() *cobra.Command {
	var opts bench.Options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure appends next to what the machine can do",
		Long: `Measure how fast a node takes appends, next to the limits of the machine measured in the same
run: a gRPC echo over loopback, and a loop of small writes made durable one by one.

  fsync         limit: 900 bytes appended to a file and made durable, one after the other
  grpc-echo     limit: 256 callers; an append of one event, sent back by a server in this process
  append-unary  256 callers, one event a call, each caller with a run of its own
  append-batch  16 callers, 100 events of one run a call

Without --server each workload gets a node of its own: a child process on free ports, whose data
is removed afterwards. With --server the events go to that node, for good, and the limits are
those of this machine; RUNLOG_SERVER is not looked at. Callers send their next call when the last
one was answered. With -o json there is one line for each workload and limit, and at the end
{"machine": ...}.`,
		Example: "  runlog bench\n  runlog bench --workloads append-unary --callers 1 --duration 10s -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.bench(cmd.Context(), opts, !cmd.Flags().Changed("server"))
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&opts.Workloads, "workloads", bench.Workloads(), "what to measure, beside the limits")
	f.DurationVar(&opts.Duration, "duration", 5*time.Second, "how long to measure each workload and each limit, after a warm-up of a fifth of it")
	f.Uint64Var(&opts.Calls, "calls", 0, "end a workload or limit after so many calls; 0: only the duration ends it")
	f.IntVar(&opts.Callers, "callers", 0, "concurrent callers of each workload and of grpc-echo (default 256; append-batch 16)")
	f.IntVar(&opts.Batch, "batch", 100, "events a call of append-batch")
	f.IntVar(&opts.PayloadBytes, "payload-bytes", 400, "size of an event's payload")
	f.StringVar(&opts.Dir, "dir", os.TempDir(), "where the node's data and the file of fsync go, in a directory that is removed afterwards")
	complete(cmd, "workloads", bench.Workloads()...)
	return cmd
}

func (a *app) bench(ctx context.Context, opts bench.Options, own bool) (err error) {
	if info, err := os.Stat(opts.Dir); err != nil || !info.IsDir() {
		return usageError("--dir %s is no directory", opts.Dir)
	}
	opts.Grace = a.timeout
	opts.Node = a.benchServer
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return usageError("%v", err)
	}
	dir, err := os.MkdirTemp(opts.Dir, "runlog-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	opts.Dir = dir
	if own {
		opts.Node = func(ctx context.Context) (*client.Client, func() error, error) {
			return a.benchChild(ctx, filepath.Join(dir, "node"))
		}
	}
	// This process holds little, so by default its collector would run all the time and slow the echo, a
	// limit of the machine, by a quarter to a third. A node has its own process.
	defer debug.SetGCPercent(debug.SetGCPercent(benchGCPercent))
	machine := bench.DescribeMachine(dir)
	if machine.FileSystem == "tmpfs" || machine.FileSystem == "ramfs" {
		fmt.Fprintf(a.stderr, "runlog: %s is in memory, where fsync costs nothing; name a directory on a disk with --dir\n", filepath.Dir(dir))
	}
	r := newBenchReport(a, opts, machine)
	results, err := bench.Run(ctx, r.opts)
	return errors.Join(err, r.end(results))
}

// benchServer connects to the node that --server names.
func (a *app) benchServer(context.Context) (*client.Client, func() error, error) {
	// Calls are not repeated: each failure counts.
	c, err := client.Dial(a.server, client.Options{MaxAttempts: 1, DialOptions: a.dialOptions})
	if err != nil {
		return nil, nil, usageError("%v", err)
	}
	return c, c.Close, nil
}

// benchChild starts a node and connects to it. What it returns ends the node and removes its data.
func (a *app) benchChild(ctx context.Context, dir string) (*client.Client, func() error, error) {
	node, err := startChild(ctx, dir)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	release := func() error { return errors.Join(node.stop(), os.RemoveAll(dir)) }
	a.server = node.address
	c, closeClient, err := a.benchServer(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, release())
	}
	return c, func() error { return errors.Join(closeClient(), release()) }, nil
}

// failedCalls says what went wrong in a workload, in one line; empty when nothing did.
func failedCalls(r *bench.Result) string {
	var total uint64
	var reasons []string
	for _, reason := range sortedKeys(r.Errors) {
		total += r.Errors[reason]
		reasons = append(reasons, number(r.Errors[reason])+" "+reason)
	}
	if total == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %s failed (%s)", r.Name, plural(total, "call"), strings.Join(reasons, ", "))
}
