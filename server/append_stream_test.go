package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/testbed/bubble"
)

// TestAppendStreamAPP8: with many requests in flight, answers come in their order, each with the
// rules of a single append. A refusal concerns its request only.
func TestAppendStreamAPP8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		stream, err := n.events.AppendStream(n.context())
		if err != nil {
			t.Fatal(err)
		}
		const requests = 3000
		sent := make(chan error, 1)
		conflict := uint64(1 << 40)
		go func() {
			for i := range requests {
				req := &runlogv1.AppendEventsRequest{RunId: fmt.Sprint("run-", i%3), RequestId: fmt.Sprint("r", i), Events: steps(fmt.Sprint(i, "-"), 2)}
				switch i % 100 {
				case 7:
					req.Events[1] = newEvent("StepStarted") // invalid
				case 8:
					req.ExpectedLastSeq = &conflict
				case 9:
					req.Events = steps(fmt.Sprint(i-3, "-"), 2) // again what the run got before
				}
				if err := stream.Send(req); err != nil {
					sent <- err
					return
				}
			}
			sent <- stream.CloseSend()
		}()
		last := map[string]uint64{}
		for i := range requests {
			resp, err := stream.Recv()
			if err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
			wantEqual(t, "requestId", resp.RequestId, fmt.Sprint("r", i))
			run := fmt.Sprint("run-", i%3)
			switch i % 100 {
			case 7, 8:
				want := codes.InvalidArgument
				if i%100 == 8 {
					want = codes.Aborted
				}
				if codes.Code(resp.GetStatus().GetCode()) != want || len(resp.Results) > 0 || len(resp.Status.Details) == 0 {
					t.Fatalf("answer %d: %v, want %v", i, resp, want)
				}
			case 9:
				wantResults(t, "duplicates", resp.Results, "dd")
			default:
				wantResults(t, fmt.Sprint("request ", i), resp.Results, "nn")
				last[run] += 2
				wantEqual(t, "lastSeq: requests of a stream are applied in order", resp.LastSeq, last[run])
			}
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("end of the stream: %v", err)
		}
		if err := <-sent; err != nil {
			t.Errorf("send: %v", err)
		}
		wantEqual(t, "lastSeq of a run", n.snapshot("run-0").LastEventSeq, last["run-0"])
	})
}

// TestAppendStreamOfASilentReader: flow control stops a producer that does not read its answers. It
// slows no other producer down, and its events are stored once it reads.
func TestAppendStreamOfASilentReader(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stream, err := runlogv1.NewEventServiceClient(n.dialWith()).AppendStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "silent", Events: steps(fmt.Sprint(i), 1)}); err != nil {
				t.Fatal(err)
			}
		}
		n.append("other", newEvent("RunStarted"))
		for i := range 100 {
			resp, err := stream.Recv()
			if err != nil || resp.LastSeq != uint64(i+1) {
				t.Fatalf("answer %d: %v, %v", i, resp, err)
			}
		}
		// A broken stream leaves complete requests behind (APP-3).
		for i := range 50 {
			if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "broken", Events: steps(fmt.Sprint(i, "-"), 5)}); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		bubble.Until(t, "the stream has ended", func() bool { return n.metric("runlog_rpc_streams") == 0 })
		n.append("broken", newEvent("RunStarted"))
		if stored := len(n.list("broken")) - 1; stored%5 != 0 {
			t.Errorf("%d events of requests of 5", stored)
		}
	})
}

// TestAppendStreamAtTheEndOfTheNode: every request is answered, or the stream's error says that it
// was not stored.
func TestAppendStreamAtTheEndOfTheNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		stream, err := n.events.AppendStream(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "run", Events: steps("a", 1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := n.server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took >= rpc.DrainTimeout {
			t.Errorf("Close took %v: it waited for an idle stream", took)
		}
		_, err = stream.Recv()
		refused(t, err, contract.ReasonShuttingDown)
	})
}
