//go:build unix

package procs

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"runlog/client"
)

// Node is a node of a cluster. Each of its lives is a process.
type Node struct {
	c *Cluster
	// Name is the node's id, which stays.
	Name string
	// Dir is its data directory, and Binary what is started next, with Env (as NAME=VALUE) added to
	// the environment.
	Dir, Binary string
	Env         []string

	grpc, http, admin, raft string
	flags                   []string // other than those that name addresses
	space                   string   // network namespace; empty: that of the test
	log                     string   // log file; empty: in the cluster's directory

	// busy is held by the fault that hits the node.
	busy sync.Mutex

	mu   sync.Mutex
	life *process // the last one
}

// logFile returns the file that all processes of the node write to.
func (n *Node) logFile() string {
	if n.log != "" {
		return n.log
	}
	return filepath.Join(n.c.dir, n.Name+".log")
}

// Start starts the node. It must not run.
func (n *Node) Start() {
	n.c.t.Helper()
	args := append([]string{"serve", "--data-dir", n.Dir, "--node-id", n.Name, "--grpc-listen", n.grpc, "--http-listen", n.http,
		"--admin-listen", n.admin, "--raft-listen", n.raft, "--election-timeout", Election.String(), "--min-free-disk", "0", "--memory", "256MiB"}, n.flags...)
	cmd := exec.Command(n.Binary, args...)
	if n.space != "" { // ip becomes the process, with its id
		args = append(args, "--insecure") // The network has no other machines.
		cmd = exec.Command("ip", append([]string{"netns", "exec", n.space, n.Binary}, args...)...)
	}
	cmd.Env = append(os.Environ(), n.Env...)
	p, err := spawn(cmd, n.logFile(), func(p *process) {
		n.c.t.Errorf("%s has ended by itself: %v: %s", n.Name, p.cmd.ProcessState, p.lastLine())
	})
	if err != nil {
		n.c.t.Errorf("%s: %v", n.Name, err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life = p
}

// last returns the node's last life; nil if it had none.
func (n *Node) last() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// Kill ends the process at once. Without a process it does nothing.
func (n *Node) Kill() {
	if p := n.last(); p != nil {
		p.kill()
	}
}

// Stop ends the process as an operator does.
func (n *Node) Stop() {
	n.c.t.Helper()
	p := n.last()
	p.meant.Store(true)
	_ = p.signal(syscall.SIGTERM)
	code, _ := n.Ended()
	if w, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() && w.Signal() == syscall.SIGTERM && p.said() == "" {
		return // it had not begun to listen to signals
	}
	if code != 0 {
		n.c.t.Errorf("%s: SIGTERM ends it with exit code %d: %s", n.Name, code, p.lastLine())
	}
}

// ExpectEnd marks that the test expects the process to end by itself.
func (n *Node) ExpectEnd() { n.last().meant.Store(true) }

// PID returns the id of the last process.
func (n *Node) PID() int { return n.last().cmd.Process.Pid }

// Said returns what the last process has written.
func (n *Node) Said() string { return n.last().said() }

// Ended waits until the process has ended, and returns its exit code and its last line.
func (n *Node) Ended() (code int, lastLine string) {
	n.c.t.Helper()
	p := n.last()
	select {
	case <-p.exited:
	case <-n.c.ctx.Done():
		n.c.t.Errorf("%s goes on: %v", n.Name, context.Cause(n.c.ctx))
		p.kill()
	}
	return p.cmd.ProcessState.ExitCode(), p.lastLine()
}

// Pause stops the process with SIGSTOP.
func (n *Node) Pause() { n.c.t.Helper(); n.signal(syscall.SIGSTOP) }

// Resume continues it with SIGCONT.
func (n *Node) Resume() { n.c.t.Helper(); n.signal(syscall.SIGCONT) }

func (n *Node) signal(s syscall.Signal) {
	n.c.t.Helper()
	if err := n.last().signal(s); err != nil {
		n.c.t.Errorf("%s: %v: %v", n.Name, s, err)
	}
}

// Up reports whether the process has not ended.
func (n *Node) Up() bool {
	p := n.last()
	return p != nil && p.up()
}

// Ready waits until the node reports that it takes appends.
func (n *Node) Ready() {
	n.c.t.Helper()
	if !n.readyOrEnded() {
		n.c.t.Fatalf("%s is not ready: %s", n.Name, n.last().lastLine())
	}
}

// readyOrEnded waits until the node reports that it takes appends, or has ended. It reports whether
// the node is ready.
func (n *Node) readyOrEnded() bool {
	n.c.t.Helper()
	life := n.last()
	if life == nil {
		return false
	}
	ctx, cancel := context.WithCancel(n.c.ctx)
	defer cancel()
	go func() {
		select {
		case <-life.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := dialNode(n.grpc)
	if err != nil {
		n.c.t.Fatal(err)
	}
	defer conn.Close()
	for ctx.Err() == nil {
		err := n.watchReady(ctx, conn)
		if err == nil {
			return true
		}
		if code := status.Code(err); code != codes.Unavailable && code != codes.Canceled {
			n.c.t.Fatalf("the health of %s: %v", n.Name, err)
		}
	}
	if n.c.ctx.Err() != nil {
		code, said := n.ask(n.http, "/readyz")
		n.c.t.Errorf("%s neither gets ready nor ends: %d %v", n.Name, code, said)
	}
	return false
}

// watchReady follows the node's health until it is ready, or the stream ends. The stream begins
// when the node listens.
func (n *Node) watchReady(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
	for err == nil {
		var health *grpc_health_v1.HealthCheckResponse
		health, err = stream.Recv()
		if health.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			continue
		}
		if code, _ := n.ask(n.http, "/readyz"); code == http.StatusOK {
			return nil
		}
	}
	return err
}

// leads reports whether the node says that it leads. No answer means no.
func (n *Node) leads() bool { return n.shows("runlog_raft_leader 1") }

// shows reports whether a line is among the node's metrics.
func (n *Node) shows(metric string) bool {
	if !n.Up() {
		return false
	}
	_, lines := n.ask(n.admin, "/metrics")
	return slices.Contains(lines, metric)
}

// ask makes a request over HTTP; code 0: no answer.
func (n *Node) ask(at, path string) (code int, lines []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+path, http.NoBody)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, []string{err.Error()}
	}
	defer resp.Body.Close()
	for text := bufio.NewScanner(resp.Body); text.Scan(); {
		lines = append(lines, text.Text())
	}
	return resp.StatusCode, lines
}

// dial makes a client's connection to a node.
func (c *Cluster) dial(_ string, node int) (*grpc.ClientConn, error) {
	return dialNode(c.nodes[node].grpc)
}

func dialNode(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
}

// connect makes the product's client for all nodes.
func (c *Cluster) connect(_ string, opts ...grpc.DialOption) (*client.Client, error) {
	var addresses []string
	for _, n := range c.nodes {
		addresses = append(addresses, n.grpc)
	}
	return client.Dial(strings.Join(addresses, ","), client.Options{
		MinBackoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, DialOptions: opts,
	})
}

// Replace replaces a node that has ended and has lost its data by an empty one, as
// docs/operations.md describes.
func (n *Node) Replace() {
	n.c.t.Helper()
	n.Remove()
	n.Rejoin()
}

// Remove has another node remove the node from the cluster.
func (n *Node) Remove() {
	n.c.t.Helper()
	servers, _ := n.others()
	if err := output(exec.Command(n.Binary, "--server", strings.Join(servers, ","), "cluster", "remove", n.Name)); err != nil {
		n.c.t.Fatal(err)
	}
}

// Rejoin starts the node with an empty data directory, and waits until it serves.
func (n *Node) Rejoin() {
	n.c.t.Helper()
	if err := os.RemoveAll(n.Dir); err != nil {
		n.c.t.Fatal(err)
	}
	servers, join := n.others()
	n.flags = append(n.joining(servers, join), n.c.opts.Flags...)
	n.Start()
	n.Ready()
}

// joining returns the flags with which a node joins others: the addresses, and a new join token.
func (n *Node) joining(servers, join []string) []string {
	n.c.t.Helper()
	text, err := exec.Command(n.Binary, "--server", strings.Join(servers, ","), "cluster", "token", "create").Output()
	file := n.Dir + ".join-token"
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		n.c.t.Fatalf("procs: make a join token: %v", err)
	}
	return []string{"--join", strings.Join(join, ","), "--join-token-file", file}
}

// others returns where clients and nodes reach the other nodes.
func (n *Node) others() (servers, join []string) {
	for _, m := range n.c.nodes {
		if m != n {
			servers, join = append(servers, m.grpc), append(join, m.raft)
		}
	}
	return servers, join
}
