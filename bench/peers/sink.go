package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"runlog/bench/report"
	"runlog/bench/target"
)

var _ target.Receivers = runlogNode{}

// inboxes numbers the streams and topics of this process.
var inboxes atomic.Uint64

func inboxName() string { return "inbox-" + strconv.FormatUint(inboxes.Add(1), 10) }

// OpenReceiver starts the server of a sink, in a process of its own.
func (n runlogNode) OpenReceiver(ctx context.Context, workload string) (target.Receiver, error) {
	dir, err := os.MkdirTemp(n.dir, "receiver-")
	if err != nil {
		return nil, err
	}
	switch workload {
	case report.SinkNATS:
		return openNATSReceiver(ctx, dir)
	case report.SinkKafka:
		return openKafkaReceiver(ctx, dir)
	default:
		return nil, fmt.Errorf("no receiver for the workload %s", workload)
	}
}

// startChild starts a server of this binary, whose last argument is its port.
func startChild(dir string, args ...string) (_ *target.Process, port string, err error) {
	port, err1 := freePort()
	binary, err2 := os.Executable()
	if err := errors.Join(err1, err2); err != nil {
		return nil, "", err
	}
	p, err := target.StartProcess(filepath.Join(dir, "log"), exec.Command(binary, append(args, port)...))
	return p, port, err
}
