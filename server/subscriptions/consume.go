package subscriptions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/budget"
	"runlog/server/cluster"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/server/subscriptions/delivery"
	"runlog/storage"
	"runlog/storage/machine/subscription"
)

const (
	// maxCredits bounds the deliveries that a consumer has at a time.
	maxCredits = 10_000
	// sendEvents and sendBytes bound one answer of Consume and Pull.
	sendEvents = 512
	sendBytes  = 1 << 20
	// heartbeat is how often a Consume without deliveries says that it is alive.
	heartbeat = 15 * time.Second
)

type consumeStream = grpc.BidiStreamingServer[runlogv1.ConsumeRequest, runlogv1.ConsumeResponse]

var errStopping = &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping: consume from another node"}

// Consume passes events to a consumer, and takes its acknowledgements (BUS-8).
func (s *Service) Consume(stream consumeStream) error {
	if err := stream.SendHeader(rpc.LeaderHeader(s.node.OtherLeader())); err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return endOf(err)
	}
	if first.GetOpen() == nil {
		return rpc.Invalid("open", "is required in the first message")
	}
	if rpc.IsForwarded(stream.Context()) {
		return s.consume(stream, first)
	}
	return s.node.AtLeader(stream.Context(), func(leadership *cluster.Leadership) error {
		if leadership.Link == nil {
			return s.consume(stream, first)
		}
		return relay(stream, first, leadership)
	})
}

