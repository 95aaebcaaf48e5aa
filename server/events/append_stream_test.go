package events_test

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
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestAppendStreamAPP8: with many requests in flight, answers come in their order, each with the
// rules of a single append. A refusal concerns its request only.
func TestAppendStreamAPP8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		stream, err := n.Events.AppendStream(n.Context())
		if err != nil {
			t.Fatal(err)
		}
		const requests = 3000
		sent := make(chan error, 1)
		conflict := uint64(1 << 40)
		go func() {
			for i := range requests {
				req := &runlogv1.AppendEventsRequest{RunId: fmt.Sprint("run-", i%3), RequestId: fmt.Sprint("r", i), Events: servertest.Steps(fmt.Sprint(i, "-"), 2)}
				switch i % 100 {
				case 7:
					req.Events[1] = servertest.NewEvent("StepStarted") // invalid
				case 8:
					req.ExpectedLastSeq = &conflict
				case 9:
					// Again what the run got before.
					req.Events = servertest.Steps(fmt.Sprint(i-3, "-"), 2)
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
			servertest.WantEqual(t, "requestId", resp.RequestId, fmt.Sprint("r", i))
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
				servertest.WantResults(t, "duplicates", resp.Results, "dd")
			default:
				servertest.WantResults(t, fmt.Sprint("request ", i), resp.Results, "nn")
				last[run] += 2
				servertest.WantEqual(t, "lastSeq: requests of a stream are applied in order", resp.LastSeq, last[run])
			}
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("end of the stream: %v", err)
		}
		if err := <-sent; err != nil {
			t.Errorf("send: %v", err)
		}
		servertest.WantEqual(t, "lastSeq of a run", n.Snapshot("run-0").LastEventSeq, last["run-0"])
	})
}

// TestAppendStreamOfASilentReader: flow control stops a producer that does not read its answers. It
// slows no other producer down, and its events are stored once it reads.
func TestAppendStreamOfASilentReader(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stream, err := runlogv1.NewEventServiceClient(n.DialWith()).AppendStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "silent", Events: servertest.Steps(fmt.Sprint(i), 1)}); err != nil {
				t.Fatal(err)
			}
		}
		n.Append("other", servertest.NewEvent("RunStarted"))
		for i := range 100 {
			resp, err := stream.Recv()
			if err != nil || resp.LastSeq != uint64(i+1) {
				t.Fatalf("answer %d: %v, %v", i, resp, err)
			}
		}
		// A broken stream leaves complete requests behind (APP-3).
		for i := range 50 {
			if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "broken", Events: servertest.Steps(fmt.Sprint(i, "-"), 5)}); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		bubble.Until(t, "the stream has ended", func() bool { return n.Metric("runlog_rpc_streams") == 0 })
		n.Append("broken", servertest.NewEvent("RunStarted"))
		if stored := len(n.List("broken")) - 1; stored%5 != 0 {
			t.Errorf("%d events of requests of 5", stored)
		}
	})
}

// TestAppendStreamAtTheEndOfTheNode: every request is answered, or the stream's error says that it
// was not stored.
func TestAppendStreamAtTheEndOfTheNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		stream, err := n.Events.AppendStream(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("a", 1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := n.Server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took >= rpc.DrainTimeout {
			t.Errorf("Close took %v: it waited for an idle stream", took)
		}
		_, err = stream.Recv()
		servertest.Refused(t, err, contract.ReasonShuttingDown)
	})
}
