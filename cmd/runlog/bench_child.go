package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"runlog/server"
)

const (
	childStart = 30 * time.Second
	// childStop is a little more than a node may take to drain.
	childStop = 15 * time.Second
)

// child is a node in a process of its own, which runs this very binary.
type child struct {
	cmd     *exec.Cmd
	address string        // of gRPC
	log     string        // file
	exited  chan struct{} // closed once it has ended and err is set
	err     error
}

// startChild starts a node on free ports and returns once it takes appends. dir is made.
func startChild(ctx context.Context, dir string) (*child, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	c := &child{log: filepath.Join(dir, "log"), exited: make(chan struct{})}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	data := filepath.Join(dir, "data")
	c.cmd = exec.Command(binary, "serve", "--data-dir", data, "--grpc-listen", "127.0.0.1:0",
		"--http-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0")
	c.cmd.Stderr = log
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	if err := c.waitReady(ctx, data); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// waitReady waits for the file that a node writes once it serves.
func (c *child) waitReady(ctx context.Context, data string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, childStart, fmt.Errorf("the node did not serve within %v", childStart))
	defer cancel()
	for {
		var addresses server.Addresses
		text, err := os.ReadFile(filepath.Join(data, "addresses.json"))
		if err == nil && json.Unmarshal(text, &addresses) == nil {
			c.address = addresses.GRPC
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.exited:
			return errors.New("the node did not start")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the node. It is an error when the node has ended before it was asked to, or does not end then.
func (c *child) stop() error {
	select {
	case <-c.exited:
		return &exitError{exitFailed, fmt.Sprintf("the node ended by itself (%v); its last line: %s", c.err, c.lastLine())}
	default:
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
		return nil
	case <-time.After(childStop):
		_ = c.cmd.Process.Kill()
		<-c.exited
		return &exitError{exitFailed, fmt.Sprintf("the node did not stop within %v and was killed; its last line: %s", childStop, c.lastLine())}
	}
}

func (c *child) lastLine() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return oneLine(lines[len(lines)-1])
}
