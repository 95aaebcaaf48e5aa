package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/bench"
	benchreport "runlog/bench/report"
	benchtarget "runlog/bench/target"
)

// benchGCPercent is how much the heap of the bench may grow between collections.
const benchGCPercent = 400

// benchCommand is the root of everything that measures.
func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure appends next to what the machine can do",
		Long: `Measure how fast a node takes appends, next to the limits of the machine measured in the same
run: small writes and large ones made durable one by one, and a gRPC echo between two processes
over loopback, by call and by stream.

Workloads, each NAME or NAME:KEY=VALUE:KEY=VALUE:

` + workloadHelp() + `
A workload with rate=R is an open loop: R calls a second are due whether or not earlier ones were
answered, and each is measured from when it was due. Without it, callers send their next call
when the last one was answered.

Without --server each workload gets a node of its own: a child process on free ports, whose data
is removed afterwards. With --server the events go to that node, for good, and the limits are
those of this machine; RUNLOG_SERVER is not looked at. With -o json there is one line for each
workload and limit, and at the end {"machine": ...}.`,
		Example: `  runlog bench
  runlog bench --workloads append-unary --callers 1,64,256 --rounds 3 --svg bench.svg
  runlog bench --workloads append-unary:rate=5000,append-stream:batch=100 --duration 10s --json=bench.json`,
		Args: benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return err
			}
			return a.bench(cmd.Context(), &f, opts, !cmd.Flags().Changed("server"))
		},
	}
	f.register(cmd)
	f.registerWorkloads(cmd)
	cmd.AddCommand(a.benchLimitsCommand(), a.benchStoreCommand(), a.benchAuditCommand(), a.benchClusterCommand(), a.benchBackupCommand(), a.benchEchoCommand())
	return cmd
}

// benchEchoCommand is the other end of the limits grpc-echo and grpc-stream: a process of its own,
// as a node is.
func (a *app) benchEchoCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "echo-server",
		Short:  "Send back what comes, until it is ended",
		Hidden: true,
		Args:   benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(benchGCPercent)
			return bench.ServeEcho(cmd.Context(), a.stdout)
		},
	}
}

func (a *app) benchLimitsCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Measure what the machine can do, and no node",
		Args:  benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts := f.opts
			opts.EchoCallers = f.callers
			if len(f.callers) == 0 {
				opts.EchoCallers = []int{1, 64, 256}
			}
			return a.bench(cmd.Context(), &f, opts, false)
		},
	}
	f.register(cmd)
	return cmd
}

// benchFlags are what the command line says.
type benchFlags struct {
	opts      bench.Options
	workloads []string
	callers   []int
	batch     int
	inFlight  int
	runs      int
	rate      float64
	svg, json string
	progress  bool
	group     bool // workloads that want a cluster can be measured
}

// register the flags that all commands of the bench have.
func (f *benchFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntSliceVar(&f.callers, "callers", nil, "concurrent callers, or streams; with several numbers everything is measured with each (default: the workload's)")
	flags.DurationVar(&f.opts.Duration, "duration", 5*time.Second, "how long to measure each workload and each limit, after a warm-up of a fifth of it")
	flags.Uint64Var(&f.opts.Calls, "calls", 0, "end a workload or limit after so many calls; 0: only the duration ends it")
	flags.IntVar(&f.opts.PayloadBytes, "payload-bytes", 400, "size of an event's payload")
	flags.IntVar(&f.opts.Connections, "connections", 1, "gRPC connections that callers share")
	flags.IntVar(&f.opts.Rounds, "rounds", 1, "repeat everything so often and report the medians")
	flags.StringVar(&f.opts.Dir, "dir", os.TempDir(), "where data and the files of the limits go, in a directory that is removed afterwards")
	flags.StringVar(&f.svg, "svg", "", "draw the report into this file")
	flags.StringVar(&f.json, "json", "", "same as -o json; --json=FILE writes the report as one JSON document, beside the table")
	flags.Lookup("json").NoOptDefVal = "-"
	flags.BoolVar(&f.progress, "progress", false, "tell how far it is, also where standard error is no terminal")
}

// registerWorkloads registers what only workloads have.
func (f *benchFlags) registerWorkloads(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads", []string{"append-unary", "append-batch", "append-stream"}, "what to measure, beside the limits; all: every workload of one node")
	flags.IntVar(&f.batch, "batch", 100, "events a call of append-batch")
	flags.IntVar(&f.inFlight, "in-flight", 64, "requests of append-stream, on each stream, that wait for their answer")
	flags.IntVar(&f.runs, "runs", 0, "runs that the events of many-runs go to; 0: each request begins one")
	flags.Float64Var(&f.rate, "rate", 0, "calls a second that are due, of every workload; 0: a closed loop")
	complete(cmd, "workloads", append(bench.WorkloadNames(), "all")...)
}

func benchArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument %q; a value follows its flag after =, as in --json=FILE", cmd.CommandPath(), args[0])
	}
	return nil
}

func workloadHelp() string {
	var b strings.Builder
	for _, k := range bench.Kinds() {
		fmt.Fprintf(&b, "  %-13s  %s\n  %13s  (%s)\n", k.Name, k.About, "", strings.Join(k.Keys, "=, ")+"=")
	}
	return b.String()
}

