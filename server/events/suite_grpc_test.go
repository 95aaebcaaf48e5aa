package events_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/storage/storagetest/stories"
)

// TestConformanceOverGRPC holds a node to the contract's examples and to the model, over gRPC and
// over its restarts: APP-1, APP-3 to APP-6, APP-8, APP-11, APP-12, IDM-4 to IDM-8, ENV-1, ENV-8,
// READ-1. Appends go by AppendEvents, BatchAppend and AppendStream in turn.
func TestConformanceOverGRPC(t *testing.T) {
	t.Parallel()
	t.Run("examples", func(t *testing.T) {
		t.Parallel()
		stories.TellRemote(t, opening(overGRPC))
	})
	t.Run("workloads", func(t *testing.T) {
		t.Parallel()
		storagetest.RemoteWorkloads(t, opening(overGRPC))
	})
}

// grpcWire sends payloads as bytes, as gRPC producers do, and some as objects, as they may.
type grpcWire struct {
	node   *servertest.Node
	stream runlogv1.EventService_AppendStreamClient // nil: not open yet
	end    context.CancelFunc
	sent   int
}

func overGRPC(n *servertest.Node) transport { return &grpcWire{node: n} }

func (g *grpcWire) call(ctx context.Context, method string, req, resp proto.Message) error {
	return g.node.Conn.Invoke(ctx, method, req, resp)
}

func (g *grpcWire) read(ctx context.Context, req *runlogv1.ReadEventsRequest) ([]*runlogv1.EventRecord, error) {
	stream, err := g.node.Events.ReadEvents(ctx, req)
	var events []*runlogv1.EventRecord
	for err == nil {
		var batch *runlogv1.ReadEventsResponse
		if batch, err = stream.Recv(); err == nil {
			events = append(events, batch.Events...)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return events, err
}

func (g *grpcWire) ways() []way {
	return []way{
		func(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			return g.node.Events.AppendEvents(ctx, req)
		},
		batchOfOne(g),
		g.onStream,
	}
}

// batchOfOne appends by BatchAppend.
func batchOfOne(w transport) way {
	return func(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
		var resp runlogv1.BatchAppendResponse
		batch := &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{req}}
		if err := w.call(ctx, runlogv1.EventService_BatchAppend_FullMethodName, batch, &resp); err != nil {
			return nil, err
		}
		if len(resp.Outcomes) != 1 {
			return nil, fmt.Errorf("%d outcomes for one request", len(resp.Outcomes))
		}
		o := resp.Outcomes[0]
		return &runlogv1.AppendEventsResponse{Results: o.Results, LastSeq: o.LastSeq, Position: o.Position}, status.ErrorProto(o.Status)
	}
}

// onStream appends by AppendStream; one stream lives as long as the node. The context of the call
// ends with it, the stream does not.
func (g *grpcWire) onStream(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if g.stream == nil {
		var ctx context.Context
		ctx, g.end = context.WithTimeout(context.Background(), servertest.Patience)
		var err error
		if g.stream, err = g.node.Events.AppendStream(ctx); err != nil {
			return nil, err
		}
	}
	g.sent++
	req.RequestId = fmt.Sprint("request ", g.sent)
	if err := g.stream.Send(req); err != nil {
		return nil, err
	}
	resp, err := g.stream.Recv()
	if err != nil {
		return nil, err
	}
	if resp.RequestId != req.RequestId {
		return nil, fmt.Errorf("answer to %q, want to %q", resp.RequestId, req.RequestId)
	}
	return &runlogv1.AppendEventsResponse{Results: resp.Results, LastSeq: resp.LastSeq, Position: resp.Position}, status.ErrorProto(resp.Status)
}

func (g *grpcWire) natural(e *contract.Event) bool { return e.EventID[15]%4 == 3 }

func (g *grpcWire) otherForm() runlogv1.PayloadForm_Form { return runlogv1.PayloadForm_STRUCT }

func (g *grpcWire) restarted() {
	if g.stream != nil {
		g.end()
		g.stream = nil
	}
}
