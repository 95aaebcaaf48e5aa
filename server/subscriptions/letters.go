package subscriptions

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/window"
	"runlog/storage"
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
			DeliveryId: s.deliveryID(delivery.Ref{Place: window.Place{RunID: l.RunID, Seq: l.RunSeq}}), RunId: l.RunID, RunSeq: l.RunSeq,
			EventId: l.EventID, EventType: l.EventType, Attempts: l.Attempts, Error: l.Error,
			ParkedAt: wire.Timestamp(l.ParkedAt), Redriving: l.Redriving,
		})
	}
	if fit := wire.Fitting(resp.DeadLetters); fit < len(list) {
		list, resp.DeadLetters, more = list[:fit], resp.DeadLetters[:fit], true
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
	which, err := s.which(req.Which, &bad)
	if err != nil {
		return nil, err
	}
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
	which, err := s.which(req.Which, &bad)
	if err != nil {
		return nil, err
	}
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
func (s *Service) which(w *runlogv1.DeadLetters, v *violations) (to subscription.Which, err error) {
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
			return to, nil
		}
		list, err := s.refs("which.deliveryIds", w.DeliveryIds, v)
		if err != nil {
			return to, err
		}
		for _, p := range list {
			to.Events = append(to.Events, subscription.Place{RunID: p.RunID, RunSeq: p.Seq})
		}
	}
	if ways != 1 {
		v.Add("which", "needs exactly one of all, deliveryIds and runId")
	}
	return to, nil
}

// deliveryID returns the deliveryId of a delivery.
func (s *Service) deliveryID(r delivery.Ref) string {
	return string(appendDeliveryID(nil, s.node.Store().Incarnation(), r))
}

// appendDeliveryID appends a deliveryId: what it says of a run is good in one incarnation.
func appendDeliveryID(dst []byte, in storage.Incarnation, r delivery.Ref) []byte {
	return r.Append(rpc.AppendIncarnation(dst, in))
}

// refs decodes the ids of deliveries. The error is about an id of another incarnation.
func (s *Service) refs(field string, ids []string, v *violations) ([]delivery.Ref, error) {
	in := s.node.Store().Incarnation()
	own := string(rpc.AppendIncarnation(nil, in))
	list := make([]delivery.Ref, 0, len(ids))
	for i, id := range ids {
		text, ours := strings.CutPrefix(id, own)
		p, err := delivery.ParseRef(text)
		if ours && err == nil && contract.StoredNameFault(p.RunID) == "" {
			list = append(list, p)
			continue
		}
		at := fmt.Sprintf("%s[%d]", field, i)
		if err := rpc.Refused(at, id, in, nil); err != nil {
			return nil, err
		}
		v.Add(at, fmt.Sprintf("%.100q is not a deliveryId: send one as a delivery has it", id))
	}
	return list, nil
}
