package servertest

import (
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// NewEvent builds a valid 2.x event; change makes it another one.
func NewEvent(eventType string, change ...func(*runlogv1.EventWrite)) *runlogv1.EventWrite {
	e := &runlogv1.EventWrite{
		EventType: eventType,
		TenantId:  "tenant", ProjectId: "project", EnvironmentId: "prod", PlanId: "plan", PlanVersion: "1",
		LogicalAttemptId: 1, EngineAttemptId: 1,
		EmittedAt: &timestamppb.Timestamp{Seconds: 1770805800, Nanos: 123456789},
	}
	for _, c := range change {
		c(e)
	}
	return e
}

// Step gives an event a stepId.
func Step(id string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.StepId = id }
}

// Attempt gives an event a logicalAttemptId.
func Attempt(number uint32) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.LogicalAttemptId = number }
}

// Payload gives an event the text of a payload.
func Payload(text string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) {
		e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(text)}
	}
}

// Sparse makes an event of contract 1.1 that names nothing but its run.
func Sparse(e *runlogv1.EventWrite) {
	e.ContractVersion = "1.1"
	e.TenantId, e.ProjectId, e.EnvironmentId, e.PlanId, e.PlanVersion = "", "", "", "", ""
	e.LogicalAttemptId, e.EngineAttemptId = 0, 0
}

// Key gives an event an idempotencyKey.
func Key(text string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.IdempotencyKey = text }
}

// Steps makes count events of unknown type that differ in their stepId.
func Steps(prefix string, count int) []*runlogv1.EventWrite {
	out := make([]*runlogv1.EventWrite, count)
	for i := range out {
		out[i] = NewEvent("Noted", Step(fmt.Sprintf("%s%d", prefix, i)))
	}
	return out
}

// Taking makes an event of contract 1.1 that has the key of another event of a run (IDM-5).
func Taking(runID string, other *runlogv1.EventWrite) *runlogv1.EventWrite {
	key := contract.DeriveKey(contract.Line2, runID, other.StepId, other.LogicalAttemptId, other.EngineAttemptId, other.EventType, other.PlanId, other.PlanVersion)
	return NewEvent("Noted", Key(key), func(e *runlogv1.EventWrite) {
		e.TenantId, e.ProjectId, e.EnvironmentId = other.TenantId, other.ProjectId, other.EnvironmentId
		e.PlanId, e.PlanVersion, e.ContractVersion = other.PlanId, other.PlanVersion, "1.1"
	})
}
