package subscriptions

import (
	"context"
	"encoding/binary"
	"fmt"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/window"
	"runlog/storage/machine/subscription"
)

// ListDeadLetters pages through the parked events of a subscription (BUS-5).
func (s *Service) ListDeadLetters(ctx context.Context, req *runlogv1.ListDeadLettersRequest) (*runlogv1.ListDeadLettersResponse, error) {
	size, err := rpc.PageSize(req.PageSize, standardPage, largestPage)
	if err != nil {
		return nil, err
	}
	name, err := nameOf(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.RunId != "" {
		if fault := contract.StoredNameFault(req.RunId); fault != "" {
			return nil, rpc.Invalid("runId", fault)
		}
	}
	if err := s.node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	tokens := s.tokens("dead letters of a subscription", name.Tenant, name.ID, req.RunId)
	var behind subscription.Place
	if req.PageToken != "" {
		body, ok := tokens.OpenAs(rpc.TokenDeadLetters, req.PageToken)
		if !ok || len(body) < 8 {
			return nil, tokens.Refused("pageToken", req.PageToken, badToken("this list of dead letters"))
		}
		behind = subscription.Place{RunID: string(body[8:]), RunSeq: binary.BigEndian.Uint64(body)}
	}
	row, err := s.find(name)
	if err != nil {
		return nil, err
	}
	list, more, err := subscription.DeadLetters(s.node.Store(), row.Number, req.RunId, behind, size)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.ListDeadLettersResponse{}
	for i := range list {
		l := &list[i]
		resp.DeadLetters = append(resp.DeadLetters, &runlogv1.DeadLetter{
			DeliveryId: delivery.Ref{Place: window.Place{RunID: l.RunID, Seq: l.RunSeq}}.String(), RunId: l.RunID, RunSeq: l.RunSeq,
			EventId: l.EventID, EventType: l.EventType, Attempts: l.Attempts, Error: l.Error,
			ParkedAt: wire.Timestamp(l.ParkedAt), Redriving: l.Redriving,
		})
	}
	if more {
		last := list[len(list)-1].Place
		resp.NextPageToken = tokens.Seal(rpc.TokenDeadLetters, append(binary.BigEndian.AppendUint64(nil, last.RunSeq), last.RunID...))
	}
	return resp, nil
}

// RedriveDeadLetters has dead letters delivered again (BUS-5).
func (s *Service) RedriveDeadLetters(ctx context.Context, req *runlogv1.RedriveDeadLettersRequest) (*runlogv1.RedriveDeadLettersResponse, error) {
	var bad violations
	which := bad.which(req.Which)
	name, err := lettersOf(ctx, req, bad)
	if err != nil {
		return nil, err
	}
	op, err := subscription.Redrive(name, which)
	if err != nil {
		return nil, err
	}
	_, outcome, err := s.change(ctx, name, op)
	if err != nil {
		return nil, err
	}
	n, err := subscription.DecodeDeadLetters(outcome.Answers[0].Reply)
	return &runlogv1.RedriveDeadLettersResponse{Redriven: uint32(n)}, err
}

// DiscardDeadLetters gives dead letters up (BUS-5). The access log has the whole request.
func (s *Service) DiscardDeadLetters(ctx context.Context, req *runlogv1.DiscardDeadLettersRequest) (*runlogv1.DiscardDeadLettersResponse, error) {
	var bad violations
	which := bad.which(req.Which)
	switch {
	case req.Reason == "":
		bad.Add("reason", "is required: say why the events need not be delivered")
	case len(req.Reason) > maxReason:
		bad.Add("reason", fmt.Sprintf("is %d bytes long: send at most %d", len(req.Reason), maxReason))
	}
	name, err := lettersOf(ctx, req, bad)
	if err != nil {
		return nil, err
	}
	op, err := subscription.Discard(name, which)
	if err != nil {
		return nil, err
	}
	_, outcome, err := s.change(ctx, name, op)
	if err != nil {
		return nil, err
	}
	n, err := subscription.DecodeDeadLetters(outcome.Answers[0].Reply)
	return &runlogv1.DiscardDeadLettersResponse{Discarded: uint32(n)}, err
}

// lettersOf returns the subscription of a request, or everything that is wrong with it.
func lettersOf(ctx context.Context, req named, bad violations) (subscription.Name, error) {
	if len(bad.Violations) > 0 {
		bad.id(req.GetSubscriptionId())
		return subscription.Name{}, bad.Err()
	}
	return nameOf(ctx, req)
}

// which checks which dead letters a request names.
func (v *violations) which(w *runlogv1.DeadLetters) (to subscription.Which) {
	ways := 0
	if to.All = w.GetAll(); to.All {
		ways++
	}
	if to.RunID = w.GetRunId(); to.RunID != "" {
		ways++
		v.Add("which.runId", contract.StoredNameFault(to.RunID))
	}
	if n := len(w.GetDeliveryIds()); n > 0 {
		ways++
		if n > subscription.MaxPlaces {
			v.Add("which.deliveryIds", fmt.Sprintf("has %d: send at most %d", n, subscription.MaxPlaces))
			return to
		}
		for _, p := range v.refs("which.deliveryIds", w.DeliveryIds) {
			to.Events = append(to.Events, subscription.Place{RunID: p.RunID, RunSeq: p.Seq})
		}
	}
	if ways != 1 {
		v.Add("which", "needs exactly one of all, deliveryIds and runId")
	}
	return to
}

// refs decodes the ids of deliveries.
func (v *violations) refs(field string, ids []string) (list []delivery.Ref) {
	for i, id := range ids {
		p, err := delivery.ParseRef(id)
		if err == nil {
			if fault := contract.StoredNameFault(p.RunID); fault != "" {
				err = fmt.Errorf("%.100q is not a deliveryId: send one as a delivery has it", id)
			}
		}
		if err != nil {
			v.Add(fmt.Sprintf("%s[%d]", field, i), err.Error())
			continue
		}
		list = append(list, p)
	}
	return list
}
