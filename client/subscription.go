package client

import (
	"cmp"
	"context"

	"google.golang.org/grpc"

	"runlog/client/internal/wire"
	runlogv1 "runlog/proto/runlog/v1"
)

// CreateSubscription makes a subscription (BUS-2). The same request again changes nothing.
func (c *Client) CreateSubscription(ctx context.Context, req *runlogv1.CreateSubscriptionRequest) (*runlogv1.CreateSubscriptionResponse, error) {
	return write(ctx, c, c.subs.CreateSubscription, req)
}

// GetSubscription returns a subscription with its lag (BUS-9).
func (c *Client) GetSubscription(ctx context.Context, req *runlogv1.GetSubscriptionRequest) (*runlogv1.GetSubscriptionResponse, error) {
	return call(ctx, c, c.subs.GetSubscription, req)
}

// ListSubscriptions returns a page of subscriptions in the order of their tenants and ids. Pages
// yields them all.
func (c *Client) ListSubscriptions(ctx context.Context, req *runlogv1.ListSubscriptionsRequest) (*runlogv1.ListSubscriptionsResponse, error) {
	return call(ctx, c, c.subs.ListSubscriptions, req)
}

// UpdateSubscription replaces the settings that are set.
func (c *Client) UpdateSubscription(ctx context.Context, req *runlogv1.UpdateSubscriptionRequest) (*runlogv1.UpdateSubscriptionResponse, error) {
	return write(ctx, c, c.subs.UpdateSubscription, req)
}

// DeleteSubscription removes a subscription. A retry may find it done: SUBSCRIPTION_NOT_FOUND.
func (c *Client) DeleteSubscription(ctx context.Context, req *runlogv1.DeleteSubscriptionRequest) (*runlogv1.DeleteSubscriptionResponse, error) {
	return write(ctx, c, c.subs.DeleteSubscription, req)
}

// PauseSubscription stops the deliveries of a subscription.
func (c *Client) PauseSubscription(ctx context.Context, req *runlogv1.PauseSubscriptionRequest) (*runlogv1.PauseSubscriptionResponse, error) {
	return write(ctx, c, c.subs.PauseSubscription, req)
}

// ResumeSubscription ends a pause.
func (c *Client) ResumeSubscription(ctx context.Context, req *runlogv1.ResumeSubscriptionRequest) (*runlogv1.ResumeSubscriptionResponse, error) {
	return write(ctx, c, c.subs.ResumeSubscription, req)
}

// SeekSubscription moves the cursor of a subscription.
func (c *Client) SeekSubscription(ctx context.Context, req *runlogv1.SeekSubscriptionRequest) (*runlogv1.SeekSubscriptionResponse, error) {
	return write(ctx, c, c.subs.SeekSubscription, req)
}

// Pull returns the next deliveries (BUS-8). Those of a lost answer come after the ackTimeout.
func (c *Client) Pull(ctx context.Context, req *runlogv1.PullRequest) (*runlogv1.PullResponse, error) {
	return write(ctx, c, c.subs.Pull, req)
}

// Ack acknowledges deliveries.
func (c *Client) Ack(ctx context.Context, req *runlogv1.AckRequest) (*runlogv1.AckResponse, error) {
	return write(ctx, c, c.subs.Ack, req)
}

// Nack refuses deliveries: they come again.
func (c *Client) Nack(ctx context.Context, req *runlogv1.NackRequest) (*runlogv1.NackResponse, error) {
	return write(ctx, c, c.subs.Nack, req)
}

// ListDeadLetters returns a page of the dead letters of a subscription (BUS-5); Pages yields them
// all.
func (c *Client) ListDeadLetters(ctx context.Context, req *runlogv1.ListDeadLettersRequest) (*runlogv1.ListDeadLettersResponse, error) {
	return call(ctx, c, c.subs.ListDeadLetters, req)
}

// RedriveDeadLetters has dead letters delivered again (BUS-5).
func (c *Client) RedriveDeadLetters(ctx context.Context, req *runlogv1.RedriveDeadLettersRequest) (*runlogv1.RedriveDeadLettersResponse, error) {
	return write(ctx, c, c.subs.RedriveDeadLetters, req)
}

// DiscardDeadLetters removes dead letters, which are never delivered (BUS-5). A retry after an
// unknown outcome may find it done.
func (c *Client) DiscardDeadLetters(ctx context.Context, req *runlogv1.DiscardDeadLettersRequest) (*runlogv1.DiscardDeadLettersResponse, error) {
	return write(ctx, c, c.subs.DiscardDeadLetters, req)
}

// ConsumeStream is a stream of Consume.
type ConsumeStream = grpc.BidiStreamingClient[runlogv1.ConsumeRequest, runlogv1.ConsumeResponse]

// Consume opens streams of the events of a subscription, one after the other, until again answers
// false, or a stream fails for good or ctx ends: then it returns the error (BUS-8). open gets each
// stream first and sends its first message, and take each answer. again is called after each end of
// a stream. A cluster that is held is tried again until it is released. Package consumer does the
// rest that a program needs.
func (c *Client) Consume(ctx context.Context, open func(ConsumeStream), take func(*runlogv1.ConsumeResponse), again func() bool) error {
	begin := func(ctx context.Context) (grpc.ServerStreamingClient[runlogv1.ConsumeResponse], error) {
		stream, err := c.subs.Consume(ctx, grpc.ForceCodecV2(wire.Codec))
		if err == nil {
			open(stream) // If it cannot send, Recv has the cause.
		}
		return stream, err
	}
	tries := retrier{client: c, releases: true, token: c.opts.token()}
	for {
		failure := receive(ctx, watchSilence, begin, func(res *runlogv1.ConsumeResponse) bool {
			tries.answered()
			take(res)
			return true
		})
		if !again() {
			return nil
		}
		if err := tries.again(ctx, cmp.Or(failure, ended(ctx))); err != nil {
			return err
		}
	}
}
