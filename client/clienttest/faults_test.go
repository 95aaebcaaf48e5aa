package clienttest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// way is a way to send a write, without retries.
type way struct {
	name string
	send func(context.Context, runlogv1.EventServiceClient, *runlogv1.AppendEventsRequest) ([]*runlogv1.AppendResult, error)
}

var ways = []way{
	{"AppendEvents", func(ctx context.Context, c runlogv1.EventServiceClient, r *runlogv1.AppendEventsRequest) ([]*runlogv1.AppendResult, error) {
		answer, err := c.AppendEvents(ctx, r)
		return answer.GetResults(), err
	}},
	{"AppendStream", func(ctx context.Context, c runlogv1.EventServiceClient, r *runlogv1.AppendEventsRequest) ([]*runlogv1.AppendResult, error) {
		stream, err := c.AppendStream(ctx)
		if err != nil {
			return nil, err
		}
		if err := stream.Send(r); err != nil {
			return nil, err
		}
		answer, err := stream.Recv()
		switch {
		case err != nil:
			return nil, err
		case answer.GetRequestId() != r.GetRequestId():
			return nil, fmt.Errorf("an answer to %q, want one to %q", answer.GetRequestId(), r.GetRequestId())
		case answer.GetStatus() != nil:
			return nil, status.ErrorProto(answer.GetStatus())
		}
		return answer.GetResults(), stream.CloseSend()
	}},
}

// sender appends an event of a step in one way.
type sender = func(ctx context.Context, step string) ([]*runlogv1.AppendResult, error)

// everyWay runs a test of a fault with each way to append, on a server of its own.
func everyWay(t *testing.T, test func(t *testing.T, srv *Server, c *client.Client, send sender)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, where Option) {
				srv := Start(t, where)
				raw := runlogv1.NewEventServiceClient(dial(t, srv))
				test(t, srv, srv.Client(fast), func(ctx context.Context, step string) ([]*runlogv1.AppendResult, error) {
					return w.send(ctx, raw, request("run", step))
				})
			})
		})
	}
}

// TestDuplicateRequests: the server gets every write twice, and stores it once (IDM-6).
func TestDuplicateRequests(t *testing.T) {
	everyWay(t, func(t *testing.T, srv *Server, c *client.Client, send sender) {
		for i, on := range []bool{true, false} {
			srv.DuplicateRequests(on)
			got, err := send(t.Context(), fmt.Sprint(i))
			if err != nil || len(got) != 1 || got[0].GetIdempotent() != on || got[0].GetRunSeq() != uint64(i+1) {
				t.Errorf("twice %v: %v, %v", on, got, err)
			}
		}
		wantStored(t, c, "run", "0", "1")
	})
}

// TestDelay: the answer comes late. The event is stored in time, also if the caller does not wait.
func TestDelay(t *testing.T) {
	everyWay(t, func(t *testing.T, srv *Server, c *client.Client, send sender) {
		const delay = 50 * time.Millisecond
		srv.Delay(delay)
		begun := time.Now()
		if _, err := send(t.Context(), "a"); err != nil || time.Since(begun) < delay {
			t.Errorf("%v after %v, want %v", err, time.Since(begun), delay)
		}
		srv.Delay(time.Hour)
		ctx, giveUp := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() {
			_, err := send(ctx, "b")
			answered <- err
		}()
		awaitStored(t, c, "run", 2)
		giveUp()
		if err := <-answered; status.Code(err) != codes.Canceled {
			t.Errorf("a caller that does not wait: %v", err)
		}
		wantStored(t, c, "run", "a", "b")
	})
}

// TestLoseAnswers: what the server has stored is not answered. A retry finds it (APP-10).
func TestLoseAnswers(t *testing.T) {
	everyWay(t, func(t *testing.T, srv *Server, c *client.Client, send sender) {
		srv.LoseAnswers(1)
		if got, err := send(t.Context(), "a"); status.Code(err) != codes.Unavailable {
			t.Errorf("the answer is %v, %v", got, err)
		}
		wantStored(t, c, "run", "a")
		if got, err := send(t.Context(), "a"); err != nil || !got[0].GetIdempotent() {
			t.Errorf("the retry is answered with %v, %v", got, err)
		}
		// The client retries by itself.
		srv.LoseAnswers(2)
		if got := mustAppend(t, c, "run", "b").GetResults(); !got[0].GetIdempotent() {
			t.Errorf("the client's retry is answered with %v", got)
		}
		wantStored(t, c, "run", "a", "b")
	})
}

// TestRefuse: a write is refused with each reason of the contract (section 7) and not stored.
func TestRefuse(t *testing.T) {
	everyWay(t, func(t *testing.T, srv *Server, c *client.Client, send sender) {
		for _, want := range contract.Reasons() {
			srv.Refuse(want.Reason, 1)
			_, err := send(t.Context(), "a")
			e := client.ErrorOf(status.Convert(err))
			waits := want.Code == codes.Unavailable || want.Code == codes.ResourceExhausted
			if e.Code != want.Code || e.Reason != want.Reason || (e.RetryAfter > 0) != waits {
				t.Errorf("%s: %v, to try again after %v", want.Reason, err, e.RetryAfter)
			}
		}
		wantStored(t, c, "run")
		srv.Refuse(contract.ReasonNoLeader, 2)
		mustAppend(t, c, "run", "a")
		wantStored(t, c, "run", "a")
	})
}

// TestStreamFaults: the answers of one stream keep their order, whatever happens to its messages
// (APP-8).
func TestStreamFaults(t *testing.T) {
	everywhere(t, testStreamFaults)
}

func testStreamFaults(t *testing.T, where Option) {
	srv := Start(t, where)
	c := srv.Client(client.Options{})
	stream, err := runlogv1.NewEventServiceClient(dial(t, srv)).AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const messages, delay = 200, 200 * time.Millisecond
	srv.Refuse(contract.ReasonOverloaded, 3)
	srv.DuplicateRequests(true)
	srv.Delay(delay)
	begun := time.Now()
	var want []string
	for i := range messages {
		r := request("run", fmt.Sprint(i))
		r.RequestId = fmt.Sprint(i)
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		if i >= 3 {
			want = append(want, r.RequestId)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetRequestId() != fmt.Sprint(i) || (answer.GetStatus() != nil) != (i < 3) {
			t.Fatalf("answer %d is %v", i, answer)
		}
	}
	if took := time.Since(begun); inFakeTime(srv) && took > messages*delay/2 {
		t.Errorf("%d answers took %v: each has waited for the one before", messages, took)
	}
	if got := stored(t, c, "run"); !slices.Equal(got, want) {
		t.Errorf("stored are %q", got)
	}
}

// TestCreateRun: CreateRun is a write with faults too.
func TestCreateRun(t *testing.T) {
	everywhere(t, func(t *testing.T, where Option) {
		srv := Start(t, where)
		create := &runlogv1.CreateRunRequest{Run: &runlogv1.Run{RunId: "run", TenantId: "acme", ProjectId: "shop", EnvironmentId: "test",
			PlanRef: &runlogv1.PlanRef{PlanId: "nightly", PlanVersion: "1"}}}
		srv.DuplicateRequests(true)
		answer, err := runlogv1.NewRunServiceClient(dial(t, srv)).CreateRun(t.Context(), create)
		if err != nil || answer.GetCreated() {
			t.Errorf("the second of two: %v, %v", answer, err)
		}
	})
}
