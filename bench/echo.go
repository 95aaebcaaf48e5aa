package bench

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

const echoMethod = "/runlog.bench.Echo/Echo"

// openEcho prepares the limit grpc-echo: a server in this process, on loopback TCP, that decodes an append of
// one event and sends it back. It has one connection, as the appending workloads have.
func (o *Options) openEcho(_ context.Context, w *workload) ([]caller, int, func() error, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, nil, err
	}
	server := grpc.NewServer()
	server.RegisterService(echoService(), nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		server.Stop()
		return nil, 0, nil, errors.Join(err, <-served)
	}
	release := func() error {
		err := conn.Close()
		server.Stop()
		return errors.Join(err, <-served)
	}
	req := newProducer(o, newSession(o), 1, 0).next()
	req.Events[0].EventId = "018f4e7a-1c2b-7def-8123-456789abcdef" // the client library adds one to each event
	callers := make([]caller, w.callers)
	for i := range callers {
		callers[i] = func(ctx context.Context) (int, error) {
			var res runlogv1.AppendEventsRequest
			if err := conn.Invoke(ctx, echoMethod, req, &res); err != nil {
				return 0, err
			}
			if len(res.GetEvents()) != 1 {
				return 0, &answerError{"WRONG_ECHO", "the echo has lost its event"}
			}
			return 1, nil
		}
	}
	return callers, proto.Size(req), release, nil
}

// echoService decodes a request and sends it back.
func echoService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "runlog.bench.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Echo",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				req := new(runlogv1.AppendEventsRequest)
				if err := decode(req); err != nil {
					return nil, err
				}
				return req, nil
			},
		}},
	}
}
