package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
	"runlog/storage"
)

// tenants is the number of tenants that runs belong to and windows are filtered by.
const tenants = 3

func tenantOf(run string) string { return fmt.Sprintf("tenant-%d", run[len(run)-1]%tenants) }

// envelope makes an event that lacks its type.
func (c *Clients) envelope(run string, rng *rand.Rand) *runlogv1.EventWrite {
	number := c.next()
	return &runlogv1.EventWrite{
		RunId: run, TenantId: tenantOf(run), ProjectId: "project", EnvironmentId: "prod", PlanId: "plan", PlanVersion: "1",
		LogicalAttemptId: uint32(number), EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: fmt.Appendf(nil, `{"n":%d,"pad":%q}`, number, strings.Repeat("x", rng.IntN(c.opts.Pad)))},
	}
}

// newEvent draws an event that was not sent before.
func (c *Clients) newEvent(run string, rng *rand.Rand) *runlogv1.EventWrite {
	e := c.envelope(run, rng)
	switch kind := rng.IntN(10); {
	case kind < 4:
		e.EventType, e.StepId = "StepStarted", fmt.Sprintf("step-%d", rng.IntN(4))
	case kind < 6:
		e.EventType, e.StepId = "StepCompleted", fmt.Sprintf("step-%d", rng.IntN(4))
	case kind < 7 && rng.IntN(3) == 0:
		e.EventType, e.PayloadForm = "RunStarted", nil
	case kind < 7:
		leaveOutAttempt(e, []string{"RunPaused", "RunResumed", "SignalAccepted"}[rng.IntN(3)], rng.IntN(signals))
	default:
		e.EventType = "Noted"
	}
	if rng.IntN(4) == 0 {
		e.EventId = newID(rng)
	}
	c.addSent(run, e)
	return e
}

// newID draws a random UUID.
func newID(rng *rand.Rand) string {
	var id [16]byte
	for i := range id {
		id[i] = byte(rng.Uint32())
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// drawEvents draws the events of one request: new ones, repeated ones, and ones with the key of an
// earlier event and other content.
func (c *Clients) drawEvents(run string, rng *rand.Rand) []*runlogv1.EventWrite {
	var events []*runlogv1.EventWrite
	for range 1 + rng.IntN(4)*rng.IntN(2) {
		e := c.again(run, rng)
		switch draw := rng.IntN(20); {
		case e == nil || draw < 15:
			e = c.newEvent(run, rng)
		case draw == 19:
			e = proto.CloneOf(e)
			e.EventId, e.PayloadForm = newID(rng), &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"diverged":true}`)}
		default: // repeated as it was sent
		}
		events = append(events, e)
	}
	return events
}

// allAsSent describes the events of a request for the history.
func allAsSent(req *runlogv1.AppendEventsRequest) []history.Event {
	var all []history.Event
	for _, e := range req.GetEvents() {
		all = append(all, asSent(e))
	}
	return all
}

// asSent describes an event for the history.
func asSent(e *runlogv1.EventWrite) history.Event {
	return history.Event{Key: keyOf(e), EventID: e.GetEventId(), Content: contentOf(e.GetStepId(), e.GetEventType(), e.GetLogicalAttemptId(), e.GetPayloadJson())}
}

func keyOf(e *runlogv1.EventWrite) string {
	if e.GetLogicalAttemptId() == 0 {
		return causeKey(e.GetEventType(), e.GetCausedBySignalId())
	}
	return contract.DeriveKey(contract.Line2, e.GetRunId(), e.GetStepId(), e.GetLogicalAttemptId(), e.GetEngineAttemptId(), e.GetEventType(), e.GetPlanId(), e.GetPlanVersion())
}

// contentOf digests the fields that make the key, and those in which two events with one key can
// differ.
func contentOf(step, kind string, attempt uint32, payload []byte) history.Digest {
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	text, _ := json.Marshal([]any{step, kind, attempt, json.RawMessage(payload)}) // of valid JSON
	return sha256.Sum256(text)
}

// recordOf converts a node's record for the checker and the reducer.
func recordOf(r *runlogv1.EventRecord) (history.Record, error) {
	h := history.Record{
		Run: r.GetRunId(), RunSeq: r.GetRunSeq(), PersistedAt: r.GetPersistedAt().AsTime().UnixNano(), EventID: r.GetEventId(),
		Key: recordKey(r), Content: contentOf(r.GetStepId(), r.GetEventType(), sentAttempt(r), r.GetPayloadJson()),
		TenantID: r.GetTenantId(), ProjectID: r.GetProjectId(), EnvironmentID: r.GetEnvironmentId(), PlanID: r.GetPlanId(),
		PlanVersion: r.GetPlanVersion(), StepID: r.GetStepId(), Type: r.GetEventType(),
	}
	if err := unhex(&h.RecordDigest, r.GetRecordDigest()); err != nil {
		return h, err
	}
	if err := unhex(&h.ChainDigest, r.GetChainDigest()); err != nil {
		return h, err
	}
	body, err := proto.Marshal(r)
	h.Body = body
	return h, err
}

func unhex(to *history.Digest, text string) error { return to.UnmarshalText([]byte(text)) }

// Fold is the projector's reducer in the form that history.Check takes.
func Fold(records []*history.Record, at []uint64) ([]history.Folded, error) {
	var folded []history.Folded
	var s *run.Snapshot
	for _, h := range records {
		var r runlogv1.EventRecord
		if err := proto.Unmarshal(h.Body, &r); err != nil {
			return nil, err
		}
		next, err := stored(&r)
		if err != nil {
			return nil, err
		}
		s = run.Reduce(s, &next)
		if len(at) > 0 && h.RunSeq == at[0] {
			folded, at = append(folded, history.Folded{Digest: s.Digest()}), at[1:]
		}
	}
	return folded, nil
}

// stored converts a record for the reducer.
func stored(r *runlogv1.EventRecord) (storage.Record, error) {
	var id contract.EventID
	if _, err := hex.Decode(id[:], []byte(strings.ReplaceAll(r.GetEventId(), "-", ""))); err != nil {
		return storage.Record{}, err
	}
	return storage.Record{Recorded: contract.Recorded{
		Event: contract.Event{
			EventID: id, Type: r.GetEventType(), RunID: r.GetRunId(), TenantID: r.GetTenantId(), ProjectID: r.GetProjectId(),
			EnvironmentID: r.GetEnvironmentId(), PlanID: r.GetPlanId(), PlanVersion: r.GetPlanVersion(), StepID: r.GetStepId(),
			LogicalAttemptID: r.GetLogicalAttemptId(), EngineAttemptID: r.GetEngineAttemptId(), IdempotencyKey: r.GetIdempotencyKey(),
			EmittedAt: r.GetEmittedAt().AsTime().UnixNano(), EmittedBy: r.GetEmittedBy(), Payload: r.GetPayloadJson(),
		},
		RunSeq: r.GetRunSeq(), PersistedAt: r.GetPersistedAt().AsTime().UnixNano(),
	}}, nil
}
