package bus

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	wire "runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

// settleTime is enough for calls whose client has left: they have had their effect by then, or
// never will have.
const settleTime = 10 * time.Second

// operate does what an operator does, until the context ends.
func (c *client) operate() {
	for c.pause(20 * c.opts.Think); c.ctx.Err() == nil; c.pause(20 * c.opts.Think) {
		switch n := c.rng.IntN(10); {
		case n < 5:
			c.handleLetters()
		case n < 7:
			c.halt()
		case n < 9 || !c.deletes:
			c.seek()
		default:
			c.remake()
		}
	}
}

// insist makes a call until it is answered, with success or a reason that ends it.
func (c *client) insist(do func(context.Context) error, enough ...contract.Reason) bool {
	for ; c.ctx.Err() == nil; c.pause(2 * c.opts.Think) {
		ctx, cancel := c.calling()
		err := do(ctx)
		cancel()
		if err == nil {
			return true
		}
		reason := wire.ErrorOf(status.Convert(err)).Reason
		for _, one := range enough {
			if reason == one {
				return true
			}
		}
	}
	return false
}

func startAt(from int64) *runlogv1.StartFrom {
	if from == 0 {
		return &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}}
	}
	return &runlogv1.StartFrom{From: &runlogv1.StartFrom_Time{Time: timestamppb.New(time.Unix(0, from))}}
}

// create makes the subscription. If it is there, that changes nothing.
func (c *client) create() {
	req := &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: c.Name, Filter: &runlogv1.SubscriptionFilter{TenantId: Tenant, Types: Types()}, Start: startAt(c.from),
		Retry:       &runlogv1.Retry{Initial: durationpb.New(50 * time.Millisecond), Max: durationpb.New(retryMost), MaxAttempts: maxAttempts},
		MaxInFlight: maxInFlight, OnDeadLetter: runlogv1.OnDeadLetter_CONTINUE,
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{AckTimeout: durationpb.New(ackTimeout)}}},
	}
	if c.HoldRun {
		req.OnDeadLetter = runlogv1.OnDeadLetter_HOLD_RUN
	}
	if c.sink {
		req.Delivery = &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{Url: sinkURL, AllowPrivate: true}}}
	}
	c.insist(func(ctx context.Context) error {
		t := c.opts.Recorder.CallAct(history.Act{Kind: history.Reset, Subscription: c.Name, From: c.from})
		resp, err := c.node().CreateSubscription(ctx, req)
		switch {
		case err == nil && resp.GetIdempotent():
			c.opts.Recorder.VoidAct(t)
		case err == nil:
			c.opts.Recorder.ReturnAct(t, false)
		}
		return err
	})
}

// remake deletes the subscription, and makes it again from an event on that was seen.
func (c *client) remake() {
	tries := 0
	c.insist(func(ctx context.Context) error {
		tries++
		_, err := c.node().DeleteSubscription(ctx, &runlogv1.DeleteSubscriptionRequest{SubscriptionId: c.Name, TenantId: Tenant})
		return err
	}, contract.ReasonSubscriptionNotFound)
	if tries > 1 { // The one that is made next must not be hit.
		select {
		case <-time.After(settleTime):
		case <-c.ctx.Done():
		}
	}
	c.from = c.somewhere()
	c.create()
}

// somewhere draws where a cursor goes: the beginning, or an event that was delivered.
func (c *client) somewhere() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) == 0 || c.rng.IntN(3) == 0 {
		return 0
	}
	return c.seen[c.rng.IntN(len(c.seen))]
}

func (c *client) seek() {
	from := c.somewhere()
	c.insist(func(ctx context.Context) error {
		t := c.opts.Recorder.CallAct(history.Act{Kind: history.Reset, Subscription: c.Name, From: from})
		_, err := c.node().SeekSubscription(ctx, &runlogv1.SeekSubscriptionRequest{SubscriptionId: c.Name, TenantId: Tenant, To: startAt(from)})
		if err == nil {
			c.opts.Recorder.ReturnAct(t, false)
		}
		return err
	}, contract.ReasonSubscriptionNotFound)
}

// halt pauses the subscription for a while.
func (c *client) halt() {
	c.insist(func(ctx context.Context) error {
		_, err := c.node().PauseSubscription(ctx, &runlogv1.PauseSubscriptionRequest{SubscriptionId: c.Name, TenantId: Tenant})
		return err
	}, contract.ReasonSubscriptionNotFound)
	c.pause(2 * time.Second)
	c.resume()
}

