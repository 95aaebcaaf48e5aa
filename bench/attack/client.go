package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// good is what the well-behaved client saw.
type good struct {
	Latencies []time.Duration // of appends, from the first try until it was stored; sorted
	Errors    int             // refused tries
}

func (g *good) p99() time.Duration { return g.at(len(g.Latencies) * 99 / 100) }

func (g *good) max() time.Duration { return g.at(len(g.Latencies) - 1) }

func (g *good) at(i int) time.Duration {
	if len(g.Latencies) == 0 {
		return 0
	}
	return g.Latencies[i]
}

// client is the process of the well-behaved client. It is not that of the attackers, which would
// take its time.
type client struct {
	process *exec.Cmd
	stdin   io.Closer
	out     bytes.Buffer
}

// startClient starts the client.
func startClient(address string) (*client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &client{process: exec.Command(self, "-append-to", address)}
	c.process.Stdout, c.process.Stderr = &c.out, os.Stderr
	if c.stdin, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	return c, c.process.Start()
}

// end ends the client and returns what it saw.
func (c *client) end() (*good, error) {
	if err := c.stdin.Close(); err != nil {
		return nil, err
	}
	if err := c.process.Wait(); err != nil {
		return nil, fmt.Errorf("well-behaved client: %w", err)
	}
	var g good
	return &g, json.Unmarshal(c.out.Bytes(), &g)
}

// lastAppend bounds the append that is under way at the end.
const lastAppend = time.Minute

// appendAlong appends small events one after the other until the standard input ends. It sends each
// until it is stored. Then it prints what it saw.
func appendAlong(address string) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	attacked, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	c := runlogv1.NewEventServiceClient(conn)
	pad := `{"a":"` + strings.Repeat("g", 1000) + `"}`
	var g good
	for i := 0; attacked.Err() == nil; i++ {
		begun := time.Now()
		req := &runlogv1.AppendEventsRequest{RunId: "good", Events: []*runlogv1.EventWrite{event(fmt.Sprint(i), pad)}}
		for {
			ctx, done := context.WithTimeout(context.Background(), lastAppend)
			_, err := c.AppendEvents(ctx, req)
			done()
			if err == nil {
				break
			}
			g.Errors++
			if time.Since(begun) > lastAppend {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		g.Latencies = append(g.Latencies, time.Since(begun))
		time.Sleep(5 * time.Millisecond)
	}
	slices.Sort(g.Latencies)
	return json.NewEncoder(os.Stdout).Encode(g)
}
