package consumer_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/consumer"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// flooding is a server that sends deliveries without credits.
type flooding struct {
	runlogv1.UnimplementedSubscriptionServiceServer
}

// Consume is SubscriptionService's.
func (flooding) Consume(stream grpc.BidiStreamingServer[runlogv1.ConsumeRequest, runlogv1.ConsumeResponse]) error {
	for stream.Context().Err() == nil {
		d := &runlogv1.EventDelivery{DeliveryId: "1-run", Attempt: 1, Event: &runlogv1.EventRecord{RunId: "run", RunSeq: 1}}
		if err := stream.Send(&runlogv1.ConsumeResponse{Deliveries: []*runlogv1.EventDelivery{d}}); err != nil {
			return err
		}
	}
	return nil
}

// TestFloodOfDeliveriesBUS8: a server that sends more than the consumer has credits for ends it:
// its queue stays bounded.
func TestFloodOfDeliveriesBUS8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testFloodOfDeliveriesBUS8)
}

func testFloodOfDeliveriesBUS8(t *testing.T) {
	net := network.New(1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runlogv1.RegisterSubscriptionServiceServer(server, flooding{})
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(ln) }()
	defer func() {
		server.Stop()
		if err := <-serving; err != nil {
			t.Error(err)
		}
	}()
	c, err := client.Dial(ln.Addr().String(), client.Options{DialOptions: []grpc.DialOption{grpc.WithContextDialer(net.Dialer("client"))}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	got := 0
	for _, err = range consumer.Deliveries(t.Context(), c, consumer.Options{Subscription: "s", Credits: 7}) {
		if err == nil {
			got++ // It is not settled: no credit comes back.
		}
	}
	if err == nil || !strings.Contains(err.Error(), "more deliveries than it has credits for") || got > 7 {
		t.Errorf("%d deliveries, then %v", got, err)
	}
}