func (c *client) resume() {
	c.insist(func(ctx context.Context) error {
		_, err := c.node().ResumeSubscription(ctx, &runlogv1.ResumeSubscriptionRequest{SubscriptionId: c.Name, TenantId: Tenant})
		return err
	}, contract.ReasonSubscriptionNotFound)
}

// handleLetters redrives some dead letters, or discards a few of them.
func (c *client) handleLetters() {
	ids, _, ok := c.letters()
	if !ok || len(ids) == 0 {
		return
	}
	n := c.rng.IntN(len(ids))
	if c.rng.IntN(4) == 0 {
		ids = ids[n:min(len(ids), n+2)]
		t := c.act(history.Discarded, placesOf(ids)...)
		ctx, cancel := c.calling()
		defer cancel()
		if _, err := c.node().DiscardDeadLetters(ctx, &runlogv1.DiscardDeadLettersRequest{
			SubscriptionId: c.Name, TenantId: Tenant, Which: &runlogv1.DeadLetters{DeliveryIds: ids}, Reason: "simulated",
		}); err == nil {
			c.opts.Recorder.ReturnAct(t, false)
		}
		return
	}
	c.redrive(ids[n:])
}

func (c *client) redrive(ids []string) {
	t := c.act(history.Redriven, placesOf(ids)...)
	ctx, cancel := c.calling()
	defer cancel()
	if _, err := c.node().RedriveDeadLetters(ctx, &runlogv1.RedriveDeadLettersRequest{
		SubscriptionId: c.Name, TenantId: Tenant, Which: &runlogv1.DeadLetters{DeliveryIds: ids},
	}); err == nil {
		c.opts.Recorder.ReturnAct(t, false)
	}
}

// letters lists all dead letters. There are fewer than a page has.
func (c *client) letters() (ids []string, redriving int, ok bool) {
	ctx, cancel := c.calling()
	defer cancel()
	began := c.opts.Recorder.Now()
	resp, err := c.node().ListDeadLetters(ctx, &runlogv1.ListDeadLettersRequest{SubscriptionId: c.Name, TenantId: Tenant, PageSize: 1000})
	if err != nil || resp.GetNextPageToken() != "" {
		return nil, 0, false
	}
	for _, l := range resp.GetDeadLetters() {
		ids = append(ids, l.GetDeliveryId())
		if l.GetRedriving() {
			redriving++
		}
	}
	c.opts.Recorder.Act(history.Act{Kind: history.Letters, Subscription: c.Name, Places: placesOf(ids)}, began)
	return ids, redriving, true
}

// Drain has everything delivered that is due, and lists what is parked. Run must have ended, and
// all faults.
func (b *Bus) Drain(ctx context.Context) error {
	b.calm.Store(true)
	for i, k := range b.kinds {
		c := b.client(ctx, k, uint64(5900+i))
		c.create() // A call that was delayed may have deleted it.
		c.resume()
		for !c.empty() {
			if ctx.Err() != nil {
				c = b.client(context.WithoutCancel(ctx), k, 0)
				letters, redriving, listed := c.letters()
				return fmt.Errorf("bus: %s is not delivered to its end: %v; letters %q, %d redriving, listed: %t", k.Name, c.status(c.ctx), letters, redriving, listed)
			}
			if k.sink {
				c.pause(retryMost)
				continue
			}
			for c.pullOnce(maxInFlight, retryMost) > 0 {
				continue
			}
		}
	}
	return nil
}

func (c *client) status(ctx context.Context) *runlogv1.Subscription {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Patience)
	defer cancel()
	resp, err := c.node().GetSubscription(ctx, &runlogv1.GetSubscriptionRequest{SubscriptionId: c.Name, TenantId: Tenant})
	if err != nil {
		return nil
	}
	return resp.GetSubscription()
}

// empty reports whether nothing is due. Dead letters that hold runs, or were redriven, are.
func (c *client) empty() bool {
	s := c.status(c.ctx)
	if lag := s.GetLag(); s == nil || lag.GetEvents() > 0 || lag.GetInFlight() > 0 || lag.GetRetrying() > 0 {
		if s.GetDeadLetters() == 0 || !c.HoldRun { // Others hold runs.
			return false
		}
	}
	ids, redriving, ok := c.letters()
	if !ok || redriving > 0 || uint64(len(ids)) != s.GetDeadLetters() {
		return false
	}
	if c.HoldRun && len(ids) > 0 {
		c.redrive(ids)
		return false
	}
	return true
}
