package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/client"
	"runlog/client/internal/fifo"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// sendIDs bounds the ids of one message, and gather is how long outcomes wait for others.
	sendIDs = 512
	gather  = 2 * time.Millisecond
	// drain is how long the end of a consumer waits for the server to take the last outcomes.
	drain = 2 * time.Second
	// confirm is how long the end of a consumer waits for the server to say that no more deliveries
	// come. One of an earlier version never says it.
	confirm = 250 * time.Millisecond
)

// outcome is how a delivery was settled. Without an id it only gives a credit back.
type outcome struct {
	id     string
	ack    bool
	unused bool          // the caller has not got it
	delay  time.Duration // of a nack; negative: as the Retry of the subscription says
}

// consuming is a consumer over streams, of which at most one is open.
//
//	take ──► queue ──► next ──► the caller
//	send ◄── outcomes ◄──────── settle
type consuming struct {
	opts    *Options
	cancel  context.CancelFunc // of the streams
	ended   chan struct{}      // closed when no stream follows
	senders sync.WaitGroup     // one for the stream that is open
	// Each has room for one: something to send, and something for next.
	toSend, toTake chan struct{}

	mu struct {
		sync.Mutex
		queue    fifo.Queue[*Delivery]
		outcomes fifo.Queue[outcome]
		held     int    // deliveries that are not settled, those in queue too
		credits  uint32 // that the stream was not told of
		taken    uint64 // deliveries, over all streams
		granted  uint64 // taken before the stream, and the credits that it was told of
		open     bool
		leaving  bool
		asked    bool // the stream was told that the consumer leaves
		last     bool // no more deliveries come
		over     bool
		err      error // why it is over
	}
}

// begin starts to consume. The caller calls leave. The streams do not end with ctx: outcomes of
// deliveries that are being handled then are still sent.
func begin(ctx context.Context, c *client.Client, opts *Options) *consuming {
	x := &consuming{opts: opts, ended: make(chan struct{}), toSend: make(chan struct{}, 1), toTake: make(chan struct{}, 1)}
	ctx, x.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(x.ended)
		err := c.Consume(ctx, x.begun, x.take, x.again)
		x.mu.Lock()
		if x.mu.over = true; x.mu.err == nil {
			x.mu.err = err
		}
		x.mu.Unlock()
		nudge(x.toTake)
	}()
	return x
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// begun begins a stream. An error of Send is one of the stream too, and ends it.
func (x *consuming) begun(stream client.ConsumeStream) {
	x.mu.Lock()
	x.mu.open, x.mu.granted = true, x.mu.taken
	x.mu.credits = uint32(max(0, x.opts.Credits-x.mu.held-x.mu.outcomes.Len()))
	x.mu.asked, x.mu.last = false, false
	credits := x.grantLocked()
	x.mu.Unlock()
	_ = stream.Send(&runlogv1.ConsumeRequest{Credits: credits, Kind: &runlogv1.ConsumeRequest_Open{Open: &runlogv1.OpenConsume{
		SubscriptionId: x.opts.Subscription, TenantId: x.opts.Tenant, PayloadForm: x.opts.PayloadForm,
	}}})
	nudge(x.toSend)
	x.senders.Go(func() { x.send(stream) })
}

// grantLocked returns the credits to tell the stream of: none after Options.Max of them, and none
// for a consumer that leaves.
func (x *consuming) grantLocked() uint32 {
	n := x.mu.credits
	if most := x.opts.Max; most > 0 {
		n = uint32(min(uint64(n), most-min(most, x.mu.granted)))
	}
	if x.mu.leaving {
		return 0
	}
	x.mu.credits, x.mu.granted = 0, x.mu.granted+uint64(n)
	return n
}

// again reports whether another stream follows the one that has ended.
func (x *consuming) again() bool {
	x.senders.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.open = false
	return !x.mu.leaving
}

// errTooMany ends a consumer. Its queue must not grow without a bound.
var errTooMany = errors.New("consumer: the server breaks the protocol: it sends more deliveries than it has credits for")

// take takes an answer.
func (x *consuming) take(res *runlogv1.ConsumeResponse) {
	if len(res.GetDeliveries()) == 0 {
		x.confirmed()
		return
	}
	x.mu.Lock()
	if x.mu.taken+uint64(len(res.Deliveries)) > x.mu.granted {
		x.mu.err = errTooMany
		x.mu.Unlock()
		x.cancel()
		return
	}
	leaving := x.mu.leaving
	for _, d := range res.GetDeliveries() {
		x.mu.held++
		x.mu.taken++
		x.mu.queue.Push(&Delivery{EventRecord: d.GetEvent(), ID: d.GetDeliveryId(), Attempt: d.GetAttempt(), of: x})
	}
	x.mu.Unlock()
	if leaving {
		x.release()
	}
	nudge(x.toTake)
}

