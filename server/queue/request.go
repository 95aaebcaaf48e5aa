package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// defaultPriority is that of a request that names none (QUE-1).
const defaultPriority = 5

// request is a RequestRun that was checked.
type request struct {
	queue.RunRequest
	run      *runlogv1.Run // to be made
	creation *storage.Creation
	event    *runlogv1.EventWrite
}

// RequestRun makes a run, appends its RunQueued and enters it into a queue, all or none (QUE-1).
func (s *Service) RequestRun(ctx context.Context, req *runlogv1.RequestRunRequest) (*runlogv1.RequestRunResponse, error) {
	r, err := s.parse(req)
	if err != nil {
		return nil, err
	}
	if err := rpc.CheckProducer(ctx, "tenantId", req.TenantId); err != nil {
		return nil, err
	}
	if err := s.checkRerun(req, r.RunID); err != nil {
		return nil, err
	}
	events, err := s.authorityEvents(r.event, "context")
	if err != nil {
		return nil, err
	}
	first := uint64(0)
	a := storage.Append{RunID: r.RunID, Events: events, AppendedBy: caller(ctx), ExpectedLastSeq: &first, OnlyNew: true}
	if err := rpc.CheckDecision(ctx, s.node, &a); err != nil {
		return nil, err
	}
	around, err := r.around()
	if err != nil {
		return nil, err
	}
	done, err := s.node.ExecuteAppend(ctx, &a, around)
	if known, ok := errors.AsType[*queue.RequestedError](err); ok {
		s.metrics.requests.WithLabelValues(repeated).Inc()
		return s.requested(known, &done.Outcome)
	}
	if err != nil {
		return nil, rpc.RefusedAppend(ctx, s.node.Store(), r.RunID, refusedRequest(err))
	}
	reply, err := queue.DecodeRequest(done.Answers[len(done.Answers)-1].Reply)
	if err != nil {
		return nil, err
	}
	s.metrics.requests.WithLabelValues(runlogv1.Disposition_Value(reply.Disposition).String()).Inc()
	run := r.made(&done.Outcome)
	if done.Answers[creationAnswer].Created {
		s.recent.put(r.RunID, &requested{run, req.Context}, int64(r.AnswerBytes))
	} else if run, err = s.run(r.RunID); err != nil { // It is older than its request.
		return nil, err
	}
	return &runlogv1.RequestRunResponse{
		Run: run, Disposition: runlogv1.Disposition_Value(reply.Disposition), Position: reply.Position,
		NotBefore: wire.Timestamp(reply.NotBefore), CommitPosition: rpc.FormatPosition(s.node.Store().Incarnation(), done.Position),
	}, nil
}

// creationAnswer is the number of the creation's answer in the command of a request.
const creationAnswer = 1

// around has the operations around the append of the first event: the run is made, and requested.
// The run may exist, made with the same metadata and without an event. Check comes first: an
// earlier request of the run must be reported as one.
func (r *request) around() (o replica.Around, err error) {
	check, err := queue.Check(&r.RunRequest)
	if err != nil {
		return o, err
	}
	creation, err := storage.AppendOperation(&storage.Append{RunID: r.RunID, Create: r.creation})
	if err != nil {
		return o, err
	}
	enter, err := queue.Request(&r.RunRequest)
	return replica.Around{Before: []storage.Operation{check, creation}, After: []storage.Operation{enter}}, err
}

// made is the run as a command has made it.
func (r *request) made(o *storage.Outcome) *runlogv1.Run {
	return wire.QueuedRun(&storage.Run{
		RunID: r.RunID, Scope: r.creation.Scope, CreatedAt: o.PersistedAt, Metadata: &r.creation.Metadata, LastSeq: 1, PersistedAt: o.PersistedAt,
	})
}

// requested answers a request that was made before (QUE-2).
func (s *Service) requested(known *queue.RequestedError, outcome *storage.Outcome) (*runlogv1.RequestRunResponse, error) {
	run, err := s.run(known.RunID)
	if err != nil {
		return nil, err
	}
	return &runlogv1.RequestRunResponse{
		Run: run, Disposition: runlogv1.Disposition_Value(known.Disposition), NotBefore: wire.Timestamp(known.NotBefore),
		Idempotent: true, CommitPosition: rpc.FormatPosition(s.node.Store().Incarnation(), outcome.Position),
	}, nil
}

