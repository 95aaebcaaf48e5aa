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

	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"

	"runlog/bench"
)

// benchGCPercent is the GOGC of the benchmark process.
const benchGCPercent = 400

func (a *app) rootCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "runlog-bench",
		Short: "Measure appends, next to the limits of the machine",
		Long: `Measure how fast a node takes appends, next to the limits of the machine measured in the same
run: small writes and large ones made durable one by one, and a gRPC echo between two processes
over loopback, by call and by stream.

Workloads, each NAME or NAME:KEY=VALUE:KEY=VALUE:

` + workloadHelp() + `
A workload with rate=R is an open loop: R calls a second are due, whether or not earlier ones were
answered, and the latency of each counts from when it was due. Without a rate, each caller sends
its next call after the last answer.

Without --server each workload gets its own node: a child process on free ports, whose data is
removed afterwards. With --server the events go to that node and stay there, and the limits are
those of this machine; RUNLOG_SERVER is ignored. With -o json there is one line for each workload
and limit, and at the end {"machine": ...}.

The nodes are processes of the program runlog: that of --runlog, else the one beside this program,
else the one in PATH. They read the variables of runlog serve, such as RUNLOG_MEMORY. Without it,
the node of watch gets as much memory as its watchers need, which count in it.`,
		Example: `  runlog-bench
  runlog-bench --workloads append-unary --callers 1,64,256 --rounds 3 --svg bench.svg
  runlog-bench --workloads append-unary:rate=5000,append-stream:batch=100 --duration 10s --json=bench.json`,
		Version: a.Version,
		Args:    benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return err
			}
			return a.bench(cmd.Context(), &f, opts, !cmd.Flags().Changed("server"))
		},
	}
	a.Register(cmd)
	cmd.PersistentFlags().StringVar(&a.runlog, "runlog", "", "program of the nodes to start (default: the one beside this program, or in PATH)")
	f.register(cmd)
	f.registerWorkloads(cmd)
	cmd.AddCommand(a.benchLimitsCommand(), a.benchStoreCommand(), a.benchAuditCommand(), a.benchClusterCommand(), a.benchAccessCommand(), a.benchQueueCommand(), a.benchSubscriptionsCommand(), a.benchBackupCommand(), a.benchEchoCommand())
	return cmd
}

// benchEchoCommand is the server of the limits grpc-echo and grpc-stream, in a process of its own
// like a node.
func (a *app) benchEchoCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "echo-server",
		Short:  "Echo all requests until the process ends",
		Hidden: true,
		Args:   benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(benchGCPercent)
			return bench.ServeEcho(cmd.Context(), a.Stdout)
		},
	}
}

func (a *app) benchLimitsCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Measure only the limits of the machine",
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

// benchFlags are the flags of the benchmarks.
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
	group     bool // workloads that need a cluster can be measured
}

// register the flags that all commands of the bench have.
func (f *benchFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntSliceVar(&f.callers, "callers", nil, "concurrent callers, or streams; several numbers repeat everything with each (default: that of the workload)")
	flags.DurationVar(&f.opts.Duration, "duration", 5*time.Second, "time to measure each workload and each limit, after a warm-up of a fifth of it")
	flags.Uint64Var(&f.opts.Calls, "calls", 0, "number of calls after which a workload or limit ends; 0: only the duration ends it")
	flags.IntVar(&f.opts.PayloadBytes, "payload-bytes", 400, "size of an event's payload")
	flags.IntVar(&f.opts.Connections, "connections", 1, "gRPC connections that callers share")
	flags.IntVar(&f.opts.Rounds, "rounds", 1, "number of repetitions of everything; the report has the medians")
	flags.StringVar(&f.opts.Dir, "dir", os.TempDir(), "place of data and of the files of the limits, in a directory that is removed afterwards")
	flags.StringVar(&f.svg, "svg", "", "draw the report into this file")
	flags.StringVar(&f.json, "json", "", "same as -o json; --json=FILE writes the report as one JSON document, beside the table")
	flags.Lookup("json").NoOptDefVal = "-"
	flags.BoolVar(&f.progress, "progress", false, "print progress, also if standard error is no terminal")
}

// registerWorkloads registers the flags of workloads.
func (f *benchFlags) registerWorkloads(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads", []string{"append-unary", "append-batch", "append-stream"}, "workloads to measure, beside the limits; all: every workload of one node")
	flags.IntVar(&f.batch, "batch", 100, "events a call of append-batch")
	flags.IntVar(&f.inFlight, "in-flight", 64, "unanswered requests on each stream of append-stream")
	flags.IntVar(&f.runs, "runs", 0, "number of runs of many-runs; 0: each request begins one")
	flags.Float64Var(&f.rate, "rate", 0, "calls a second that are due in every workload; 0: a closed loop")
	session.Complete(cmd, "workloads", append(bench.WorkloadNames(), "all")...)
}

func benchArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument %q; the value of a flag follows after =, as in --json=FILE", cmd.CommandPath(), args[0])
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