// options of a run with workloads.
func (f *benchFlags) options() (bench.Options, error) {
	opts := f.opts
	if len(f.workloads) == 0 {
		return opts, usageError("--workloads names none; runlog bench limits measures the limits alone")
	}
	var faults []error
	for _, text := range f.names() {
		callers := f.callers
		if len(callers) == 0 || strings.Contains(text, ":callers=") {
			callers = []int{0}
		}
		for _, n := range callers {
			w, err := bench.ParseWorkload(text, func(w *benchreport.Workload, k bench.Kind) { f.adjust(w, &k, n) })
			if err == nil && !f.group && isGroup(w.Name) {
				err = fmt.Errorf("%s is about clusters: runlog bench cluster --workloads %[1]s", w.Name)
			}
			if err != nil {
				faults = append(faults, noWorkload(err, text))
				break
			}
			opts.Workloads = append(opts.Workloads, w)
		}
	}
	if len(faults) > 0 {
		return opts, usageError("%v", errors.Join(faults...))
	}
	return opts, nil
}

// names of the workloads; all are those that the command takes.
func (f *benchFlags) names() []string {
	if len(f.workloads) != 1 || f.workloads[0] != "all" {
		return f.workloads
	}
	var names []string
	for _, k := range bench.Kinds() {
		if !k.Group && !k.Own || f.group == k.Group {
			names = append(names, k.Name)
		}
	}
	return names
}

// isGroup tells whether a workload wants a cluster.
func isGroup(name string) bool {
	return slices.ContainsFunc(bench.Kinds(), func(k bench.Kind) bool { return k.Name == name && k.Group })
}

// adjust a workload's defaults by the flags; what its own text says comes later and wins.
func (f *benchFlags) adjust(w *benchreport.Workload, k *bench.Kind, callers int) {
	if callers != 0 {
		w.Callers = callers
	}
	switch k.Name {
	case "append-batch":
		w.Batch = f.batch
	case "append-stream":
		w.InFlight = f.inFlight
	case "many-runs":
		w.Runs = f.runs
	}
	if k.Takes("rate") {
		w.Rate = f.rate
	}
}

func (a *app) bench(ctx context.Context, f *benchFlags, opts bench.Options, own bool) error {
	if name := wantsOwn(&opts); !own && name != "" {
		return usageError("%s takes a node of its own: leave --server out", name)
	}
	if len(opts.Workloads) > 0 {
		opts.Systems = []benchtarget.System{{Name: "runlog", Open: a.openServer(opts.Connections)}}
	}
	if own {
		opts.Systems[0].Open = openChild(opts.Connections)
	}
	return a.runBench(ctx, f, opts, nil)
}

// wantsOwn names a workload that wants an empty node that the bench has started, or is empty.
func wantsOwn(opts *bench.Options) string {
	for _, k := range bench.Kinds() {
		if k.Own && slices.ContainsFunc(opts.Workloads, func(w benchreport.Workload) bool { return w.Name == k.Name }) {
			return k.Name
		}
	}
	return ""
}

// runBench measures and reports. prepare, where not nil, is called with the directory of the run
// before.
func (a *app) runBench(ctx context.Context, f *benchFlags, opts bench.Options, prepare func(r *benchReport, dir string) error) (err error) {
	if f.json == "-" {
		a.format = formatJSON
	}
	if err := f.tryFiles(); err != nil {
		return err
	}
	opts.Grace = a.timeout
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	opts.EchoServer = []string{binary, "bench", "echo-server"}
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
	// This process holds little, so by default its collector would run all the time and slow the
	// echo, a limit of the machine, by a quarter to a third. A node has its own process.
	defer debug.SetGCPercent(debug.SetGCPercent(benchGCPercent))
	if fs := benchreport.DescribeMachine(dir).FileSystem; fs == "tmpfs" || fs == "ramfs" {
		fmt.Fprintf(a.stderr, "runlog: %s is in memory, where fsync costs nothing; name a directory on a disk with --dir\n", filepath.Dir(dir))
	}
	r := newBenchReport(a, f, opts)
	if prepare != nil {
		if err := prepare(r, dir); err != nil {
			return err
		}
	}
	report, err := bench.Run(ctx, r.opts)
	return errors.Join(err, r.end(report))
}

// tryFiles tells about a file that cannot be written before anything is measured, not after.
func (f *benchFlags) tryFiles() error {
	for _, path := range []string{f.svg, f.json} {
		if path == "" || path == "-" {
			continue
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return usageError("%v", err)
		}
		_ = file.Close()
	}
	return nil
}

// openServer connects to the node that --server names.
func (a *app) openServer(connections int) func(context.Context, string) (benchtarget.Target, error) {
	return func(context.Context, string) (benchtarget.Target, error) {
		r, err := benchtarget.Connect(a.server, connections, a.dialOptions...)
		if err != nil {
			return nil, usageError("%v", err)
		}
		return r, nil
	}
}

// openChild starts a node that runs this very binary.
func openChild(connections int) func(context.Context, string) (benchtarget.Target, error) {
	return func(ctx context.Context, dir string) (benchtarget.Target, error) {
		binary, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return startNode(ctx, benchtarget.NodeOptions{Binary: binary, Dir: dir, Connections: connections})
	}
}
