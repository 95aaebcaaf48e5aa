package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// node is the process that is attacked.
type node struct {
	dir       string
	memory    int64 // in bytes
	process   *exec.Cmd
	ended     chan struct{} // closed when the process has ended, with err
	err       error
	addresses struct{ GRPC, HTTP, Admin, Raft string }
	conn      *grpc.ClientConn // of the well-behaved client
}

// startNode starts a node in a new directory and waits until it takes appends.
func startNode(ctx context.Context, binary string, memory int) (*node, error) {
	dir, err := os.MkdirTemp("", "runlog-attack")
	if err != nil {
		return nil, err
	}
	const free = "127.0.0.1:0"
	n := &node{dir: dir, memory: int64(memory) << 20, ended: make(chan struct{}), process: exec.CommandContext(ctx, binary, "serve",
		"--data-dir", dir, "--memory", fmt.Sprintf("%dMiB", memory), "--log-level", "error",
		"--grpc-listen", free, "--http-listen", free, "--admin-listen", free, "--raft-listen", free)}
	n.process.Stderr = os.Stderr
	if err := n.process.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the node: %w; build it first (make build)", err), os.RemoveAll(dir))
	}
	go func() {
		n.err = errors.Join(n.process.Wait(), errors.New("the process has ended"))
		close(n.ended)
	}()
	for n.addresses.GRPC == "" {
		text, err := os.ReadFile(filepath.Join(dir, "addresses.json"))
		if err == nil {
			_ = json.Unmarshal(text, &n.addresses) // It may not be complete yet.
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-n.ended:
			return nil, errors.Join(n.err, os.RemoveAll(dir))
		}
	}
	n.conn, err = dial(n.addresses.GRPC)
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	return n, nil
}

func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// gone returns why the process has ended; nil: it has not.
func (n *node) gone() error {
	select {
	case <-n.ended:
		return n.err
	default:
		return nil
	}
}

// stop ends the process and removes its directory.
func (n *node) stop() error {
	if n.conn != nil {
		_ = n.conn.Close()
	}
	_ = n.process.Process.Kill() // It may be gone.
	<-n.ended
	return os.RemoveAll(n.dir)
}

// watchMemory returns the peak of the node's resident memory, in bytes, when the context ends.
func (n *node) watchMemory(ctx context.Context) <-chan int64 {
	out := make(chan int64, 1)
	go func() {
		var peak int64
		for ctx.Err() == nil {
			peak = max(peak, n.resident())
			time.Sleep(20 * time.Millisecond)
		}
		out <- peak
	}()
	return out
}

// resident returns the resident memory of the process; 0: it is not known.
func (n *node) resident() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		var kib int64
		if _, err := fmt.Sscanf(string(line), "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// fill makes the run of about 60 MB that the attackers read.
func (n *node) fill(ctx context.Context) error {
	client := runlogv1.NewEventServiceClient(n.conn)
	for i := range 80 {
		req := &runlogv1.AppendEventsRequest{RunId: "read"}
		for k := range 12 {
			req.Events = append(req.Events, event(fmt.Sprint(i, "-", k), large(i+k)))
		}
		for {
			_, err := client.AppendEvents(ctx, req)
			if err == nil {
				break
			}
			select {
			case <-time.After(100 * time.Millisecond): // The node may be refusing for a moment.
			case <-ctx.Done():
				return err
			case <-n.ended:
				return n.err
			}
		}
	}
	return nil
}

// large is a payload of 62 KiB.
func large(i int) string {
	return `{"a":"` + strings.Repeat(string(rune('a'+i%26)), 62<<10) + `"}`
}

func event(step, payload string) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		EventType: "Noted", StepId: step, TenantId: "t", ProjectId: "p", EnvironmentId: "e", PlanId: "plan", PlanVersion: "1",
		LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(payload)},
	}
}
