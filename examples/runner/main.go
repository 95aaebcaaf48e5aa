// Command runner is a workflow engine that executes the runs of a queue in its own process: each
// whole run under one lease. runner.go executes plans, and plan.json is the plan.
//
//	runner -server 127.0.0.1:7410 -outbox runner.outbox
//
// Start as many as you like, each with an outbox of its own. If one is killed, or is cut off from
// the log, another one goes on with its runs after -ttl.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"runlog/client"
	"runlog/client/outbox"
	"runlog/client/writer"
	"runlog/engine"
	"runlog/engine/plan"
)

//go:embed plan.json
var document []byte

// options are those of a process.
type options struct {
	name, queue, outbox string
	ttl                 time.Duration
	do                  action
	logger              *slog.Logger
}

func main() {
	server := flag.String("server", "127.0.0.1:7410", "addresses of runlog, with commas between them")
	name := flag.String("name", "runner-1", "the name of this process, for people")
	queue := flag.String("queue", "example", "the queue of the runs")
	file := flag.String("outbox", "runner.outbox", "the file of the events that wait while the log does not answer")
	ttl := flag.Duration("ttl", 30*time.Second, "how long a run stays with a process that was killed")
	pace := flag.Duration("pace", 100*time.Millisecond, "how long each step takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dial(ctx, *server, options{name: *name, queue: *queue, outbox: *file, ttl: *ttl, do: paced(*pace), logger: slog.Default()})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

func dial(ctx context.Context, server string, o options) error {
	c, err := client.Dial(server, client.Options{})
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, c, o), c.Close())
}

// run executes the runs of the queue until ctx ends.
func run(ctx context.Context, c *client.Client, o options) (err error) {
	p, _, err := plan.Parse(document, plan.Options{})
	if err != nil {
		return err
	}
	box, err := outbox.Open(o.outbox, outbox.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	appender, err := c.NewAppender(client.AppenderOptions{})
	if err != nil {
		return err
	}
	defer appender.Close()
	w, err := writer.New(appender, writer.Options{Outbox: box, Logger: o.logger})
	if err != nil {
		return err
	}
	defer w.Close()
	r := &runner{plan: p, writer: w, do: o.do}
	return (&engine.Worker{
		Client: c, Name: o.name, EngineType: "example", Tenant: "acme", Project: "shop", Environment: "prod", Queue: o.queue,
		TTL: o.ttl, Execute: r.execute, Logger: o.logger,
	}).Run(ctx)
}

// paced is a step that prints, and takes some time.
func paced(pace time.Duration) action {
	return func(ctx context.Context, t task) error {
		fmt.Printf("%s %s, attempt %d, fence %d\n", t.run, t.step, t.attempt, t.fence)
		select {
		case <-time.After(pace):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
