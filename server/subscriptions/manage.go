package subscriptions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/sink"
	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// CreateSubscription makes a subscription (BUS-2).
func (s *Service) CreateSubscription(ctx context.Context, req *runlogv1.CreateSubscriptionRequest) (*runlogv1.CreateSubscriptionResponse, error) {
	i := auth.From(ctx)
	name := subscription.Name{Tenant: req.Filter.GetTenantId(), ID: req.SubscriptionId}
	var bad violations
	var settings subscription.Settings
	if bad.id(name.ID); !bad.Has("subscriptionId") {
		bad.Add("subscriptionId", contract.NameFault(name.ID))
	}
	if name.Tenant == "" {
		tenant, fault := rpc.TenantOf(i)
		name.Tenant = tenant
		bad.Add("filter.tenantId", fault)
	} else {
		bad.Add("filter.tenantId", contract.TenantFault(name.Tenant))
	}
	bad.filter(req.Filter, &settings)
	bad.retry(req.Retry, &settings)
	bad.inFlight(req.MaxInFlight, &settings)
	bad.onDeadLetter(req.OnDeadLetter, &settings)
	if err := bad.delivery(req.Delivery, i, &settings); err != nil {
		return nil, err
	}
	standards(req.Delivery, &settings)
	start, err := s.startFrom("start", req.Start, &bad)
	if err != nil {
		return nil, err
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if name.Tenant != "" {
		if err := rpc.CheckProducer(ctx, "filter.tenantId", name.Tenant); err != nil {
			return nil, err
		}
	}
	op, err := subscription.Create(name, &settings, start, req.Paused)
	if err != nil {
		return nil, err
	}
	outcome, err := s.execute(ctx, op)
	if err != nil {
		return nil, refusal(err)
	}
	s.dispatcher.Refresh(ctx)
	made, err := subscription.DecodeCreate(outcome.Answers[0].Reply)
	if err != nil {
		return nil, err
	}
	row, err := s.find(name)
	if err != nil {
		return nil, err
	}
	return &runlogv1.CreateSubscriptionResponse{Subscription: s.wire(row), Idempotent: made.Existed}, nil
}

// startFrom returns where a cursor begins.
func (s *Service) startFrom(field string, from *runlogv1.StartFrom, bad *violations) (at subscription.Start, err error) {
	applied := s.node.Store().Applied()
	switch x := from.GetFrom().(type) {
	case nil, *runlogv1.StartFrom_Now:
		at.Now = true
	case *runlogv1.StartFrom_Beginning:
	case *runlogv1.StartFrom_Position:
		p, err := rpc.ParsePosition(field+".position", x.Position, s.node.Store().Incarnation())
		if err != nil {
			return at, err
		}
		if at.Position = p; p > applied.Position() {
			bad.Add(field+".position", "is beyond the end of the log: send the position of an answer of this cluster")
		}
	case *runlogv1.StartFrom_Time:
		at.Position, err = s.positionAt(field+".time", x.Time, bad)
	}
	return at, err
}

// positionAt returns the position before the first event with a stamp at or after a time. Of a time
// after the last stamp it is the end of the log.
func (s *Service) positionAt(field string, t *timestamppb.Timestamp, bad *violations) (storage.Position, error) {
	applied := s.node.Store().Applied()
	switch {
	case !t.IsValid():
		bad.Add(field, "is not a time")
		return 0, nil
	case t.AsTime().Year() < 1970:
		return 0, nil
	case t.AsTime().Year() > 2261 || t.AsTime().UnixNano() > max(applied.PersistedAt, s.opts.Clock().UnixNano()):
		bad.Add(field, "lies ahead: send now to begin with the next event")
		return 0, nil
	case t.AsTime().UnixNano() > applied.PersistedAt:
		return applied.Position(), nil
	}
	r, _, err := s.node.Store().PositionRange(t.AsTime().UnixNano(), math.MaxInt64)
	if err != nil {
		return 0, fmt.Errorf("find the position of a time: %w", err)
	}
	return max(r.First, 1) - 1, nil
}

// UpdateSubscription replaces settings (BUS-2).
func (s *Service) UpdateSubscription(ctx context.Context, req *runlogv1.UpdateSubscriptionRequest) (*runlogv1.UpdateSubscriptionResponse, error) {
	name, err := nameOf(ctx, req)
	if err != nil {
		return nil, err
	}
	for range updateTries {
		s.flush(ctx, name)
		row, err := s.find(name)
		if err != nil {
			return nil, err
		}
		settings, err := s.updated(ctx, req, row)
		if err != nil {
			return nil, err
		}
		op, err := subscription.Update(row, settings)
		if err != nil {
			return nil, err
		}
		wired, _, err := s.changeAsIs(ctx, name, op)
		if _, overtaken := errors.AsType[*subscription.VersionError](err); !overtaken {
			return &runlogv1.UpdateSubscriptionResponse{Subscription: wired}, err
		}
	}
	return nil, &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: rpc.OverloadDelay,
		Message: "the subscription changed too often meanwhile; nothing was changed"}
}

