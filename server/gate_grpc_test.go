package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// rawCodec sends bytes as they are, whatever they would be to the server.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// rawCall calls a method of EventService or RunService with any bytes.
func rawCall(n *servertest.Node, method string, wire []byte) error {
	n.T.Helper()
	service := "EventService"
	if method == "CreateRun" {
		service = "RunService"
	}
	var answer []byte
	return n.Conn.Invoke(n.Context(), "/runlog.v1."+service+"/"+method, wire, &answer, grpc.ForceCodecV2(rawCodec{}))
}

func wireField(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// emptyEvents are the wire form of an append request with so many empty events.
func emptyEvents(runID string, count int) []byte {
	return append(wireField(1, []byte(runID)), bytes.Repeat(wireField(2, nil), count)...)
}

// large makes an append request of more than so many bytes.
func large(runID string, size int) *runlogv1.AppendEventsRequest {
	const each = 60_000
	r := &runlogv1.AppendEventsRequest{RunId: runID, RequestId: "large"}
	for i := range size/each + 1 {
		r.Events = append(r.Events, servertest.NewEvent("Noted", servertest.Step(fmt.Sprint("large-", i)), servertest.Payload(`{"pad":"`+strings.Repeat("x", each)+`"}`)))
	}
	return r
}

// TestLargeMessagesOverGRPC: a message over the limit is refused with the limit in the error, and
// nothing of it is stored.
func TestLargeMessagesOverGRPC(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		n := servertest.Start(t, func(o *server.Options) { o.MaxRequestBytes = limit })
		n.Append("run", servertest.NewEvent("RunStarted"))
		_, err := n.Events.AppendEvents(n.Context(), large("run", limit))
		r := servertest.Refused(t, err, contract.ReasonPayloadTooLarge)
		if !strings.Contains(r.Message, fmt.Sprint(limit)) || r.Metadata["max_bytes"] != fmt.Sprint(limit) {
			t.Errorf("%q does not tell the limit: %v", r.Message, r.Metadata)
		}
		_, err = n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{large("run", limit)}})
		servertest.Refused(t, err, contract.ReasonPayloadTooLarge)
		_, err = n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{RunId: "new"}, Events: large("new", limit).Events})
		servertest.Refused(t, err, contract.ReasonPayloadTooLarge)
		n.Append("run", large("run", limit/2).Events...)
		servertest.WantEqual(t, "stored", len(n.List("run")), 1+limit/2/60_000+1)
		// gRPC does not read a message far above the limit. Its answer has no reason, which the
		// client library recognises.
		_, err = n.Events.AppendEvents(n.Context(), large("run", 17<<20))
		if status.Code(err) != codes.ResourceExhausted || servertest.RefusalOf(t, err).Reason != "" {
			t.Errorf("a message of 17 MiB: %v", err)
		}
	})
}

// TestLargeMessageEndsStreamAPP8: earlier requests of the stream are answered.
func TestLargeMessageEndsStreamAPP8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxRequestBytes = 1 << 20 })
		for name, last := range map[string]proto.Message{"too large": large("run", 1<<20), "not UTF-8": nil} {
			stream, err := n.Conn.NewStream(n.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
				runlogv1.EventService_AppendStream_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			const before = 50
			for i := range before {
				wire, _ := proto.Marshal(&runlogv1.AppendEventsRequest{RunId: name, RequestId: fmt.Sprint(i), Events: servertest.Steps(fmt.Sprint(i), 2)})
				if err := stream.SendMsg(wire); err != nil {
					t.Fatal(err)
				}
			}
			wire := wireField(1, []byte("\xff"))
			reason := contract.ReasonInvalidArgumentField
			if last != nil {
				wire, _ = proto.Marshal(last)
				reason = contract.ReasonPayloadTooLarge
			}
			if err := stream.SendMsg(wire); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			for i := range before {
				var answer []byte
				if err := stream.RecvMsg(&answer); err != nil {
					t.Fatalf("%s: answer %d: %v", name, i, err)
				}
				var resp runlogv1.AppendStreamResponse
				if err := proto.Unmarshal(answer, &resp); err != nil || resp.RequestId != fmt.Sprint(i) {
					t.Fatalf("%s: answer %d: %v, %v", name, i, &resp, err)
				}
				servertest.WantResults(t, name, resp.Results, "nn")
			}
			var answer []byte
			servertest.Refused(t, stream.RecvMsg(&answer), reason)
			servertest.WantEqual(t, name+": stored", len(n.List(name)), 2*before)
		}
	})
}

