package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"runlog/bench/target"
	"runlog/client/command/output"
)

// product is the name of the program whose nodes are measured.
const product = "runlog"

// memoryVariable sets the memory of nodes.
const memoryVariable = "RUNLOG_MEMORY"

// node returns the program of the nodes that a command starts: the one of --runlog, else the one
// beside this program, else the one in PATH.
func (a *app) node() (string, error) {
	if a.runlog != "" {
		path, err := exec.LookPath(a.runlog)
		if err != nil {
			return "", output.UsageError("--runlog: %v", err)
		}
		return path, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), product)); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(product)
	if err != nil {
		return "", output.UsageError("the program %s is neither beside this program nor in PATH; name it with --runlog", product)
	}
	return path, nil
}

// child is a system whose nodes are processes of the program binary.
func child(name, binary string, connections int) target.System {
	return target.System{Name: name, Open: func(ctx context.Context, dir string) (target.Target, error) {
		return startNode(ctx, target.NodeOptions{Binary: binary, Dir: dir, Connections: connections})
	}}
}

// watchedChild is child. A node with many streams gets the memory that these count in, unless the
// environment sets it. Commands that compare two nodes use child: both have the same memory.
func (a *app) watchedChild(name, binary string, connections int) target.System {
	s := child(name, binary, connections)
	s.OpenWatched = func(ctx context.Context, dir string, streams int) (target.Target, error) {
		o := target.NodeOptions{Binary: binary, Dir: dir, Connections: connections}
		if a.Getenv(memoryVariable) == "" {
			o.MemoryMiB = target.MemoryFor(streams)
		}
		return startNode(ctx, o)
	}
	return s
}

// startNode is target.StartNode with a Target as result.
func startNode(ctx context.Context, o target.NodeOptions) (target.Target, error) {
	n, err := target.StartNode(ctx, o)
	if err != nil {
		return nil, err
	}
	return n, nil
}
