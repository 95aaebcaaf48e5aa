// Package temporaltest starts real Temporal servers in tests, as processes.
//
//	s := temporaltest.Start(t)
//	c := s.Client(t, "default")
//	s.Kill(); s.Restart(t)
//
// The server is that of Temporal's command line. make check-temporal builds it.
package temporaltest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/failure/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdkclient "go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Server is a Temporal server with a database of its own.
type Server struct {
	// Address of its API.
	Address string
	// File is its database. Another name before Restart makes a server that has lost everything.
	// Empty: the database is in memory.
	File string

	namespaces int // beside default
	process    *exec.Cmd
	ended      chan struct{} // closed once the process has
	log        bytes.Buffer
}

// Namespace is the name of one of the namespaces of StartIn, from 0 on.
func Namespace(i int) string { return "space-" + strconv.Itoa(i) }

// binary returns the path of Temporal's command line.
func binary() (string, error) {
	path := os.Getenv("TEMPORAL")
	if path == "" {
		_, here, _, _ := runtime.Caller(0)
		path = filepath.Join(filepath.Dir(here), "..", "..", "..", ".bin", "temporal-v1.5.1")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("there is no Temporal server: run make check-temporal, which builds it, or set TEMPORAL to its path: %w", err)
	}
	return path, nil
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := StartIn(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// StartInMemory starts a server that ends with the test, and that has its database in memory.
func StartInMemory(t testing.TB) *Server {
	t.Helper()
	s, err := StartIn("", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// StartIn starts a server with some namespaces, and with its database in a directory; empty: in
// memory. The caller kills it.
func StartIn(dir string, namespaces int) (*Server, error) {
	address, err := reserve()
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	s := &Server{Address: address, namespaces: namespaces}
	if dir != "" {
		s.File = filepath.Join(dir, "temporal.db")
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	return s, nil
}

// reserve binds a socket to a free port, and does not listen. The system gives the port to no other
// process, until this one ends; a listener of Go may share it.
func reserve() (address string, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		return "", err
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		return "", err
	}
	return fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port), nil
}

func (s *Server) start() error {
	path, err := binary()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return err
	}
	args := []string{"server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", port, "--log-level", "error"}
	if s.File != "" {
		args = append(args, "--db-filename", s.File)
	}
	for i := range s.namespaces {
		args = append(args, "--namespace", Namespace(i))
	}
	s.process = exec.Command(path, args...)
	s.process.Stdout, s.process.Stderr = &s.log, &s.log
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func() {
		_ = s.process.Wait() // Its error says that it was killed.
		close(s.ended)
	}()
	c, err := sdkclient.NewLazyClient(sdkclient.Options{HostPort: s.Address, Logger: quiet{}})
	if err != nil {
		s.Kill()
		return err
	}
	defer c.Close()
	// A server that starts tells nothing. It is asked until it answers, or has ended.
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := c.CheckHealth(ctx, &sdkclient.CheckHealthRequest{})
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the Temporal server has ended: %w\n%s", err, s.log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// PID is that of the process of the server.
func (s *Server) PID() int { return s.process.Process.Pid }

// Kill ends the server as a loss of power does. It returns once the process has ended.
func (s *Server) Kill() {
	_ = s.process.Process.Kill()
	<-s.ended
}

// Revive restarts a server that has ended by itself, as one does whose machine is too busy for its
// start.
func (s *Server) Revive(t testing.TB) {
	t.Helper()
	select {
	case <-s.ended:
		t.Logf("the Temporal server has ended by itself: %s", s.log.String())
		s.Restart(t)
	default:
	}
}

// Restart starts a server that was killed, at the same address and with its database.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Client returns a client that is closed with the test. With TEMPORAL_LOG set, it logs.
func (s *Server) Client(t testing.TB, namespace string, options ...grpc.DialOption) sdkclient.Client {
	t.Helper()
	c, err := sdkclient.Dial(sdkclient.Options{HostPort: s.Address, Namespace: namespace, Logger: logger(),
		ConnectionOptions: sdkclient.ConnectionOptions{DialOptions: options}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Killable is an option of a client of a process that a test kills. Each call that changes
// something is an action, made by act. Once killed returns true, no call has an effect.
func Killable(act func(func() error) error, killed func() bool) grpc.DialOption {
	dead := status.Error(codes.Canceled, "the process is killed")
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		name := method[strings.LastIndexByte(method, '/')+1:]
		if killed() {
			return dead
		}
		send := func() error { return invoke(ctx, method, req, reply, cc, opts...) }
		var err error
		if strings.HasPrefix(name, "Respond") || name == "StartWorkflowExecution" || name == "SignalWorkflowExecution" {
			err = act(send)
		} else {
			err = send()
		}
		if killed() {
			return dead
		}
		return err
	})
}

// Losing is an option of a client of a worker. The first attempt of each activity of a type ends
// before the worker has it. A busy server does the same: if its matching does not get the answer of
// its history in time, the attempt counts, and no worker ever gets it.
func Losing(activity string) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		task, ok := reply.(*workflowservice.PollActivityTaskQueueResponse)
		if err != nil || !ok || task.GetActivityType().GetName() != activity || task.GetAttempt() > 1 {
			return err
		}
		// A failure in place of a timeout: it comes at once, and costs no time of other attempts.
		err = invoke(ctx, "/temporal.api.workflowservice.v1.WorkflowService/RespondActivityTaskFailed", &workflowservice.RespondActivityTaskFailedRequest{
			Namespace: task.GetWorkflowNamespace(), TaskToken: task.GetTaskToken(),
			Failure: &failure.Failure{Message: "the attempt is lost", FailureInfo: &failure.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failure.ApplicationFailureInfo{Type: "LOST"}}},
		}, &workflowservice.RespondActivityTaskFailedResponse{}, cc)
		proto.Reset(task) // The answer of a poll that has found nothing.
		return err
	})
}

type sdkLogger interface {
	Debug(string, ...any)
	Info(string, ...any)
	Warn(string, ...any)
	Error(string, ...any)
}

func logger() sdkLogger {
	if os.Getenv("TEMPORAL_LOG") != "" {
		return loud{}
	}
	return quiet{}
}

// quiet says nothing: the errors of calls tell what is wrong.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

// loud prints everything.
type loud struct{}

func (l loud) Debug(text string, pairs ...any) { l.print("DEBUG", text, pairs) }
func (l loud) Info(text string, pairs ...any)  { l.print("INFO", text, pairs) }
func (l loud) Warn(text string, pairs ...any)  { l.print("WARN", text, pairs) }
func (l loud) Error(text string, pairs ...any) { l.print("ERROR", text, pairs) }

func (loud) print(level, text string, pairs []any) {
	fmt.Fprintln(os.Stderr, level, text, fmt.Sprintln(pairs...))
}
