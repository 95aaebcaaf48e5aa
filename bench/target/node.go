package target

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"runlog/bench/report"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// addressesFile is the file in the data directory in which a node publishes its addresses.
	addressesFile = "addresses.json"

	// NodeStart is how long the start of a node may take until it answers.
	NodeStart = 30 * time.Second
	// loopback picks a free port.
	loopback = "127.0.0.1:0"
	// RestartPoll is the interval of tries after a restart. It is short, so that the result is the
	// start of the node and not the wait between tries.
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

// NodeOptions configure a Node.
type NodeOptions struct {
	// Binary is the program runlog.
	Binary string
	// Dir gets the data directory and the node's standard error. The caller owns it.
	Dir string
	// Data is the data directory. Default: "data" in Dir.
	Data string
	// Connections that callers share. Default: 1.
	Connections int
	// MemoryMiB is the memory that the node may use. Default: that of its environment, or else its
	// own default.
	MemoryMiB int

	// The rest is for nodes of a cluster: the node's name, its address for other nodes, and the
	// addresses of all nodes, itself included. Default: a single node.
	id    string
	raft  string
	peers []string

	// flags are more arguments of the node, and dial the options of connections to it that a node
	// with access control needs.
	flags []string
	dial  []grpc.DialOption
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
		n.Remote, err = Connect(n.Address, o.Connections, o.dial...)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

const (
	// usualMiB is the memory of a node that is not configured.
	usualMiB = 1024
	// streamKiB of a node's memory let it have one more stream: a stream counts 16 KiB in a quarter
	// of the memory (docs/limits.md). Streams then take half of that quarter, and leave room for
	// appends and reads.
	streamKiB = 16 * 4 * 2
)

// MemoryFor returns how much memory, in MiB, a node needs for a number of streams; 0: the default
// is enough.
func MemoryFor(streams int) int {
	if mib := (streams*streamKiB + 1023) / 1024; mib > usualMiB {
		return mib
	}
	return 0
}

// launch starts a node's process and returns before it serves. The caller must close the node, also
// after an error.
func launch(o NodeOptions) (*Node, error) {
	n := &Node{options: o, Data: o.Data, Address: loopback}
	if n.Data == "" {
		n.Data = filepath.Join(o.Dir, "data")
	}
	return n, n.start()
}

func (n *Node) start() error {
	// The addresses of an earlier start.
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
	if o.MemoryMiB > 0 {
		args = append(args, "--memory", strconv.Itoa(o.MemoryMiB)+"MiB")
	}
	if len(o.peers) > 0 {
		args = append(args, "--bootstrap-expect", strconv.Itoa(len(o.peers)), "--join", strings.Join(o.peers, ","))
	}
	return append(args, o.flags...)
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
	n.Remote, err = Connect(n.Address, n.options.Connections, append(slices.Clone(n.options.dial), reconnectEvery(RestartPoll))...)
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

// Usage of the node's process since its start.
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
