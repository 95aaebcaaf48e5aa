package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"runlog/bench/load"
	"runlog/bench/target"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

const (
	echoMethod       = "/runlog.bench.Echo/Echo"
	echoStreamMethod = "/runlog.bench.Echo/EchoStream"
)

// echoes is a server on loopback TCP that decodes appends and sends them back, and connections to
// it. It is a process of its own, as a node is, if Options have its command.
type echoes struct {
	address string
	end     func() error
	conns   []*grpc.ClientConn
	turn    atomic.Uint64
}

func startEchoes(o *Options) (*echoes, error) {
	start := echoInProcess
	if len(o.EchoServer) > 0 {
		start = func() (string, func() error, error) { return echoProcess(o) }
	}
	address, end, err := start()
	if err != nil {
		return nil, err
	}
	e := &echoes{address: address, end: end}
	for range o.Connections {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, errors.Join(err, e.close())
		}
		e.conns = append(e.conns, conn)
	}
	return e, nil
}

func (e *echoes) conn() *grpc.ClientConn { return e.conns[e.turn.Add(1)%uint64(len(e.conns))] }

func (e *echoes) close() error {
	var errs []error
	for _, c := range e.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, e.end())...)
}

// listenEcho makes the server and its listener.
func listenEcho() (*grpc.Server, net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer()
	server.RegisterService(echoService(), nil)
	return server, listener, nil
}

func echoInProcess() (address string, end func() error, err error) {
	server, listener, err := listenEcho()
	if err != nil {
		return "", nil, err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return listener.Addr().String(), func() error {
		server.Stop()
		return <-served
	}, nil
}

// echoStart is far more than a process takes to listen.
const echoStart = 10 * time.Second

func echoProcess(o *Options) (address string, end func() error, err error) {
	dir, err := os.MkdirTemp(o.Dir, "echo-")
	if err != nil {
		return "", nil, err
	}
	log := filepath.Join(dir, "log")
	p, err := target.StartProcess(log, exec.Command(o.EchoServer[0], o.EchoServer[1:]...))
	if err != nil {
		return "", nil, err
	}
	err = p.Wait(context.Background(), echoStart, func() bool {
		text, err := os.ReadFile(log)
		line, _, whole := strings.Cut(string(text), "\n")
		address = line
		return err == nil && whole
	})
	if err != nil {
		return "", nil, errors.Join(err, p.Stop())
	}
	return address, p.Stop, nil
}

// ServeEcho writes its listen address to w, and echoes until the context ends.
func ServeEcho(ctx context.Context, w io.Writer) error {
	server, listener, err := listenEcho()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, server.Stop)()
	if _, err := fmt.Fprintln(w, listener.Addr()); err != nil {
		return err
	}
	return server.Serve(listener)
}

// openEcho prepares the limit grpc-echo.
func openEcho(b *bed) (*work, error) {
	e, err := startEchoes(b.o)
	if err != nil {
		return nil, err
	}
	req := load.NewHistories(b.session, 1, 0).Next()
	call := func(ctx context.Context) (int, error) {
		var res runlogv1.AppendEventsRequest
		if err := e.conn().Invoke(ctx, echoMethod, req, &res); err != nil {
			return 0, err
		}
		return checkEcho(len(res.GetEvents()))
	}
	w := &work{requestBytes: proto.Size(req), release: e.close}
	for range b.w.Callers {
		w.lanes = append(w.lanes, load.Caller(call).Lane())
	}
	return w, nil
}

// openEchoStream prepares the limit grpc-stream.
func openEchoStream(b *bed) (*work, error) {
	e, err := startEchoes(b.o)
	if err != nil {
		return nil, err
	}
	req := load.NewHistories(b.session, b.w.Batch, 0).Next()
	open := func(ctx context.Context) (target.Stream, error) {
		s, err := e.conn().NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, echoStreamMethod)
		return echoStream{s}, err
	}
	w := &work{requestBytes: proto.Size(req), release: e.close}
	for range b.w.Callers {
		p := &load.Pipeline{Open: open}
		for range b.w.InFlight {
			p.Slots = append(p.Slots, echoSource{req})
		}
		w.lanes = append(w.lanes, p.Drive)
	}
	return w, nil
}

// echoStream adapts an echoing stream to a stream of appends.
type echoStream struct{ grpc.ClientStream }

func (s echoStream) Send(req *runlogv1.AppendEventsRequest) error { return s.SendMsg(req) }

func (s echoStream) Recv() (*runlogv1.AppendStreamResponse, error) {
	var req runlogv1.AppendEventsRequest
	if err := s.RecvMsg(&req); err != nil {
		return nil, err
	}
	return &runlogv1.AppendStreamResponse{Results: make([]*runlogv1.AppendResult, len(req.Events))}, nil
}

// echoSource sends the same request over and over.
type echoSource struct{ req *runlogv1.AppendEventsRequest }

func (s echoSource) Next() *runlogv1.AppendEventsRequest { return s.req }

func (s echoSource) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	if len(results) != len(s.req.Events) {
		return 0, errLostEcho
	}
	return len(results), nil
}

var errLostEcho = target.WrongAnswer("WRONG_ECHO", "the echo has lost an event")

func checkEcho(events int) (int, error) {
	if events != 1 {
		return 0, errLostEcho
	}
	return events, nil
}

// echoService decodes requests and sends them back, or a stored answer.
func echoService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "runlog.bench.Echo",
		HandlerType: (*any)(nil),
		Methods: append(new(snapshotEcho).methods(),
			unary("Echo", func(req *runlogv1.AppendEventsRequest) proto.Message { return req }),
			unary("Memory", echoMemory)),
		Streams: []grpc.StreamDesc{{
			StreamName: "EchoStream", ClientStreams: true, ServerStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return echoAll(stream) },
		}, {
			StreamName: "Idle", ServerStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return idle(stream) },
		}},
	}
}

func echoAll(stream grpc.ServerStream) error {
	for {
		req := new(runlogv1.AppendEventsRequest)
		if err := stream.RecvMsg(req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(req); err != nil {
			return err
		}
	}
}
