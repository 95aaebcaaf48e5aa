package subscriptions

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage/machine/subscription"
)

const (
	standardPage = 100
	largestPage  = 1000
)

// GetSubscription returns a subscription with its lag (BUS-9).
func (s *Service) GetSubscription(ctx context.Context, req *runlogv1.GetSubscriptionRequest) (*runlogv1.GetSubscriptionResponse, error) {
	name, err := nameOf(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	row, err := s.find(name)
	if err != nil {
		return nil, err
	}
	return &runlogv1.GetSubscriptionResponse{Subscription: s.wire(row)}, nil
}

// ListSubscriptions pages through subscriptions (BUS-2).
func (s *Service) ListSubscriptions(ctx context.Context, req *runlogv1.ListSubscriptionsRequest) (*runlogv1.ListSubscriptionsResponse, error) {
	size, err := rpc.PageSize(req.PageSize, standardPage, largestPage)
	if err != nil {
		return nil, err
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	tokens := s.tokens("list of subscriptions", req.TenantId)
	var behind subscription.Name
	if req.PageToken != "" {
		body, ok := tokens.OpenAs(rpc.TokenSubscriptions, req.PageToken)
		tenant, id, cut := strings.Cut(string(body), "\x00")
		if !ok || !cut {
			return nil, tokens.Refused("pageToken", req.PageToken, badToken("this list of subscriptions"))
		}
		behind = subscription.Name{Tenant: tenant, ID: id}
	}
	list, more, err := s.list(ctx, req.TenantId, behind, size)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.ListSubscriptionsResponse{}
	for _, row := range list {
		resp.Subscriptions = append(resp.Subscriptions, s.wire(row))
	}
	if fit := wire.Fitting(resp.Subscriptions); fit < len(list) {
		list, resp.Subscriptions, more = list[:fit], resp.Subscriptions[:fit], true
	}
	if more {
		n := list[len(list)-1].Name
		resp.NextPageToken = tokens.Seal(rpc.TokenSubscriptions, []byte(n.Tenant+"\x00"+n.ID))
	}
	return resp, nil
}

// list returns the next subscriptions of the tenants that the caller sees.
func (s *Service) list(ctx context.Context, asked string, behind subscription.Name, size int) (list []*subscription.Subscription, more bool, err error) {
	tenant, among := rpc.ShownTenants(ctx, asked)
	if len(among) == 0 {
		return subscription.List(s.node.Store(), tenant, behind, size)
	}
	for i, name := range among { // They are sorted.
		if name < behind.Tenant || name == "" {
			continue
		}
		page, rest, err := subscription.List(s.node.Store(), name, behind, size-len(list))
		if err != nil {
			return nil, false, err
		}
		if list = append(list, page...); rest || len(list) == size && i+1 < len(among) {
			return list, true, nil
		}
	}
	return list, false, nil
}

// badToken refuses a page token.
func badToken(of string) error {
	return rpc.Invalid("pageToken", "is not a token of "+of+": pass on nextPageToken as you got it, with the same filter"+rpc.StartAgain)
}

// wire converts a subscription, with how far its deliveries are.
func (s *Service) wire(row *subscription.Subscription) *runlogv1.Subscription {
	c := &row.Settings
	m := &runlogv1.Subscription{
		SubscriptionId: row.Name.ID,
		Filter: &runlogv1.SubscriptionFilter{
			TenantId: row.Name.Tenant, ProjectId: c.ProjectID, EnvironmentId: c.EnvironmentID, Types: c.Types, PlanId: c.PlanID, Labels: c.Labels,
		},
		Retry: &runlogv1.Retry{
			Initial: durationpb.New(c.RetryInitial), Max: durationpb.New(c.RetryMax), MaxAttempts: c.MaxAttempts,
		},
		MaxInFlight: c.MaxInFlight, OnDeadLetter: runlogv1.OnDeadLetter_Value(c.OnDeadLetter), Paused: row.Paused,
		CreatedAt: wire.Timestamp(row.CreatedAt), Position: rpc.FormatPosition(s.node.Store().Incarnation(), row.Position), DeadLetters: row.DeadLetters,
		AcknowledgedTotal: row.Acknowledged, Lag: &runlogv1.SubscriptionLag{},
		HeldReason: rpc.HeldReason(s.node.Store()),
	}
	if d, err := deliveryOf(c.Delivery); err == nil {
		m.Delivery = d
	}
	st, ok := s.dispatcher.Status(row.Name)
	// Without a status, nothing behind the cursor was read.
	if applied := s.node.Store().Applied(); !ok && applied.Position() > row.Position {
		m.Lag.Events = uint64(applied.Position() - row.Position)
	}
	if ok {
		m.DeadLetters, m.HeldRuns, m.AcknowledgedTotal = st.Letters, uint64(st.Held), st.Acknowledged
		m.LastError, m.LastErrorAt = st.LastError, wire.Timestamp(st.LastErrorAt)
		m.Lag = &runlogv1.SubscriptionLag{
			Events: uint64(st.Waiting) + st.Behind, Seconds: seconds(st.OldestAt, s.opts.Clock()),
			InFlight: uint32(st.InFlight), Retrying: uint32(st.Retrying), Consumers: uint32(st.Consumers),
		}
	}
	return m
}

// seconds is the age of a stamp; 0: there is none.
func seconds(stamp int64, now time.Time) float64 {
	if stamp == 0 {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, stamp)).Seconds())
}
