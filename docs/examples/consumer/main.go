// Consumer is the example of docs/event-bus.md: it prints the events of a pull subscription, each
// once while it runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"runlog/client"
	"runlog/client/consumer"
)

func main() {
	server := flag.String("server", "127.0.0.1:7410", "addresses of nodes, separated by commas")
	subscription := flag.String("subscription", "planner", "a pull subscription")
	tenant := flag.String("tenant", "", "its tenant; empty: that of the caller, or all tenants")
	most := flag.Int("max", 0, "end after so many events; 0 means never")
	flag.Parse()
	if err := run(*server, consumer.Options{Subscription: *subscription, Tenant: *tenant}, *most); !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(server string, opts consumer.Options, most int) error {
	c, err := client.Dial(server, client.Options{Token: os.Getenv("RUNLOG_TOKEN")})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	var mu sync.Mutex
	handled := 0
	last := map[string]uint64{} // the highest runSeq of each run; keep it with your own data
	return consumer.Handle(ctx, c, opts, func(_ context.Context, d *consumer.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if d.GetRunSeq() <= last[d.GetRunId()] {
			return nil // a repeat
		}
		fmt.Println(d.GetRunId(), d.GetRunSeq(), d.GetEventType())
		last[d.GetRunId()] = d.GetRunSeq()
		if handled++; handled == most {
			cancel()
		}
		return nil
	})
}