// options returns the options of a run with workloads.
func (f *benchFlags) options() (bench.Options, error) {
	opts := f.opts
	if len(f.workloads) == 0 {
		return opts, output.UsageError("--workloads names none; runlog-bench limits measures only the limits")
	}
	var faults []error
	for _, text := range f.names() {
		callers := f.callers
		if len(callers) == 0 || strings.Contains(text, ":callers=") {
			callers = []int{0}
		}
		for _, n := range callers {
			var k bench.Kind
			w, err := bench.ParseWorkload(text, func(w *report.Workload, its bench.Kind) {
				k = its
				f.adjust(w, &k, n)
			})
			if err == nil && !f.group && isGroup(w.Name) {
				err = fmt.Errorf("%s needs a cluster: runlog-bench cluster --workloads %[1]s", w.Name)
			}
			if err == nil && k.Peers {
				err = fmt.Errorf("%s needs a server of NATS or Kafka: make bench-peers ARGS='--systems runlog --workloads %[1]s'", w.Name)
			}
			if err != nil {
				faults = append(faults, noWorkload(err, text))
				break
			}
			opts.Workloads = append(opts.Workloads, w)
		}
	}
	if len(faults) > 0 {
		return opts, output.UsageError("%v", errors.Join(faults...))
	}
	return opts, nil
}

// names returns the names of the workloads. "all" are those that the command takes.
func (f *benchFlags) names() []string {
	if len(f.workloads) != 1 || f.workloads[0] != "all" {
		return f.workloads
	}
	var names []string
	for _, k := range bench.Kinds() {
		if k.Peers {
			continue
		}
		if !k.Group && !k.Own || f.group == k.Group {
			names = append(names, k.Name)
		}
	}
	return names
}

// isGroup reports whether a workload needs a cluster.
func isGroup(name string) bool {
	return slices.ContainsFunc(bench.Kinds(), func(k bench.Kind) bool { return k.Name == name && k.Group })
}

// adjust sets the defaults of a workload from the flags. Its own text comes later and overrides
// them.
func (f *benchFlags) adjust(w *report.Workload, k *bench.Kind, callers int) {
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
	if k.Takes("rate") && f.rate != 0 {
		w.Rate = f.rate
	}
}

func (a *app) bench(ctx context.Context, f *benchFlags, opts bench.Options, own bool) error {
	if name := wantsOwn(&opts); !own && name != "" {
		return output.UsageError("%s needs its own node; leave --server out", name)
	}
	if len(opts.Workloads) > 0 {
		opts.Systems = []target.System{{Name: "runlog", Open: a.openServer(opts.Connections)}}
	}
	if own {
		binary, err := a.node()
		if err != nil {
			return err
		}
		opts.Systems[0] = a.watchedChild(opts.Systems[0].Name, binary, opts.Connections)
	}
	return a.runBench(ctx, f, opts, nil)
}

// wantsOwn returns the name of a workload that needs its own, empty node; empty if there is none.
func wantsOwn(opts *bench.Options) string {
	for _, k := range bench.Kinds() {
		if k.Own && slices.ContainsFunc(opts.Workloads, func(w report.Workload) bool { return w.Name == k.Name }) {
			return k.Name
		}
	}
	return ""
}

// runBench measures and reports. If prepare is not nil, it is called first, with the directory of
// the run.
func (a *app) runBench(ctx context.Context, f *benchFlags, opts bench.Options, prepare func(r *benchReport, dir string) error) (err error) {
	if f.json == "-" {
		a.Format = output.JSON
	}
	if err := f.tryFiles(); err != nil {
		return err
	}
	opts.Grace = a.Timeout
	self, err := os.Executable()
	if err != nil {
		return err
	}
	opts.EchoServer = []string{self, "echo-server"}
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return output.UsageError("%v", err)
	}
	dir, err := os.MkdirTemp(opts.Dir, "runlog-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	opts.Dir = dir
	// The heap of this process is small. By default its collector would run all the time and slow
	// the echo, a limit of the machine, by a quarter to a third. A node has its own process.
	defer debug.SetGCPercent(debug.SetGCPercent(benchGCPercent))
	if fs := report.DescribeMachine(dir).FileSystem; fs == "tmpfs" || fs == "ramfs" {
		fmt.Fprintf(a.Stderr, "runlog-bench: %s is in memory, where fsync costs nothing; name a directory on a disk with --dir\n", filepath.Dir(dir))
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

// tryFiles reports a file that cannot be written before anything is measured.
func (f *benchFlags) tryFiles() error {
	for _, path := range []string{f.svg, f.json} {
		if path == "" || path == "-" {
			continue
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return output.UsageError("%v", err)
		}
		_ = file.Close()
	}
	return nil
}

// openServer returns a function that connects to the node of --server.
func (a *app) openServer(connections int) func(context.Context, string) (target.Target, error) {
	return func(context.Context, string) (target.Target, error) {
		servers, options, err := a.Transport()
		if err != nil {
			return nil, err
		}
		r, err := target.Connect(strings.Join(servers, ","), connections, options...)
		if err != nil {
			return nil, output.UsageError("%v", err)
		}
		return r, nil
	}
}
