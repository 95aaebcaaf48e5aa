package snapshots

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"runlog/projector"
	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

const (
	defaultExplainPage = 100
	maxExplainPage     = 10_000
)

// ExplainStep returns a page of the events that led to the state of a step (TR-7). Each page folds
// the run again up to the moment, and looks at the effects of the page's events alone.
func (s *Service) ExplainStep(ctx context.Context, req *runlogv1.ExplainStepRequest) (_ *runlogv1.ExplainStepResponse, err error) {
	size, err := rpc.PageSize(req.PageSize, defaultExplainPage, maxExplainPage)
	if err != nil {
		return nil, err
	}
	if fault := contract.StoredNameFault(req.StepId); fault != "" {
		return nil, rpc.Invalid("stepId", fault)
	}
	moment, err := s.momentOf(ctx, req, req.AsOfSeq, 0)
	if err != nil {
		return nil, err
	}
	tokens := rpc.NewTokenDomain("why a step is as it is", s.node.Store().Incarnation(), req.RunId, req.StepId, fmt.Sprint(moment.Kind, moment.At))
	after, seq, err := parseExplainToken(&tokens, req.PageToken)
	if err != nil {
		return nil, err
	}
	v, err := s.node.Open(ctx, req.RunId, seq)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := exists(&moment, v.Run); err != nil {
		return nil, err
	}
	if req.PageToken != "" {
		moment.At = projector.AsOfSeq(seq)
	}
	page := explainPage{step: req.StepId, after: after, size: size, room: wire.PageBytes}
	snapshot, err := run.FoldShowing(ctx, v.View, run.Empty(v.Run), moment.At.Past, page.wants, page.add)
	if err != nil {
		return nil, err
	}
	if !page.named {
		return nil, &contract.Error{Reason: contract.ReasonStepNotFound,
			Message: rpc.Helpful(contract.ReasonStepNotFound, fmt.Sprintf("no event of run %s up to runSeq %d has named step %s",
				contract.Quote(req.RunId), snapshot.LastEventSeq, contract.Quote(req.StepId))),
			Metadata: map[string]string{"run_id": req.RunId, "step_id": req.StepId}}
	}
	if err := findCauses(ctx, v.View, page.events); err != nil {
		return nil, err
	}
	resp := &runlogv1.ExplainStepResponse{LastEventSeq: snapshot.LastEventSeq, Events: page.events, Applied: rpc.Applied(v.At)}
	if step := snapshot.Step(req.StepId); step != nil {
		resp.Step = wire.EncodeStep(step)
	}
	if page.more {
		body := binary.AppendUvarint(binary.AppendUvarint(nil, page.after), snapshot.LastEventSeq)
		resp.NextPageToken = tokens.Seal(rpc.TokenExplain, body)
	}
	return resp, nil
}

// parseExplainToken returns the runSeq after which the page begins, and that of the moment.
func parseExplainToken(tokens *rpc.TokenDomain, text string) (after, seq uint64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	body, ok := tokens.OpenAs(rpc.TokenExplain, text)
	if !ok {
		return 0, 0, tokens.Refused("pageToken", text, rpc.Invalid("pageToken",
			"was changed, or belongs to another step or another moment: pass on nextPageToken as you got it"+rpc.StartAgain))
	}
	after, n := binary.Uvarint(body)
	seq, _ = binary.Uvarint(body[max(n, 0):])
	return after, seq, nil
}

// explainPage is a page that is being filled with the events that name a step.
type explainPage struct {
	step       string
	after      uint64 // the runSeq of the last event on this page and the ones before
	size, room int    // entries and bytes
	events     []*runlogv1.ExplainedEvent
	more       bool
	named      bool // an event up to the moment names the step
}

// wants reports whether an event is on the page.
func (p *explainPage) wants(r *storage.Record) bool {
	if r.StepID != p.step {
		return false
	}
	if p.named = true; p.more || r.RunSeq <= p.after {
		return false
	}
	p.more = len(p.events) == p.size || p.room <= 0
	return !p.more
}

func (p *explainPage) add(e run.Effect) {
	r := e.Record
	m := &runlogv1.ExplainedEvent{
		RunSeq: r.RunSeq, EventId: r.EventID.String(), EventType: r.Type,
		LogicalAttemptId: r.LogicalAttemptID, EngineAttemptId: r.EngineAttemptID,
		EmittedAt: wire.Timestamp(r.EmittedAt), PersistedAt: wire.Timestamp(r.PersistedAt), EmittedBy: wire.Optional(r.EmittedBy),
		AppendedBy: wire.Optional(r.AppendedBy.Name), AppendedByTokenId: wire.Optional(r.AppendedBy.TokenID),
		Effect: runlogv1.ExplainedEffect_UNCHANGED,
	}
	if o := r.Original; o.PersistedAt != 0 {
		m.Original = &runlogv1.Original{PersistedAt: wire.Timestamp(o.PersistedAt), Source: wire.Optional(o.Source)}
	}
	if r.CausedBySignalID != "" || r.ParentEventID != "" {
		m.CausedBy = &runlogv1.EventCause{SignalId: wire.Optional(r.CausedBySignalID), ParentEventId: wire.Optional(r.ParentEventID)}
	}
	if after := e.After.Step(p.step); after != nil {
		m.Step, m.Attempts = wire.DiffStep(e.Before.Step(p.step), after, r.LogicalAttemptID)
	}
	switch {
	case e.Invalid != nil:
		m.Effect, m.State = runlogv1.ExplainedEffect_INVALID, &e.Invalid.State
	case m.Step != nil || len(m.Attempts) > 0:
		m.Effect = runlogv1.ExplainedEffect_CHANGED
	}
	if e.Before.Status != e.After.Status {
		m.RunStatus = &runlogv1.RunStatusChange{From: runlogv1.RunStatus_Value(e.Before.Status), To: runlogv1.RunStatus_Value(e.After.Status)}
	}
	p.events, p.after, p.room = append(p.events, m), r.RunSeq, p.room-proto.Size(m)
}

// findCauses finds the events that the causes of a page name. Signals have an index. Parents have
// none, so the events before are read once more if a cause names one.
func findCauses(ctx context.Context, v *storage.View, page []*runlogv1.ExplainedEvent) error {
	parents, last := map[string]uint64{}, uint64(0)
	for _, e := range page {
		if id := e.CausedBy.GetSignalId(); id != "" {
			r, err := v.Caused(contract.SignalAccepted, id)
			if err != nil {
				return err
			}
			if r != nil && r.RunSeq < e.RunSeq {
				e.CausedBy.SignalSeq = &r.RunSeq
			}
		}
		if id := e.CausedBy.GetParentEventId(); id != "" {
			parents[id], last = 0, e.RunSeq
		}
	}
	if len(parents) == 0 {
		return nil
	}
	looked := 0
	for r, err := range v.Events(0) {
		if looked++; looked%1024 == 0 && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if r.RunSeq >= last {
			break
		}
		id := r.EventID.String()
		if seq, named := parents[id]; named && seq == 0 {
			parents[id] = r.RunSeq
		}
	}
	for _, e := range page {
		if seq := parents[e.CausedBy.GetParentEventId()]; seq > 0 && seq < e.RunSeq {
			e.CausedBy.ParentSeq = &seq
		}
	}
	return nil
}
