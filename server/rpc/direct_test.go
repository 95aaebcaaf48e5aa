package rpc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc/decode"
	"runlog/testbed/bubble"
)

// listing answers ListEvents, a method of any node.
type listing struct {
	runlogv1.UnimplementedEventServiceServer
	list func(context.Context, *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error)
}

func (l listing) ListEvents(ctx context.Context, req *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
	return l.list(ctx, req)
}

var directLimits = decode.Limits{Bytes: 1 << 20}

// directTo returns a caller of a service with the chain of a node.
func directTo(t *testing.T, l listing) runlogv1.EventServiceClient {
	t.Helper()
	events, _ := chainTo(t, l)
	return events
}

// chainTo is directTo, with the chain.
func chainTo(t *testing.T, l listing) (runlogv1.EventServiceClient, *Chain) {
	t.Helper()
	s := &Service{Desc: &runlogv1.EventService_ServiceDesc}
	s.Open(l)
	methods, err := NewMethods([]*Service{s})
	if err != nil {
		t.Fatal(err)
	}
	everyone, err := auth.New(t.Context(), auth.Options{Open: true})
	if err != nil {
		t.Fatal(err)
	}
	c := NewChain(ChainOptions{
		Access: func() *Access { return &Access{Authenticator: everyone, Open: true} },
		Limits: directLimits, Caller: CallerClient, Metrics: NewMetrics(prometheus.NewRegistry()), Methods: methods,
	})
	return runlogv1.NewEventServiceClient(streamless{c.Direct([]*Service{s})}), c
}

type streamless struct{ *Direct }

func (streamless) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// TestDirect: a call without a connection gets what one over gRPC gets: headers both ways, messages
// that are the caller's own, the limits of messages, and errors as statuses.
func TestDirect(t *testing.T) {
	t.Parallel()
	var asked *runlogv1.ListEventsRequest
	kept := &runlogv1.ListEventsResponse{Events: []*runlogv1.EventRecord{{RunSeq: 7}}}
	events := directTo(t, listing{list: func(ctx context.Context, req *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
		asked = req
		in, _ := metadata.FromIncomingContext(ctx)
		if out, _ := metadata.FromOutgoingContext(ctx); len(out) > 0 {
			t.Errorf("a call to another node would carry %v", out)
		}
		if err := grpc.SetHeader(ctx, metadata.Pairs("answer", strings.Join(in.Get("question"), ""))); err != nil {
			t.Error(err)
		}
		return kept, nil
	}})
	req := &runlogv1.ListEventsRequest{RunId: "run"}
	var header metadata.MD
	resp, err := events.ListEvents(metadata.AppendToOutgoingContext(t.Context(), "question", "why"), req, grpc.Header(&header))
	if err != nil || !proto.Equal(resp, kept) || resp == kept || !proto.Equal(asked, req) || asked == req {
		t.Errorf("%v, %v, was asked %v", resp, err, asked)
	}
	if got := header.Get("answer"); fmt.Sprint(got) != "[why]" {
		t.Errorf("header %v", header)
	}
	if _, err := events.ListEvents(t.Context(), &runlogv1.ListEventsRequest{RunId: strings.Repeat("x", directLimits.Transport())}); status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.InvalidArgument {
		t.Errorf("a message above the limit: %v", err)
	}
	if _, err := events.ReadEvents(t.Context(), nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream: %v", err)
	}
	if err := (&Direct{}).Invoke(t.Context(), "/x/Y", req, resp); status.Code(err) != codes.Unimplemented {
		t.Errorf("an unknown method: %v", err)
	}
	failing := directTo(t, listing{list: func(context.Context, *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
		return nil, context.DeadlineExceeded
	}})
	if _, err := failing.ListEvents(t.Context(), req); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("an error of the service: %v", err)
	}
}

// TestDirectDeadlineAPP10: a call ends at its deadline, also while its service waits for something
// that does not look at it, such as a disk.
func TestDirectDeadlineAPP10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		disk := make(chan struct{})
		events := directTo(t, listing{list: func(context.Context, *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
			<-disk
			return nil, nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := events.ListEvents(ctx, &runlogv1.ListEventsRequest{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("after the deadline: %v", err)
		}
		close(disk)
	})
}

// TestDrainWaitsForDirectCalls: a stopping node closes what its services use only when the calls
// without a connection have ended too (D13).
func TestDrainWaitsForDirectCalls(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		begun, end := make(chan struct{}), make(chan struct{})
		events, chain := chainTo(t, listing{list: func(context.Context, *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
			close(begun)
			<-end
			return &runlogv1.ListEventsResponse{}, nil
		}})
		var ended atomic.Bool
		go func() {
			_, _ = events.ListEvents(context.Background(), &runlogv1.ListEventsRequest{})
		}()
		<-begun
		time.AfterFunc(200*time.Millisecond, func() {
			ended.Store(true)
			close(end)
		})
		if err := chain.Inflight().Drain(grpc.NewServer()); err != nil || !ended.Load() {
			t.Errorf("%v; the call had ended: %v", err, ended.Load())
		}
	})
}

// TestDirectPanicD10: a panic in a service ends the process, as it does in a call over gRPC,
// although the HTTP server would recover from it.
func TestDirectPanicD10(t *testing.T) {
	t.Parallel()
	const variable = "TEST_RUNLOG_PANICS"
	if os.Getenv(variable) != "" {
		defer func() { _ = recover() }() // As net/http does.
		events := directTo(t, listing{list: func(context.Context, *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
			panic("the state is not known")
		}})
		_, _ = events.ListEvents(t.Context(), &runlogv1.ListEventsRequest{})
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDirectPanicD10$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: the state is not known") || !strings.Contains(string(out), "direct_test.go") {
		t.Errorf("the process ends with %v and says:\n%s", err, out)
	}
}
