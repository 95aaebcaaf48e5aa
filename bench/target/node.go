package target

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runlog/bench/report"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// addressesFile is what a node writes into its data directory once it serves.
	addressesFile = "addresses.json"

	NodeStart = 30 * time.Second
	// loopback picks a free port.
	loopback = "127.0.0.1:0"
	// restartPoll is how often a node that was started again is tried, so that its start is what
	// takes time and not the wait between tries.
	RestartPoll = 2 * time.Millisecond
)

// Node is a runlog node in a process of its own, on free ports of loopback.
type Node struct {
	*Remote
	*Admin  // until the node is killed
	options NodeOptions
	Data    string
	process *Process
	Address string // of gRPC
	http    string // address of the gateway
}

// NodeOptions say how a Node is started.
type NodeOptions struct {
	// Binary is the program runlog.
	Binary string
	// Dir gets the data directory and what the node writes to its standard error. It is the
	// caller's.
	Dir string
	// Data is the data directory. Default: "data" in Dir.
	Data string
	// Connections that callers share. Default: 1.
	Connections int

	// What follows is for nodes that make a cluster: the node's name, where it listens for other
	// nodes, and where all of them do, itself included. Default: a node by itself.
	id    string
	raft  string
	peers []string
}

var (
	_ Restarter = (*Node)(nil)
	_ Meter     = (*Node)(nil)
	_ Operator  = (*Node)(nil)
)

// StartNode starts a node and returns once it takes appends.
func StartNode(ctx context.Context, o NodeOptions) (*Node, error) {
	n, err := launch(o)
	if err == nil {
		err = n.waitReady(ctx)
	}
	if err == nil {
		n.Remote, err = Connect(n.Address, o.Connections)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// launch starts a node's process and returns before it serves. The node is there to be closed in
// any case.
func launch(o NodeOptions) (*Node, error) {
	n := &Node{options: o, Data: o.Data, Address: loopback}
	if n.Data == "" {
		n.Data = filepath.Join(o.Dir, "data")
	}
	return n, n.start()
}

func (n *Node) start() error {
	// Where the node served last time, if there was one.
	if err := os.Remove(filepath.Join(n.Data, addressesFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	n.process, err = StartProcess(filepath.Join(n.options.Dir, "log"), exec.Command(n.options.Binary, n.arguments()...))
	return err
}

// arguments of the command line.
func (n *Node) arguments() []string {
	o := &n.options
	raft := o.raft
	if raft == "" {
		raft = loopback
	}
	args := []string{"serve", "--data-dir", n.Data, "--grpc-listen", n.Address, "--http-listen", loopback, "--admin-listen", loopback, "--raft-listen", raft}
	if o.id != "" {
		args = append(args, "--node-id", o.id)
	}
	if len(o.peers) > 0 {
		args = append(args, "--bootstrap-expect", strconv.Itoa(len(o.peers)), "--join", strings.Join(o.peers, ","))
	}
	return args
}

// waitReady waits for the file that a node writes once it serves.
func (n *Node) waitReady(ctx context.Context) error {
	return n.process.Wait(ctx, NodeStart, func() bool {
		var addresses struct{ GRPC, HTTP, Admin string }
		text, err := os.ReadFile(filepath.Join(n.Data, addressesFile))
		if err != nil || json.Unmarshal(text, &addresses) != nil {
			return false
		}
		n.Address, n.http, n.Admin = addresses.GRPC, addresses.HTTP, &Admin{addresses.Admin}
		return true
	})
}

// Kill ends the node as a power switch would.
func (n *Node) Kill() error { return n.process.Kill() }

// Restart starts the node again on the same data and the same address, and returns before it
// serves. No call may be under way.
func (n *Node) Restart() error {
	if err := errors.Join(n.Remote.Close(), n.start()); err != nil {
		return err
	}
	// New connections: the old ones are waiting to try again.
	var err error
	n.Remote, err = Connect(n.Address, n.options.Connections, reconnectEvery(RestartPoll))
	return err
}

// reconnectEvery keeps connections from waiting longer and longer for a node that is being started
// again.
func reconnectEvery(d time.Duration) grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: d, Multiplier: 1, MaxDelay: d},
		MinConnectTimeout: time.Second,
	})
}

// Usage of the node's process so far.
func (n *Node) Usage() (report.Usage, error) { return readUsage(n.process.ID()) }

// Close stops the node.
func (n *Node) Close() error {
	var errs []error
	if n.Remote != nil {
		errs = append(errs, n.Remote.Close())
	}
	if n.process != nil {
		errs = append(errs, n.process.Stop())
	}
	return errors.Join(errs...)
}