// confirmed takes an answer without deliveries. The first one after the consumer has said that it
// leaves tells that no others come.
func (x *consuming) confirmed() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.asked {
		x.mu.last = true
		nudge(x.toSend)
	}
}

// release gives back what the caller has not taken from the queue.
func (x *consuming) release() {
	for {
		x.mu.Lock()
		if x.mu.queue.Len() == 0 {
			x.mu.Unlock()
			return
		}
		d := x.mu.queue.Pop()
		x.mu.Unlock()
		d.release()
	}
}

// next returns the next delivery.
func (x *consuming) next(ctx context.Context) (*Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if d, err := x.first(); d != nil || err != nil {
			return d, err
		}
		select {
		case <-x.toTake:
		case <-ctx.Done():
		}
	}
}

// first returns the first delivery of the queue, or nil.
func (x *consuming) first() (*Delivery, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.over || x.mu.queue.Len() == 0 {
		return nil, x.mu.err
	}
	return x.mu.queue.Pop(), nil
}

func (x *consuming) settle(o outcome) {
	x.mu.Lock()
	x.mu.held--
	if o.id != "" {
		x.mu.outcomes.Push(o)
	} else {
		x.mu.credits++
	}
	x.mu.Unlock()
	nudge(x.toSend)
}

// send sends outcomes and credits until the stream ends, or the consumer leaves.
func (x *consuming) send(stream client.ConsumeStream) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-x.toSend:
		case <-stream.Context().Done():
			return
		}
		for req := x.message(); req != nil; req = x.message() {
			if stream.Send(req) != nil {
				return // The server delivers the events again.
			}
		}
		if x.left() {
			_ = stream.CloseSend() // never fails
			return
		}
		wait.Reset(gather)
		select {
		case <-wait.C:
		case <-stream.Context().Done():
			return
		}
	}
}

// left reports whether the consumer leaves and everything is sent.
func (x *consuming) left() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.leaving && x.mu.outcomes.Len() == 0 && (x.mu.last || !x.mu.asked)
}

// message returns the next message; nil: there is nothing to send. A credit goes along with its
// outcome: ahead of it, it would have the server open one delivery too many.
func (x *consuming) message() *runlogv1.ConsumeRequest {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.outcomes.Len() == 0 {
		req := &runlogv1.ConsumeRequest{Credits: x.grantLocked()}
		if x.mu.leaving && !x.mu.asked && x.mu.granted > x.mu.taken { // Others may be on their way.
			x.mu.asked = true
			req.Kind = &runlogv1.ConsumeRequest_Nack{Nack: &runlogv1.NackDeliveries{Unused: true}}
			return req
		}
		if req.Credits == 0 {
			return nil
		}
		return req
	}
	first := x.mu.outcomes.First()
	var ids []string
	for x.mu.outcomes.Len() > 0 && len(ids) < sendIDs {
		o := x.mu.outcomes.First()
		if o.ack != first.ack || o.delay != first.delay || o.unused != first.unused {
			break
		}
		ids = append(ids, x.mu.outcomes.Pop().id)
		x.mu.credits++
	}
	req := &runlogv1.ConsumeRequest{Credits: x.grantLocked()}
	if first.ack {
		req.Kind = &runlogv1.ConsumeRequest_Ack{Ack: &runlogv1.AckDeliveries{DeliveryIds: ids}}
		return req
	}
	nack := &runlogv1.NackDeliveries{DeliveryIds: ids, Unused: first.unused}
	x.mu.asked = x.mu.asked || first.unused
	if first.delay >= 0 && !first.unused {
		nack.Delay = durationpb.New(first.delay)
	}
	req.Kind = &runlogv1.ConsumeRequest_Nack{Nack: nack}
	return req
}

// leave ends the consumer once the server has taken the outcomes, but soon.
func (x *consuming) leave() {
	x.mu.Lock()
	x.mu.leaving = true
	open := x.mu.open
	x.mu.Unlock()
	x.release()
	nudge(x.toSend)
	if open {
		late, silent := time.NewTimer(drain), time.AfterFunc(confirm, x.confirmed)
		defer late.Stop()
		defer silent.Stop()
		select {
		case <-x.ended:
		case <-late.C:
		}
	}
	x.cancel()
	<-x.ended
}