// TestBombsOverGRPCAPP3: a message that would grow in decoding is refused with the validator's
// errors, on a stream in its order.
func TestBombsOverGRPCAPP3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		bomb := emptyEvents("run", 500_000)
		r := servertest.Refused(t, rawCall(n, "AppendEvents", bomb), contract.ReasonInvalidArgumentField)
		small := servertest.Refused(t, rawCall(n, "AppendEvents", emptyEvents("run", 1001)), contract.ReasonInvalidArgumentField)
		servertest.WantEqual(t, "the guard's words", r.Message, strings.Replace(small.Message, "1001", "500000", 1))
		for method, wire := range map[string][]byte{"CreateRun": bomb, "BatchAppend": wireField(1, bomb)} {
			servertest.Refused(t, rawCall(n, method, wire), contract.ReasonInvalidArgumentField)
		}
		servertest.Refused(t, rawCall(n, "BatchAppend", bytes.Repeat(wireField(1, nil), 500_000)), contract.ReasonInvalidArgumentField)

		stream, err := n.Events.AppendStream(n.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, events := range []int{1, 1001, 40_000, 1} {
			req := &runlogv1.AppendEventsRequest{RunId: "run", RequestId: fmt.Sprint("r", i), Events: servertest.Steps(fmt.Sprint(i), events)}
			if events > 1000 {
				req.Events = make([]*runlogv1.EventWrite, events)
				for i := range req.Events {
					req.Events[i] = &runlogv1.EventWrite{}
				}
			}
			if err := stream.Send(req); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []codes.Code{codes.OK, codes.InvalidArgument, codes.InvalidArgument, codes.OK} {
			resp, err := stream.Recv()
			if err != nil || resp.RequestId != fmt.Sprint("r", i) || codes.Code(resp.GetStatus().GetCode()) != want {
				t.Fatalf("answer %d: %v, %v", i, resp, err)
			}
		}
		servertest.WantEqual(t, "stored", len(n.List("run")), 3)
	})
}

// TestBatchLimits: a batch has room for ten full requests.
func TestBatchLimits(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		batch := func(requests, events int) error {
			req := &runlogv1.BatchAppendRequest{}
			for i := range requests {
				req.Requests = append(req.Requests, &runlogv1.AppendEventsRequest{RunId: fmt.Sprint("run-", i), Events: servertest.Steps("s", events)})
			}
			resp, err := n.Events.BatchAppend(n.Context(), req)
			for _, o := range resp.GetOutcomes() {
				if o.GetStatus().GetCode() != 0 {
					return status.FromProto(o.Status).Err()
				}
			}
			return err
		}
		if err := errors.Join(batch(10, 1000), batch(1000, 10)); err != nil {
			t.Error(err)
		}
		servertest.Refused(t, batch(11, 1000), contract.ReasonInvalidArgumentField)
		servertest.Refused(t, batch(1001, 1), contract.ReasonInvalidArgumentField)
		servertest.Refused(t, batch(0, 0), contract.ReasonInvalidArgumentField)
	})
}

// TestUndecodableOverGRPCENV3: bytes that do not decode are an invalid argument.
func TestUndecodableOverGRPCENV3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		r := servertest.Refused(t, rawCall(n, "AppendEvents", append(wireField(2, nil), wireField(2, wireField(9, []byte("a\xff")))...)), contract.ReasonInvalidArgumentField)
		servertest.WantEqual(t, "the field", r.Fields["events[1].stepId"], "is not valid UTF-8: encode all text as UTF-8")
		for _, wire := range []string{"hello", "\x12\x05\x01", "\x0b", "\x00"} {
			for _, method := range []string{"AppendEvents", "BatchAppend", "CreateRun", "ListEvents"} {
				servertest.Refused(t, rawCall(n, method, []byte(wire)), contract.ReasonInvalidArgumentField)
			}
			stream, err := n.Conn.NewStream(n.Context(), &grpc.StreamDesc{ServerStreams: true}, runlogv1.EventService_ReadEvents_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			var answer []byte
			if err := errors.Join(stream.SendMsg([]byte(wire)), stream.CloseSend()); err != nil {
				t.Fatal(err)
			}
			servertest.Refused(t, stream.RecvMsg(&answer), contract.ReasonInvalidArgumentField)
		}
		if got := n.Metric("runlog_rpc_seconds_count"); got < 16 {
			t.Errorf("refused calls are not measured: %v", got)
		}
	})
}

// TestOverlongRunIDs: an error does not repeat the long value that caused it.
func TestOverlongRunIDs(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		long := strings.Repeat("x", 100_000)
		_, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: long})
		r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		if len(r.Message) > 200 {
			t.Errorf("%d bytes of message", len(r.Message))
		}
		_, err = n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: long})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		_, err = n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: long, EngineRunRef: "r"})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		_, err = n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: "run", Types: make([]string, 101)})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
	})
}
