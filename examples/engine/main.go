// Command engine executes a run of a plan by the workflow engine of package dag. It is a module of
// its own, as every engine is.
//
//	engine -run nightly-1
//
// Kill it at any time and start it again with the same run: it goes on after the last event that
// it has recorded.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"example.com/engine/dag"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

func main() {
	server := flag.String("server", "127.0.0.1:7410", "addresses of runlog, with commas between them")
	run := flag.String("run", "nightly-1", "the run to execute, or to resume")
	pace := flag.Duration("pace", 10*time.Millisecond, "how long each step takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := start(ctx, os.Stdout, *server, *run, *pace)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, out io.Writer, server, run string, pace time.Duration) error {
	c, err := client.Dial(server, client.Options{FirstAttempts: 10})
	if err != nil {
		return err
	}
	snapshot, err := dag.Run(ctx, c, nightly(out, pace), run)
	if err == nil {
		err = show(out, snapshot)
	}
	return errors.Join(err, c.Close())
}

// nightly is a plan whose steps only wait. The warehouse is busy at the first attempt.
func nightly(out io.Writer, pace time.Duration) *dag.Plan {
	step := func(id string, retries uint32, after ...string) dag.Step {
		return dag.Step{ID: id, After: after, Retries: retries, Do: func(ctx context.Context, attempt uint32) error {
			fmt.Fprintf(out, "%s, attempt %d\n", id, attempt)
			select {
			case <-time.After(pace):
			case <-ctx.Done():
			}
			if id == "load" && attempt == 1 {
				return errors.New("the warehouse is busy")
			}
			return nil
		}}
	}
	return &dag.Plan{ID: "nightly", Version: "1", Tenant: "acme", Project: "shop", Environment: "prod", Steps: []dag.Step{
		step("extract_orders", 0), step("extract_customers", 0),
		step("join", 0, "extract_orders", "extract_customers"),
		step("load", 2, "join"),
		step("report", 0, "load"),
	}}
}

// show prints the state of a run.
func show(out io.Writer, s *runlogv1.RunSnapshot) error {
	fmt.Fprintf(out, "%s is %s after %d events\n", s.GetRunId(), s.GetStatus(), s.GetLastEventSeq())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, step := range s.GetSteps() {
		fmt.Fprintf(w, "%s\t%s\t%d\n", step.GetStepId(), step.GetStatus(), step.GetLogicalAttemptId())
	}
	return w.Flush()
}