// endOf is the answer to a client that has ended its side.
func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// relay passes a Consume to the leader, and its answers back. Once that has begun, another leader
// means another Consume: no leader knows the credits and deliveries of the one before.
func relay(stream consumeStream, first *runlogv1.ConsumeRequest, leadership *cluster.Leadership) error {
	ctx, err := rpc.PassOn(stream.Context())
	if err != nil {
		return err
	}
	ctx, cancel := leadership.Bound(ctx)
	defer cancel()
	to, err := runlogv1.NewSubscriptionServiceClient(leadership.Link.Conn).Consume(ctx)
	if err == nil {
		_ = to.Context() // This ends gRPC's own retries.
		err = to.Send(first)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", raft.ErrNotLeader, err)
	}
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				_ = to.CloseSend() // The leader's answers end then.
				return
			}
			if to.Send(req) != nil {
				return
			}
		}
	}()
	for {
		resp, err := to.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if err = rpc.ForwardingError(ctx, false, err); errors.Is(err, raft.ErrNotLeader) {
				return leaderChanged()
			}
			return err
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// consuming is a Consume that this node answers.
type consuming struct {
	s        *Service
	stream   consumeStream
	consumer *delivery.Consumer
	form     runlogv1.PayloadForm_Form
	credits  chan uint32 // of requests; room for one
	// left is closed when the consumer has said that it leaves.
	left chan struct{}
}

func (s *Service) consume(stream consumeStream, first *runlogv1.ConsumeRequest) error {
	open := first.GetOpen()
	name, err := nameOf(stream.Context(), open)
	if err != nil {
		return err
	}
	consumer, err := s.join(stream.Context(), name)
	if err != nil {
		return refusal(err)
	}
	defer consumer.Close()
	c := &consuming{s: s, stream: stream, consumer: consumer, form: open.PayloadForm, credits: make(chan uint32, 1), left: make(chan struct{})}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	defer context.AfterFunc(s.opts.Stopping, func() { end(errStopping) })()
	c.credits <- first.Credits
	// Nothing but the end of the stream ends a Recv.
	go func() { end(c.receive()) }()
	return endOf(refusalOf(name, c.send(ctx)))
}

// join adds a consumer.
func (s *Service) join(ctx context.Context, name subscription.Name) (*delivery.Consumer, error) {
	consumer, err := s.dispatcher.Consume(ctx, name)
	switch {
	case errors.Is(err, delivery.ErrNotFound):
		return nil, notFound(name)
	case errors.Is(err, delivery.ErrNotPull):
		return nil, refused(contract.ReasonSubscriptionNotPull, fmt.Errorf("subscription %s has no consumers", name), "subscription_id", name.ID)
	}
	return consumer, err
}

// receive handles what the consumer sends, until it ends its side. The deliveries that it has then
// have failed.
func (c *consuming) receive() error {
	for {
		req, err := c.stream.Recv()
		if err != nil {
			return err
		}
		var bad violations
		switch x := req.Kind.(type) {
		case *runlogv1.ConsumeRequest_Ack:
			list, err := c.s.refs("ack.deliveryIds", x.Ack.DeliveryIds, &bad)
			if err := cmp.Or(err, bad.Err()); err != nil {
				return err
			}
			c.consumer.Ack(list)
		case *runlogv1.ConsumeRequest_Nack:
			list, err := c.s.refs("nack.deliveryIds", x.Nack.DeliveryIds, &bad)
			delay := bad.Duration("nack.delay", x.Nack.Delay, 0, longestDelay, -1)
			if err := cmp.Or(err, bad.Err()); err != nil {
				return err
			}
			if x.Nack.Unused {
				c.consumer.Unused(list)
				c.leave()
				break
			}
			c.consumer.Nack(list, delay)
		case *runlogv1.ConsumeRequest_Open:
			return rpc.Invalid("open", "is sent once, in the first message")
		}
		if req.Credits > 0 {
			c.credit(req.Credits)
		}
	}
}

// leave has send confirm that there are no more deliveries.
func (c *consuming) leave() {
	select {
	case <-c.left:
	default:
		close(c.left)
	}
}

// confirm tells a consumer that leaves that it has got all it gets, and waits for its end.
func (c *consuming) confirm(ctx context.Context) error {
	if err := c.stream.Send(&runlogv1.ConsumeResponse{}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// credit adds to the credits that send has not taken yet.
func (c *consuming) credit(n uint32) {
	select {
	case c.credits <- n:
	case before := <-c.credits:
		c.credits <- min(maxCredits, before) + min(maxCredits, n)
	}
}

// send sends deliveries as far as credits go.
func (c *consuming) send(ctx context.Context) error {
	credits := uint32(0)
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	for {
		select {
		case n := <-c.credits:
			credits = min(maxCredits, credits+min(maxCredits, n))
		default:
		}
		list, err := c.take(ctx, int(min(credits, sendEvents)), alive)
		if errors.Is(err, delivery.ErrLeft) {
			return c.confirm(ctx)
		}
		if err != nil {
			return err
		}
		if credits -= min(credits, uint32(len(list))); len(list) == 0 && credits == 0 {
			if credits, err = c.wait(ctx, alive); errors.Is(err, delivery.ErrLeft) {
				return c.confirm(ctx)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := c.pass(list); err != nil {
			return err
		}
	}
}

// wait waits for credits, or delivery.ErrLeft.
func (c *consuming) wait(ctx context.Context, alive *time.Ticker) (uint32, error) {
	for {
		select {
		case n := <-c.credits:
			return min(maxCredits, n), nil
		case <-c.left:
			return 0, delivery.ErrLeft
		case <-alive.C:
			if err := c.stream.Send(&runlogv1.ConsumeResponse{}); err != nil {
				return 0, err
			}
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// take returns the next deliveries, or delivery.ErrLeft; none: the consumer has sent credits, or
// should hear that the stream is alive.
func (c *consuming) take(ctx context.Context, n int, alive *time.Ticker) ([]delivery.Delivery, error) {
	if n == 0 {
		return nil, nil
	}
	return c.consumer.Take(ctx, n, alive.C)
}

// The fields of ConsumeResponse and EventDelivery (subscription_service.proto).
const (
	fieldDeliveries = 1
	fieldDeliveryID = 1
	fieldAttempt    = 2
	fieldEvent      = 3
)

// pass sends deliveries, in answers of at most about sendBytes.
func (c *consuming) pass(list []delivery.Delivery) error {
	size := 0
	for i := range list {
		size += len(list[i].Record.Payload)
	}
	held, err := c.s.opts.Memory.Acquire(budget.Shared, int64(size))
	if err != nil {
		c.consumer.Return(refsOf(list))
		return err
	}
	defer held.Release()
	a := answers.Get().(*answer)
	defer a.free()
	in := c.s.node.Store().Incarnation()
	for i := range list {
		if err := a.add(&list[i], in, c.form); err != nil {
			return err
		}
		if len(a.bytes) >= sendBytes {
			if err := a.send(c.stream); err != nil {
				return err
			}
		}
	}
	if len(a.bytes) == 0 && len(list) > 0 {
		return nil
	}
	return a.send(c.stream)
}

// answer is a ConsumeResponse in its wire form.
type answer struct {
	bytes     []byte
	id, event []byte // of the delivery that is being appended
}

// answers are free: a consumer that waits has none.
var answers = sync.Pool{New: func() any { return new(answer) }}

func (a *answer) free() {
	if a.bytes = a.bytes[:0]; cap(a.bytes)+cap(a.event) <= 2*sendBytes { // else of a large event
		answers.Put(a)
	}
}

// add appends a delivery.
func (a *answer) add(d *delivery.Delivery, in storage.Incarnation, form runlogv1.PayloadForm_Form) (err error) {
	a.id = appendDeliveryID(a.id[:0], in, d.Ref())
	if a.event, err = wire.AppendRecord(a.event[:0], d.Record, form); err != nil {
		return err
	}
	size := protowire.SizeTag(fieldDeliveryID) + protowire.SizeBytes(len(a.id)) +
		protowire.SizeTag(fieldAttempt) + protowire.SizeVarint(uint64(d.Attempt)) +
		protowire.SizeTag(fieldEvent) + protowire.SizeBytes(len(a.event))
	b := protowire.AppendTag(a.bytes, fieldDeliveries, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = protowire.AppendTag(b, fieldDeliveryID, protowire.BytesType)
	b = protowire.AppendBytes(b, a.id)
	b = protowire.AppendTag(b, fieldAttempt, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(d.Attempt))
	b = protowire.AppendTag(b, fieldEvent, protowire.BytesType)
	a.bytes = protowire.AppendBytes(b, a.event)
	return nil
}

// send sends the deliveries, and empties the answer. The bytes are in unknown fields, which are
// sent as they are (https://protobuf.dev/programming-guides/proto3/#unknowns).
func (a *answer) send(to consumeStream) error {
	resp := &runlogv1.ConsumeResponse{}
	resp.ProtoReflect().SetUnknown(a.bytes)
	err := to.Send(resp) // It copies the answer.
	a.bytes = a.bytes[:0]
	return err
}