// updateTries bounds how often an update reads the subscription again: a settlement comes a few
// times a second.
const updateTries = 20

// updated returns the settings after an update.
func (s *Service) updated(ctx context.Context, req *runlogv1.UpdateSubscriptionRequest, row *subscription.Subscription) (*subscription.Settings, error) {
	settings := row.Settings
	var bad violations
	if f := req.Filter; f != nil {
		if f.TenantId != "" && f.TenantId != row.Name.Tenant {
			bad.Add("filter.tenantId", "is not the tenant of the subscription, which never changes: make another subscription")
		}
		bad.filter(f, &settings)
	}
	if req.Retry != nil {
		bad.retry(req.Retry, &settings)
	}
	if req.OnDeadLetter != runlogv1.OnDeadLetter_VALUE_UNSPECIFIED {
		bad.onDeadLetter(req.OnDeadLetter, &settings)
	}
	now, err := deliveryOf(row.Settings.Delivery)
	if err != nil {
		return nil, err
	}
	if req.Delivery != nil {
		if err := bad.delivery(req.Delivery, auth.From(ctx), &settings); err != nil {
			return nil, err
		}
		if req.Delivery.To != nil && reflect.TypeOf(req.Delivery.To) != reflect.TypeOf(now.To) {
			bad.Add("delivery", "is of another kind than the subscription has: make another subscription")
		}
		now = req.Delivery
	}
	if req.MaxInFlight != nil {
		bad.inFlight(*req.MaxInFlight, &settings)
		standards(now, &settings)
	}
	return &settings, bad.Err()
}

// DeleteSubscription removes a subscription (BUS-2).
func (s *Service) DeleteSubscription(ctx context.Context, req *runlogv1.DeleteSubscriptionRequest) (*runlogv1.DeleteSubscriptionResponse, error) {
	name, err := nameOf(ctx, req)
	if err != nil {
		return nil, err
	}
	op, err := subscription.Delete(name)
	if err != nil {
		return nil, err
	}
	if _, err := s.execute(ctx, op); err != nil {
		return nil, refusal(err)
	}
	s.dispatcher.Refresh(ctx)
	return &runlogv1.DeleteSubscriptionResponse{}, nil
}

// PauseSubscription stops deliveries (BUS-2).
func (s *Service) PauseSubscription(ctx context.Context, req *runlogv1.PauseSubscriptionRequest) (*runlogv1.PauseSubscriptionResponse, error) {
	sub, err := s.pause(ctx, req, true)
	return &runlogv1.PauseSubscriptionResponse{Subscription: sub}, err
}

// ResumeSubscription ends a pause (BUS-2).
func (s *Service) ResumeSubscription(ctx context.Context, req *runlogv1.ResumeSubscriptionRequest) (*runlogv1.ResumeSubscriptionResponse, error) {
	sub, err := s.pause(ctx, req, false)
	return &runlogv1.ResumeSubscriptionResponse{Subscription: sub}, err
}

func (s *Service) pause(ctx context.Context, req named, paused bool) (*runlogv1.Subscription, error) {
	name, err := nameOf(ctx, req)
	if err != nil {
		return nil, err
	}
	op, err := subscription.Pause(name, paused)
	if err != nil {
		return nil, err
	}
	sub, _, err := s.change(ctx, name, op)
	return sub, err
}

// SeekSubscription moves the cursor (BUS-2).
func (s *Service) SeekSubscription(ctx context.Context, req *runlogv1.SeekSubscriptionRequest) (*runlogv1.SeekSubscriptionResponse, error) {
	name, err := nameOf(ctx, req)
	if err != nil {
		return nil, err
	}
	var bad violations
	if req.To.GetFrom() == nil {
		bad.Add("to", "is required: send one of beginning, now, position and time")
	}
	start, err := s.startFrom("to", req.To, &bad)
	if err != nil {
		return nil, err
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	op, err := subscription.Seek(name, start)
	if err != nil {
		return nil, err
	}
	sub, _, err := s.change(ctx, name, op)
	return &runlogv1.SeekSubscriptionResponse{Subscription: sub}, err
}

// openSink opens the sink of a subscription for package delivery.
func (s *Service) openSink(tenant string, encoded []byte, maxInFlight int) (delivery.Sink, error) {
	if s.opts.OpenSink != nil {
		return s.opts.OpenSink(), nil
	}
	d, err := deliveryOf(encoded)
	if err != nil {
		return nil, err
	}
	return sink.Open(d, sink.Env{SecretsDir: s.opts.SinkSecretsDir, TenantID: tenant, MaxInFlight: maxInFlight, Dial: s.opts.DialSink})
}
