package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"runlog/bench"
	"runlog/bench/report"
	"runlog/bench/target"
)

// gcPercent is how much the heap may grow between collections, as in runlog-bench: this process
// holds little, and its collector would slow the echo, a limit of the machine. The servers have
// processes of their own.
const gcPercent = 400

// echoCommand makes this program the server of the limits, the echoes, in a process of its own.
const echoCommand = "echo-server"

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	switch args := os.Args[1:]; {
	case len(args) == 6 && args[0] == etcdCommand:
		return serveEtcd(args[1], args[2], args[3], args[4], args[5])
	case len(args) == 4 && args[0] == natsCommand:
		return serveNATS(args[1], args[2], args[3])
	case len(args) == 2 && args[0] == kafkaCommand:
		return serveKafka(args[1])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if args := os.Args[1:]; len(args) == 1 && args[0] == echoCommand {
		debug.SetGCPercent(gcPercent)
		return bench.ServeEcho(ctx, os.Stdout)
	}
	c, err := parseFlags(os.Args[1:])
	if err != nil {
		return err
	}
	return c.compare(ctx)
}

// comparison is what the command line asks for.
type comparison struct {
	opts      bench.Options
	common    common
	svg, json string
}

func parseFlags(args []string) (*comparison, error) {
	c := &comparison{}
	var systems, workloads string
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "peers compares runlog with other systems on this machine. Systems:\n\n")
		for _, k := range kinds() {
			fmt.Fprintf(f.Output(), "  %-18s %s\n", k.name, k.about)
		}
		fmt.Fprintf(f.Output(), "\nFlags:\n\n")
		f.PrintDefaults()
	}
	f.StringVar(&systems, "systems", "", "what to measure, in this order at first; NAME@N tries N connections to postgres, N streams of nats (default "+usualSystems(1)+"; with --nodes "+usualSystems(target.MinNodes)+")")
	f.StringVar(&workloads, "workloads", "", "as runlog-bench knows them (default those of the goals)")
	f.IntVar(&c.common.nodes, "nodes", 1, "nodes of each system, all on this machine, that make a cluster; calls go to its leader")
	f.IntVar(&c.opts.Rounds, "rounds", 3, "repeat everything so often, each time in another order, and report the medians")
	f.DurationVar(&c.opts.Duration, "duration", 5*time.Second, "how long to measure each workload on each system, after a warm-up of a fifth of it")
	f.IntVar(&c.opts.PayloadBytes, "payload-bytes", 400, "size of an event's payload")
	f.StringVar(&c.opts.Dir, "dir", os.TempDir(), "where data goes, in a directory that is removed afterwards; the user postgres has to get there")
	f.StringVar(&c.common.runlogBinary, "runlog", "../../bin/runlog", "the program runlog")
	f.IntVar(&c.common.connections, "connections", 1, "gRPC connections to runlog and to the echoes")
	f.StringVar(&c.common.postgresSettings, "postgres-settings", "", "settings to try, such as 'commit_delay=100'")
	f.StringVar(&c.svg, "svg", "", "draw the report into this file")
	f.StringVar(&c.json, "json", "", "write the report into this file")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag", f.Arg(0))
	}
	c.opts.Connections = c.common.connections
	if n := c.common.nodes; n != 1 && (n < target.MinNodes || n > target.MaxNodes) {
		return nil, fmt.Errorf("--nodes %d is not 1, nor between %d and %d", n, target.MinNodes, target.MaxNodes)
	}
	return c, c.choose(cmp.Or(systems, usualSystems(c.common.nodes)), cmp.Or(workloads, strings.Join(usualWorkloads(c.common.nodes), ",")))
}

// choose reads the names of systems and workloads.
func (c *comparison) choose(systems, workloads string) error {
	for text := range strings.SplitSeq(workloads, ",") {
		w, err := bench.ParseWorkload(text, nil)
		if err != nil {
			return err
		}
		c.opts.Workloads = append(c.opts.Workloads, w)
	}
	var err error
	c.opts.Systems, err = systemsOf(strings.Split(systems, ","), &c.common)
	return err
}

func (c *comparison) compare(ctx context.Context) (err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	opts := c.opts
	self, err := os.Executable()
	if err != nil {
		return err
	}
	opts.EchoServer = []string{self, echoCommand}
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(opts.Dir, "runlog-peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	opts.Dir = dir
	opts.Measured = func(r report.Result) {
		fmt.Fprintf(os.Stderr, "round %d of %d: %s %s, %d callers: %.0f events/s, p50 %v\n", r.Round, opts.Rounds, r.System, r.Name, r.Callers, r.EventsPerSecond, r.Latency.P50.Round(time.Microsecond))
	}
	report, err := bench.Run(ctx, opts)
	if report == nil || len(report.Results) == 0 {
		return err
	}
	report.Judge(goals(c.common.nodes))
	return errors.Join(err, c.print(report))
}

func (c *comparison) print(report *report.Report) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, t := range append(report.Tables(), report.Versus("runlog"), report.GoalTable()) {
		if len(t.Rows) == 0 {
			continue
		}
		for _, row := range append([][]string{t.Heads}, t.Rows...) {
			for i := range row {
				if row[i] == "" {
					row[i] = "-"
				}
			}
			fmt.Fprintln(out, strings.Join(row, "\t"))
		}
		fmt.Fprintln(out)
		// The columns of the next table are its own.
		if err := out.Flush(); err != nil {
			return err
		}
	}
	for _, f := range report.Facts() {
		fmt.Fprintf(out, "%s\t%s\n", f.Name, f.Value)
	}
	err := out.Flush()
	if c.svg != "" {
		err = errors.Join(err, writeFile(c.svg, report.WriteSVG))
	}
	if c.json != "" {
		err = errors.Join(err, writeFile(c.json, func(w io.Writer) error { return json.NewEncoder(w).Encode(report) }))
	}
	if failures := report.Failures(); len(failures) > 0 {
		err = errors.Join(err, fmt.Errorf("calls failed, and the figures leave them out:\n%s", strings.Join(failures, "\n")))
	}
	return err
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
