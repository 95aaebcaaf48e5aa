package runs

import (
	"context"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/metadata"
)

// SetEngineRunRef stores the engine's reference of a run, once (APP-12).
func (s *Service) SetEngineRunRef(ctx context.Context, req *runlogv1.SetEngineRunRefRequest) (*runlogv1.SetEngineRunRefResponse, error) {
	switch {
	case contract.NameFault(req.RunId) != "":
		return nil, rpc.Invalid("runId", contract.NameFault(req.RunId))
	case req.EngineRunRef == "":
		return nil, rpc.Invalid("engineRunRef", "is required: name the engine's own run")
	case rpc.URIFault(req.EngineRunRef) != "":
		return nil, rpc.Invalid("engineRunRef", rpc.URIFault(req.EngineRunRef))
	}
	cmd, err := storage.EncodeOne(metadata.Set(req.RunId, req.EngineRunRef, auth.From(ctx).Authenticated(), req.Fence))
	if err != nil {
		return nil, err
	}
	run, position, err := s.change(ctx, req.RunId, cmd)
	if err != nil {
		return nil, err
	}
	return &runlogv1.SetEngineRunRefResponse{Run: run, Position: position}, nil
}

// UpdateRun replaces metadata of a run (APP-12).
func (s *Service) UpdateRun(ctx context.Context, req *runlogv1.UpdateRunRequest) (*runlogv1.UpdateRunResponse, error) {
	update, err := decodeUpdate(req)
	if err != nil {
		return nil, err
	}
	cmd, err := storage.EncodeOne(metadata.UpdateOperation(req.RunId, update, auth.From(ctx).Authenticated()))
	if err != nil {
		return nil, err
	}
	run, position, err := s.change(ctx, req.RunId, cmd)
	if err != nil {
		return nil, err
	}
	return &runlogv1.UpdateRunResponse{Run: run, Position: position}, nil
}

// change executes a command, and returns the run after it and its position.
func (s *Service) change(ctx context.Context, runID string, cmd storage.Command) (*runlogv1.Run, string, error) {
	if err := rpc.CheckChange(ctx, s.node, runID); err != nil {
		return nil, "", err
	}
	outcome, err := s.node.Execute(ctx, cmd)
	if err != nil {
		return nil, "", rpc.TellHolder(s.node.Store(), err)
	}
	run, err := s.run(ctx, runID)
	return run, rpc.FormatPosition(s.node.Store().Incarnation(), outcome.Position), err
}

// decodeUpdate reads which fields an update replaces, and validates them.
func decodeUpdate(req *runlogv1.UpdateRunRequest) (u metadata.Update, err error) {
	var bad []contract.Violation
	fail := func(field, text string) {
		if text != "" {
			bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: text})
		}
	}
	fail("runId", contract.NameFault(req.RunId))
	labels, reference := len(req.Labels) > 0, req.EngineRunRef != nil
	if req.UpdateMask != nil {
		labels, reference = false, false
		for _, path := range req.UpdateMask.Paths {
			switch path {
			case "labels":
				labels = true
			case "engine_run_ref":
				reference = true
			default:
				fail("updateMask", "has "+contract.Quote(path)+": the fields that can be updated are labels and engineRunRef")
			}
		}
	}
	if !labels && !reference && len(bad) == 0 {
		fail("updateMask", "names no field: send labels, engineRunRef, or a mask")
	}
	if labels {
		if u.Labels = req.Labels; u.Labels == nil {
			u.Labels = map[string]string{}
		}
		bad = append(bad, rpc.CheckLabels("labels", req.Labels)...)
	}
	if reference {
		ref := req.GetEngineRunRef()
		u.EngineRunRef, u.Previous = &ref, req.PreviousEngineRunRef
		fail("engineRunRef", rpc.URIFault(ref))
		fail("previousEngineRunRef", rpc.URIFault(u.Previous))
	}
	if len(bad) > 0 {
		return u, contract.NewError(bad)
	}
	return u, nil
}

func wireChanges(changes []metadata.Change) (out []*runlogv1.RunChange) {
	for i := range changes {
		c := &changes[i]
		out = append(out, &runlogv1.RunChange{
			ChangedAt: wire.Timestamp(c.ChangedAt),
			ChangedBy: wire.Optional(c.ChangedBy.Name), ChangedByTokenId: wire.Optional(c.ChangedBy.TokenID),
			EngineRunRef: c.EngineRunRef, PreviousEngineRunRef: c.PreviousEngineRunRef,
			LabelsChanged: c.LabelsChanged, Labels: c.Labels, PreviousLabels: c.PreviousLabels,
		})
	}
	return out[:wire.Fitting(out)]
}
