package queue

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// emitter is emittedBy of the events of the authority.
const emitter = "runlog"

// startAttemptsExhausted is the code of the error of a run whose starts have failed (QUE-7).
const startAttemptsExhausted = "START_ATTEMPTS_EXHAUSTED"

// event is an event that the authority says of a run. A run has one of its type.
func (s *Service) event(eventType, runID string, r *runlogv1.Run, payload *structpb.Struct) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		EventType: eventType, RunId: runID, TenantId: r.TenantId, ProjectId: r.ProjectId, EnvironmentId: r.EnvironmentId,
		PlanId: r.PlanRef.GetPlanId(), PlanVersion: r.PlanRef.GetPlanVersion(), LogicalAttemptId: 1, EngineAttemptId: 1,
		EmittedAt: timestamppb.New(s.opts.Clock()), EmittedBy: emitter, ContractVersion: contract.Line2.String(),
		PayloadForm: &runlogv1.EventWrite_Payload{Payload: payload},
	}
}

// authorityEvents checks an event by the rules of its run. Its payload alone can be at fault, for
// what the caller has sent as a field of the request. With an empty field it has nothing of a
// caller, and no limit of the node's configuration may stop it.
func (s *Service) authorityEvents(e *runlogv1.EventWrite, field string) ([]contract.Event, error) {
	rules := s.opts.Rules(e.RunId)
	if field == "" || rules.MaxPayloadBytes <= 0 || rules.MaxPayloadBytes > contract.DefaultMaxPayloadBytes {
		rules.MaxPayloadBytes = contract.DefaultMaxPayloadBytes
	}
	events, err := contract.ValidateAll([]*runlogv1.EventWrite{e}, rules)
	bad, ok := errors.AsType[*contract.Error](err)
	if !ok {
		return events, err
	}
	list := bad.Violations
	for i := range list {
		if rest, of := strings.CutPrefix(list[i].Field, "events[0].payload"); of {
			list[i].Field = field + strings.TrimPrefix(rest, "/"+field)
		}
	}
	next := contract.NewError(list)
	for _, name := range []string{"max_bytes", "schema"} {
		if value, ok := bad.Metadata[name]; ok {
			next.Metadata[name] = value
		}
	}
	return nil, next
}

// failed is the end of a run whose starts have failed.
func (s *Service) failed(r *storage.Run, message string, attempts uint32) *runlogv1.EventWrite {
	why := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"code": structpb.NewStringValue(startAttemptsExhausted), "message": structpb.NewStringValue(message),
	}})
	return s.event(contract.RunFailed, r.RunID, scopeOf(r), &structpb.Struct{Fields: map[string]*structpb.Value{
		"error": why, "startAttempts": structpb.NewNumberValue(float64(attempts)),
	}})
}

// cancelled is the end of a run that is not started.
func (s *Service) cancelled(r *storage.Run, code, reason string) *runlogv1.EventWrite {
	payload := &structpb.Struct{Fields: map[string]*structpb.Value{"reasonCode": structpb.NewStringValue(code)}}
	if reason != "" {
		payload.Fields["reason"] = structpb.NewStringValue(reason)
	}
	return s.event(contract.RunCancelled, r.RunID, scopeOf(r), payload)
}

func scopeOf(r *storage.Run) *runlogv1.Run {
	return &runlogv1.Run{
		TenantId: r.Scope.TenantID, ProjectId: r.Scope.ProjectID, EnvironmentId: r.Scope.EnvironmentID,
		PlanRef: &runlogv1.PlanRef{PlanId: r.PlanID, PlanVersion: r.PlanVersion},
	}
}
