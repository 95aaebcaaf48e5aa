package run

import (
	"encoding/binary"
	"time"

	"runlog/proto/contract"
	"runlog/storage"
)

// epoch is when a tape's first event is emitted; the n-th is emitted n seconds and persisted n
// seconds and 5 ms after it.
var epoch = time.Date(2026, 2, 11, 10, 0, 0, 0, time.UTC)

// tape is a run in the making.
type tape struct{ records []storage.Record }

func newTape() *tape { return new(tape) }

// add appends an event with the next runSeq.
func (t *tape) add(eventType, stepID string, attempt uint32, payload string) *storage.Record {
	n := uint64(len(t.records) + 1)
	t.records = append(t.records, record(n, eventType, stepID, attempt, payload))
	return &t.records[n-1]
}

func record(seq uint64, eventType, stepID string, attempt uint32, payload string) storage.Record {
	emitted := epoch.Add(time.Duration(seq) * time.Second)
	r := storage.Record{Recorded: contract.Recorded{
		Event: contract.Event{
			Type:             eventType,
			RunID:            "run-1",
			TenantID:         "acme",
			ProjectID:        "marketing",
			EnvironmentID:    "prod",
			PlanID:           "plan-1",
			PlanVersion:      "1.2",
			StepID:           stepID,
			LogicalAttemptID: attempt,
			EngineAttemptID:  1,
			EmittedAt:        emitted.UnixNano(),
			Payload:          []byte(payload),
		},
		RunSeq:      seq,
		PersistedAt: emitted.Add(5 * time.Millisecond).UnixNano(),
	}}
	binary.BigEndian.PutUint64(r.EventID[8:], seq)
	return r
}
