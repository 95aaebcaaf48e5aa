// Command attack starts a node, attacks its memory, and prints what each attack did (make
// attack-memory).
//
// For each attack it prints the peak of the node's resident memory divided by --memory, and the
// latency and the errors of a well-behaved client that appends meanwhile. It ends with an error if
// the memory or the latency is above its limit (docs/limits.md).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

// The limits: resident memory as a multiple of --memory, and the 99th percentile of appends.
const (
	mostMemory = 1.25
	mostP99    = time.Second
)

func main() {
	binary := flag.String("runlog", "bin/runlog", "program to attack")
	memory := flag.Int("memory", 512, "memory of the node, in MiB")
	length := flag.Duration("time", 20*time.Second, "time of an attack that does not end by itself")
	only := flag.String("only", "", "attacks to make, as a regular expression; empty: all")
	along := flag.String("append-to", "", "address to append to as the well-behaved client, which is a process of its own")
	flag.Parse()
	var err error
	if *along != "" {
		err = appendAlong(*along)
	} else {
		err = run(*binary, *memory, *length, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func run(binary string, memory int, length time.Duration, only string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	chosen, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	bomb()
	fmt.Printf("%-34s %11s %9s %9s %8s %7s  %s\n", "attack", "rss/memory", "p99", "max", "appends", "errors", "answers to the attacker")
	for _, a := range attacks {
		if !chosen.MatchString(a.name) {
			continue
		}
		err = errors.Join(err, attackNew(ctx, binary, memory, a, length))
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return err
}

// attackNew makes one attack on a new node, so that none changes the figures of another.
func attackNew(ctx context.Context, binary string, memory int, a attack, length time.Duration) (err error) {
	n, err := startNode(ctx, binary, memory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := n.fill(ctx); err != nil {
		return err
	}
	return n.suffer(ctx, a, length)
}

// suffer makes one attack and prints its line. Error: the node is over a limit, or gone.
func (n *node) suffer(ctx context.Context, a attack, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	peak := n.watchMemory(ctx)
	client, err := startClient(n.addresses.GRPC)
	if err != nil {
		return err
	}
	got := &answers{count: map[string]int{}}
	a.make(ctx, n, got)
	<-ctx.Done()
	g, err := client.end()
	if err != nil {
		return err
	}
	used := float64(<-peak) / float64(n.memory)
	fmt.Printf("%-34s %11.2f %9v %9v %8d %7d  %v\n", a.name, used, g.p99().Round(time.Millisecond), g.max().Round(time.Millisecond),
		len(g.Latencies), g.Errors, got)
	switch {
	case n.gone() != nil:
		return fmt.Errorf("%s: the node ended: %w", a.name, n.gone())
	case used > mostMemory:
		return fmt.Errorf("%s: resident memory is %.2f of --memory, at most %.2f are allowed", a.name, used, mostMemory)
	case g.p99() > mostP99 || len(g.Latencies) == 0:
		return fmt.Errorf("%s: the appends of a well-behaved client took %v (p99 of %d), at most %v are allowed", a.name, g.p99(), len(g.Latencies), mostP99)
	default:
		return nil
	}
}
