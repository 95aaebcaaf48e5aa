package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"runlog/client/command/output"
	"runlog/cmd/runlog/internal/serve"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"runlog/server"
	"runlog/storage"
	"runlog/testbed/await"
)

// asRunlog makes the test binary behave as the runlog binary: real processes without another build.
const (
	asRunlog = "TEST_RUNLOG_AS_BINARY"
	// smallNode makes a served node flush, compact and drop its log as early as a big one does
	// after gigabytes.
	smallNode = "TEST_RUNLOG_SMALL_NODE"
)

func TestMain(m *testing.M) {
	if os.Getenv(asRunlog) == "" {
		// What a test starts is this binary, as the command.
		if err := os.Setenv(asRunlog, "1"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	// A limit of file sizes is then an error of the write, as a broken disk's would be.
	signal.Ignore(syscall.SIGXFSZ)
	if os.Getenv(smallNode) != "" {
		os.Exit(serveSmall(os.Args[2:]))
	}
	main()
}

// serveSmall is runlog serve with limits that it has no flags for.
func serveSmall(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log, err := output.NewLogger(os.Stderr, "info", "text")
	if err != nil {
		return 1
	}
	// Without a size of its memory, serve.Run would have Go collect garbage all the time.
	opts := server.Options{Logger: log, MemoryBytes: server.DefaultMemoryBytes, MinFreeBytes: -1, Store: storage.Options{MemTableBytes: 256 << 10, ActiveBytes: 64 << 10}}
	opts.Raft.TruncateBytes, opts.Raft.TrailingEntries, opts.Raft.TrailingBytes, opts.Raft.SegmentBytes = 128<<10, 8, 32<<10, 1<<20
	opts.Raft.Autopilot.StableAfter, opts.Raft.Autopilot.Every = 500*time.Millisecond, 250*time.Millisecond
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.StringVar(&opts.DataDir, "data-dir", "", "")
	f.StringVar(&opts.GRPCListen, "grpc-listen", "", "")
	f.StringVar(&opts.HTTPListen, "http-listen", "", "")
	f.StringVar(&opts.AdminListen, "admin-listen", "", "")
	f.StringVar(&opts.RaftListen, "raft-listen", "", "")
	f.StringVar(&opts.NodeID, "node-id", "", "")
	f.IntVar(&opts.BootstrapExpect, "bootstrap-expect", 0, "")
	f.StringSliceVar(&opts.Join, "join", nil, "")
	f.DurationVar(&opts.Raft.ElectionTimeout, "election-timeout", time.Second, "")
	_, _ = f.String("min-free-disk", "", ""), f.String("memory", "", "")
	err = f.Parse(args)
	if err == nil {
		err = serve.Run(ctx, opts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// nodeProcess is a node in a process of its own.
type nodeProcess struct {
	dir    string
	cmd    *exec.Cmd
	stderr *await.Words
	exited chan struct{}
}

// runlogCommand is a command line of a real process.
func runlogCommand(env []string, args ...string) *exec.Cmd {
	return asRunlogProcess(env, exec.Command(os.Args[0], args...))
}

// asRunlogProcess gives a process the environment of the command. A node in it is small: it fills
// the files of its log before it serves.
func asRunlogProcess(env []string, cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(append(os.Environ(), asRunlog+"=1", "RUNLOG_MEMORY=256MiB"), env...)
	return cmd
}

// spawnNode starts a node on free ports and does not wait for it.
func spawnNode(t *testing.T, dir string, env ...string) *nodeProcess {
	t.Helper()
	return spawnServe(t, dir, env, "--grpc-listen", "127.0.0.1:0",
		"--http-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0")
}

// spawnServe starts a node with flags and does not wait for it.
func spawnServe(t *testing.T, dir string, env []string, flags ...string) *nodeProcess {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "addresses.json")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return spawnCommand(t, dir, runlogCommand(env, append([]string{"serve", "--data-dir", dir}, flags...)...))
}

// spawnCommand starts a node by its command line.
func spawnCommand(t *testing.T, dir string, cmd *exec.Cmd) *nodeProcess {
	t.Helper()
	n := &nodeProcess{dir: dir, cmd: cmd, stderr: &await.Words{}, exited: make(chan struct{})}
	n.cmd.Stderr = n.stderr
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = n.cmd.Wait()
		close(n.exited)
	}()
	t.Cleanup(n.kill)
	return n
}

// ready waits until the node serves and returns its addresses.
func (n *nodeProcess) ready(t *testing.T) server.Addresses {
	t.Helper()
	n.says(t, func(said string) bool { return serves.MatchString(said) })
	var a server.Addresses
	text, err := os.ReadFile(filepath.Join(n.dir, "addresses.json"))
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		t.Fatalf("the node serves, and does not say where: %v\n%s", err, n.stderr)
	}
	return a
}

// serves is what a node logs once it serves. It has written addresses.json before.
var serves = regexp.MustCompile(`(?m)^.*( msg=ready |"msg":"ready",).*\n`)

// says waits until a condition holds of what the process has written.
func (n *nodeProcess) says(t *testing.T, condition func(said string) bool) {
	t.Helper()
	if !n.stderr.Await(n.exited, await.Context(t).Done(), condition) {
		t.Fatalf("the process does not say what is awaited; it said:\n%s", n.stderr)
	}
}

// kill ends the node as a power switch would, by its own process id.
func (n *nodeProcess) kill() {
	_ = n.cmd.Process.Kill()
	<-n.exited
}

// stop asks the node to end and returns its exit code.
func (n *nodeProcess) stop(t *testing.T) int {
	t.Helper()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "the end of the node", n.exited)
	return n.cmd.ProcessState.ExitCode()
}

func dialNode(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func hexSHA256(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