// refusedRequest is refusal, but that a run with events was not made by this request.
func refusedRequest(err error) error {
	if e, ok := errors.AsType[*storage.SequenceError](err); ok {
		return &contract.Error{Reason: contract.ReasonRunAlreadyExists,
			Message:  fmt.Sprintf("run %q has events already, and a request must be the first: choose another runId, or leave it out", e.RunID),
			Metadata: map[string]string{"run_id": e.RunID}}
	}
	return refusal(err)
}

// parse checks every field of a request.
func (s *Service) parse(req *runlogv1.RequestRunRequest) (*request, error) {
	key := requestKey(req)
	r := &request{run: &runlogv1.Run{
		RunId: req.RunId, TenantId: req.TenantId, ProjectId: req.ProjectId, EnvironmentId: req.EnvironmentId, PlanRef: req.PlanRef,
		EngineType: req.EngineType, Labels: req.Labels, TriggeredBy: req.TriggeredBy,
	}}
	if req.RunId == "" {
		r.run.RunId = hex.EncodeToString(key[:16])
	}
	var bad violations
	if bad.Add("runRequestId", contract.TextFault(req.RunRequestId)); req.RunRequestId == "" {
		bad.Add("runRequestId", "is required: name the request, so that it can be sent again")
	}
	if req.RerunOf != nil {
		bad.Add("rerunOf", contract.NameFault(*req.RerunOf))
	}
	r.Name = bad.queueName(req, true)
	for _, v := range rpc.CheckRun("", r.run) {
		if !bad.Has(v.Field) {
			bad.Violations = append(bad.Violations, v)
		}
	}
	r.Key, r.RunID, r.RunIDNamed, r.Priority = key, r.run.RunId, req.RunId != "", defaultPriority
	if req.Priority != nil {
		if r.Priority = *req.Priority; r.Priority > queue.MaxPriority {
			bad.Add("priority", fmt.Sprintf("is %d: send 0 (lowest) to %d", r.Priority, queue.MaxPriority))
		}
	}
	var fault string
	r.NotBefore, fault = s.notBefore(req)
	bad.Add("notBefore", fault)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	// It was checked: it is the digits of a SHA-256, or empty.
	r.PlanDigest, _ = hex.DecodeString(req.PlanRef.GetSha256())
	r.creation, r.event = rpc.Creation(r.run), s.queued(r, req)
	r.AnswerBytes = uint32(min(proto.Size(&runlogv1.Lease{Run: r.run, Context: req.Context}), math.MaxUint32))
	return r, nil
}

// notBefore returns when a run may be leased; 0: at once.
func (s *Service) notBefore(req *runlogv1.RequestRunRequest) (ns int64, fault string) {
	now := s.now()
	switch t := req.NotBefore; {
	case t == nil:
		return 0, ""
	case !t.IsValid():
		return 0, "is not a time"
	case !t.AsTime().After(time.Unix(0, now)):
		return 0, ""
	case t.AsTime().After(time.Unix(0, yearsFrom(now, maxYears))):
		return 0, fmt.Sprintf("is more than %d years ahead", maxYears)
	default:
		return t.AsTime().UnixNano(), ""
	}
}

// requestKey identifies a request forever (QUE-2). None of the names but the last has a vertical
// bar.
func requestKey(req *runlogv1.RequestRunRequest) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join([]string{
		req.TenantId, req.ProjectId, req.EnvironmentId, req.PlanRef.GetPlanId(), req.PlanRef.GetPlanVersion(), req.RunRequestId,
	}, "|")))
}

// queued is the first event of a run. Its payload says what the machine does not keep, and for
// people what it does.
func (s *Service) queued(r *request, req *runlogv1.RequestRunRequest) *runlogv1.EventWrite {
	payload := &structpb.Struct{Fields: map[string]*structpb.Value{
		"runRequestId": structpb.NewStringValue(req.RunRequestId),
		"queue":        structpb.NewStringValue(r.Name.Queue),
		"priority":     structpb.NewNumberValue(float64(r.Priority)),
	}}
	if r.NotBefore != 0 {
		payload.Fields["notBefore"] = structpb.NewStringValue(time.Unix(0, r.NotBefore).UTC().Format(time.RFC3339Nano))
	}
	if req.Context != nil {
		payload.Fields[contextField] = structpb.NewStructValue(req.Context)
	}
	if req.RerunOf != nil {
		payload.Fields["rerunOf"] = structpb.NewStringValue(*req.RerunOf)
	}
	return s.event(contract.RunQueued, r.RunID, r.run, payload)
}

// contextField of the payload of RunQueued has the context of the request.
const contextField = "context"
