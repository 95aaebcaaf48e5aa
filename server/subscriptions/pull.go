package subscriptions

import (
	"context"
	"fmt"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/delivery"
	"runlog/storage/machine/subscription"
)

const (
	// maxPull bounds the events of one Pull, and pullBytes about their size.
	maxPull   = 1000
	pullBytes = 2 << 20
	// maxWait is the longest that Pull waits for an event.
	maxWait = time.Minute
)

// Pull returns the next deliveries (BUS-8).
func (s *Service) Pull(ctx context.Context, req *runlogv1.PullRequest) (*runlogv1.PullResponse, error) {
	name, err := nameOf(ctx, req)
	if err != nil {
		return nil, err
	}
	var bad violations
	if req.Max > maxPull {
		bad.Add("max", fmt.Sprintf("is %d: send 1 to %d, or leave it out for 1", req.Max, maxPull))
	}
	wait := bad.Duration("wait", req.Wait, 0, maxWait, 0)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	consumer, err := s.join(ctx, name)
	if err != nil {
		return nil, refusal(err)
	}
	defer consumer.Leave()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.opts.Stopping, func() { end(errStopping) })()
	list, err := consumer.Take(ctx, int(max(1, req.Max)), time.After(wait))
	if err != nil {
		return nil, refusalOf(name, err)
	}
	if err := rpc.StillAllowed(ctx); err != nil { // The call may have waited.
		consumer.Return(refsOf(list))
		return nil, err
	}
	resp, err := s.pulled(list, consumer)
	return resp, refusal(err)
}

// pulled answers with CloudEvents. What does not fit into the answer is given back.
func (s *Service) pulled(list []delivery.Delivery, consumer *delivery.Consumer) (*runlogv1.PullResponse, error) {
	size := 0
	for i := range list {
		if size += len(list[i].Record.Payload); size > pullBytes && i > 0 {
			consumer.Return(refsOf(list[i:]))
			list = list[:i]
			break
		}
	}
	held, err := s.opts.Memory.Acquire(budget.Shared, int64(size))
	if err != nil {
		consumer.Return(refsOf(list))
		return nil, err
	}
	defer held.Release()
	resp := &runlogv1.PullResponse{}
	for i := range list {
		d := &list[i]
		e := cloudevent.Event{Record: d.Record, Cluster: s.opts.Cluster, Position: rpc.FormatPosition(s.node.Store().Incarnation(), d.Record.Position)}
		resp.Deliveries = append(resp.Deliveries, &runlogv1.PulledEvent{
			DeliveryId: s.deliveryID(d.Ref()), Attempt: d.Attempt, EventJson: cloudevent.AppendStructured(nil, &e),
		})
	}
	// With their envelopes, small events may be too many (READ-8).
	if fit := wire.Fitting(resp.Deliveries); fit < len(list) {
		consumer.Return(refsOf(list[fit:]))
		resp.Deliveries = resp.Deliveries[:fit]
	}
	return resp, nil
}

func refsOf(list []delivery.Delivery) (refs []delivery.Ref) {
	for i := range list {
		refs = append(refs, list[i].Ref())
	}
	return refs
}

// Ack acknowledges deliveries (BUS-8).
func (s *Service) Ack(ctx context.Context, req *runlogv1.AckRequest) (*runlogv1.AckResponse, error) {
	name, list, err := s.deliveries(ctx, req, req.DeliveryIds, violations{})
	if err != nil {
		return nil, err
	}
	consumer, err := s.join(ctx, name)
	if err != nil {
		return nil, refusal(err)
	}
	defer consumer.Leave()
	return &runlogv1.AckResponse{Acknowledged: uint32(consumer.Ack(list))}, nil
}

// Nack refuses deliveries (BUS-8).
func (s *Service) Nack(ctx context.Context, req *runlogv1.NackRequest) (*runlogv1.NackResponse, error) {
	var bad violations
	delay := bad.Duration("delay", req.Delay, 0, longestDelay, -1)
	name, list, err := s.deliveries(ctx, req, req.DeliveryIds, bad)
	if err != nil {
		return nil, err
	}
	consumer, err := s.join(ctx, name)
	if err != nil {
		return nil, refusal(err)
	}
	defer consumer.Leave()
	return &runlogv1.NackResponse{Refused: uint32(consumer.Nack(list, delay))}, nil
}

// deliveries checks the ids of a request, and adds their faults to the others of it.
func (s *Service) deliveries(ctx context.Context, req named, ids []string, bad violations) (n subscription.Name, list []delivery.Ref, err error) {
	if len(ids) == 0 || len(ids) > maxIDs {
		bad.Add("deliveryIds", fmt.Sprintf("has %d: send 1 to %d", len(ids), maxIDs))
	} else if list, err = s.refs("deliveryIds", ids, &bad); err != nil {
		return n, nil, err
	}
	if err := bad.Err(); err != nil {
		return n, nil, err
	}
	n, err = nameOf(ctx, req)
	return n, list, err
}
