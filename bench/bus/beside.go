package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

// Beside are subscriptions beside appends.
type Beside interface {
	// Result waits until the subscriptions have done what they are there for, and returns what was
	// delivered so far. After grace it is an error if they have not.
	Result(ctx context.Context, grace time.Duration) ([]report.ReadResult, error)
	// Close deletes the subscriptions.
	Close() error
}

var (
	_ Beside = (*Crowd)(nil)
	_ Beside = (*Dead)(nil)
)

// crowdCredits are the most events of one subscription that are under way.
const crowdCredits = 10_000

func nowOn() *runlogv1.StartFrom {
	return &runlogv1.StartFrom{From: &runlogv1.StartFrom_Now{Now: true}}
}

// pullOf is a pull subscription to the events of a tenant; empty: of all tenants.
func pullOf(tenant string, start *runlogv1.StartFrom) *runlogv1.CreateSubscriptionRequest {
	return &runlogv1.CreateSubscriptionRequest{
		Filter: &runlogv1.SubscriptionFilter{TenantId: tenant}, Start: start, MaxInFlight: crowdCredits,
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
	}
}

// Crowd are idle subscriptions, which no event matches, and busy ones, each with a consumer of one
// tenant's events.
type Crowd struct {
	subscriptions []target.Subscription
	busy          []*drain
	begun         time.Time
}

// OpenCrowd makes the subscriptions. The busy ones take the tenants in turn.
func OpenCrowd(ctx context.Context, b target.Bus, idle, busy int, tenants []string) (*Crowd, error) {
	c := &Crowd{}
	for i := range idle + busy {
		tenant := "tenant_bench_idle_" + strconv.Itoa(i)
		if i >= idle {
			tenant = tenants[i%len(tenants)]
		}
		if err := c.open(ctx, b, tenant, i >= idle); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	c.begun = time.Now()
	return c, nil
}

func (c *Crowd) open(ctx context.Context, b target.Bus, tenant string, busy bool) error {
	s, err := b.Deliver(ctx, pullOf(tenant, nowOn()))
	if err != nil {
		return err
	}
	c.subscriptions = append(c.subscriptions, s)
	if !busy {
		return nil
	}
	consumer, err := s.Consume(nil)
	if err == nil {
		c.busy = append(c.busy, newDrain(consumer))
	}
	return err
}

// Result waits until each busy subscription has got an event.
func (c *Crowd) Result(ctx context.Context, grace time.Duration) ([]report.ReadResult, error) {
	for _, d := range c.busy {
		if err := d.await(ctx, 1, grace); err != nil {
			return nil, err
		}
	}
	r := report.ReadResult{Name: "delivered"}
	for _, d := range c.busy {
		r.Calls += d.got.Load()
	}
	r.CallsPerSecond = report.PerSecond(r.Calls, time.Since(c.begun).Seconds())
	return []report.ReadResult{r}, nil
}

// Close ends the consumers, and deletes the subscriptions.
func (c *Crowd) Close() error {
	var errs []error
	for _, d := range c.busy {
		errs = append(errs, d.Close())
	}
	for _, s := range c.subscriptions {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Dead is a webhook whose address refuses connections.
type Dead struct{ subscription target.Subscription }

// OpenDead makes the subscription, to all events.
func OpenDead(ctx context.Context, b target.Bus) (*Dead, error) {
	// No system chooses such a port for another process by itself.
	free, err := target.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	s, err := b.Deliver(ctx, &runlogv1.CreateSubscriptionRequest{
		Filter: &runlogv1.SubscriptionFilter{}, Start: nowOn(), Delivery: webhookTo(free[0] + "/"),
	})
	if err != nil {
		return nil, err
	}
	return &Dead{s}, nil
}

// Result waits until an attempt has failed. It is an error if one has succeeded.
func (d *Dead) Result(ctx context.Context, grace time.Duration) ([]report.ReadResult, error) {
	return nil, await(ctx, grace, func() (string, error) {
		s, err := d.subscription.State(ctx)
		if err == nil && s.GetAcknowledgedTotal() > 0 {
			err = fmt.Errorf("bench: the dead sink has acknowledged %d events", s.GetAcknowledgedTotal())
		}
		if err != nil || s.GetLastError() != "" {
			return "", err
		}
		return "no delivery to the dead sink has failed", nil
	})
}

// Close deletes the subscription.
func (d *Dead) Close() error { return d.subscription.Close() }
