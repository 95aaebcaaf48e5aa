package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// plainConn is a connection with gRPC's own limits, as clients in other languages have them.
func plainConn(t testing.TB, n *servertest.Node, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(n.Server.Addresses().GRPC, append([]grpc.DialOption{n.Dialer(), grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// faulty makes events with many faults each.
func faulty(count int) []*runlogv1.EventWrite {
	bad := make([]*runlogv1.EventWrite, count)
	for i := range bad {
		bad[i] = &runlogv1.EventWrite{StepId: "|", RunId: "|"}
	}
	return bad
}

// TestRefusalsFitTheirCallers: however many faults a request has, the error reaches a client with
// gRPC's default limits, with its reason. Other calls on the connection are not disturbed (APP-3,
// APP-9).
func TestRefusalsFitTheirCallers(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		bubble.Run(t, "8 KiB of trailers", func(t testing.TB) {
			events := runlogv1.NewEventServiceClient(plainConn(t, n, grpc.WithMaxHeaderListSize(8<<10)))
			_, err := events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: "r", Events: faulty(100)})
			if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); r.Metadata["truncated"] != "true" || len(r.Fields) < 10 {
				t.Errorf("%d violations, metadata %v", len(r.Fields), r.Metadata)
			}
		})
		bubble.Run(t, "4 MiB of answers", func(t testing.TB) {
			req := &runlogv1.BatchAppendRequest{}
			for i := range 1000 {
				req.Requests = append(req.Requests, &runlogv1.AppendEventsRequest{RunId: fmt.Sprint("run-", i), Events: faulty(10)})
			}
			req.Requests[0].Events = servertest.Steps("s", 10)
			resp, err := runlogv1.NewEventServiceClient(plainConn(t, n)).BatchAppend(n.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			servertest.WantResults(t, "the good one", resp.Outcomes[0].Results, "nnnnnnnnnn")
			if st := resp.Outcomes[999].Status; st == nil || len(st.Details) < 2 {
				t.Errorf("the last one: %v", st)
			}
		})
		bubble.Run(t, "labels", func(t testing.TB) {
			n.Append("watched", servertest.NewEvent("Noted"))
			watch := n.HTTPStream(n.Context(), http.MethodGet, servertest.RunPath("watched", ":watch"), "", "Accept", "text/event-stream")
			defer watch.Body.Close()
			var labels strings.Builder
			for i := range 100_000 {
				fmt.Fprintf(&labels, `,"\u0001%d":"\u0001"`, i)
			}
			body := `{"run":{"runId":"r","tenantId":"t","projectId":"p","environmentId":"e","labels":{` + labels.String()[1:] + `}}}`
			n.HTTP(http.MethodPost, "/v1/runs", body, "Content-Type", "application/json").Refused(t, contract.ReasonInvalidArgumentField)
			n.Append("watched", servertest.NewEvent("Noted", servertest.Step("more")))
			seen := make([]byte, 0, 4096)
			for !strings.Contains(string(seen), `"lastEventSeq":"2"`) && !strings.Contains(string(seen), `"lastEventSeq": "2"`) {
				part := make([]byte, 1024)
				k, err := watch.Body.Read(part)
				seen = append(seen, part[:k]...)
				if err != nil {
					t.Fatalf("another caller's watch ended: %v after %q", err, seen)
				}
			}
			long := servertest.NewRun("r", func(r *runlogv1.Run) { r.Labels = map[string]string{strings.Repeat("x", 3<<20): "\x01"} })
			_, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: long})
			servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		})
		bubble.Run(t, "requestId", func(t testing.TB) {
			stream, err := runlogv1.NewEventServiceClient(plainConn(t, n)).AppendStream(n.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{strings.Repeat("x", 5<<20), "2"} {
				if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "r", RequestId: id, Events: servertest.Steps("id", 1)}); err != nil {
					t.Fatal(err)
				}
				resp, err := stream.Recv()
				if err != nil || (resp.RequestId == "2") != (id == "2") || (resp.Status == nil) != (id == "2") {
					t.Errorf("answer %.200v, error %v", resp, err)
				}
			}
		})
	})
}

// TestUnreadAnswersD12: flow control stops a producer that does not read its answers, and the
// memory of stored events is released. Once it reads, every request is answered in order (APP-8).
func TestUnreadAnswersD12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		stream, err := n.Events.AppendStream(n.Context())
		if err != nil {
			t.Fatal(err)
		}
		const requests, each = 12, 100
		pad := servertest.Payload(`{"a":"` + strings.Repeat("a", 10_000) + `"}`)
		request := func(i int) *runlogv1.AppendEventsRequest {
			events := servertest.Steps(fmt.Sprint(i, "-"), each)
			for _, e := range events {
				pad(e)
			}
			return &runlogv1.AppendEventsRequest{RunId: "r", RequestId: fmt.Sprint(i), Events: events}
		}
		sent := make(chan error, 1)
		go func() {
			for i := range requests {
				if err := stream.Send(request(i)); err != nil {
					sent <- err
					return
				}
			}
			sent <- stream.CloseSend()
		}()
		var stored uint64
		bubble.Until(t, "the node reads no further", func() bool {
			before := n.Server.Internals().Replica.Store().Applied().Events
			time.Sleep(300 * time.Millisecond)
			stored = n.Server.Internals().Replica.Store().Applied().Events
			return stored > 0 && stored == before
		})
		// A few answers are on their way to the client.
		if most := uint64(1024/(proto.Size(request(0))/(8<<10)) + 4); stored > most*each {
			t.Errorf("%d requests were taken, at most %d may be", stored/each, most)
		}
		bubble.Until(t, "what is stored is let go of", func() bool { return !n.Server.Internals().Replica.Busy() })
		for i := range requests {
			resp, err := stream.Recv()
			if err != nil || resp.Status != nil || resp.RequestId != fmt.Sprint(i) {
				t.Fatalf("answer %d: %v, error %v", i, resp.GetRequestId(), err)
			}
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ends with %v", err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// TestCreatedBefore1970: a bound at the begin of time is not taken for none.
func TestCreatedBefore1970(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("r", servertest.NewEvent("Noted"))
		n.Settle()
		resp, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{CreatedBefore: timestamppb.New(time.Unix(0, 0))})
		if err != nil || len(resp.Runs) > 0 {
			t.Errorf("runs %v, error %v", resp.GetRuns(), err)
		}
	})
}
