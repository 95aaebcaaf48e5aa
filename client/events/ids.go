package events

import (
	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2"

	runlogv1 "runlog/proto/runlog/v1"
)

// DefaultLearned is how many ids of the server IDs keeps.
const DefaultLearned = 10_000

// space is the namespace of the ids (RFC 9562, section 5.5).
var space = uuid.MustParse("6f1c1f0c-5d0a-5c0e-9d3f-2b8f6a7e41d5")

// IDs gives each event an id that depends on its run and its key alone: retries, and an engine that
// starts again, name the same event in the same way. Other producers may have stored it under
// another id; the answer of the server tells, and IDs returns that id from then on.
//
// IDs is safe for concurrent use.
type IDs struct {
	learned *lru.Cache[uuid.UUID, string] // the server's id, where it is another
}

// NewIDs returns an IDs that keeps so many ids of the server, the newest; 0 means DefaultLearned.
func NewIDs(keep int) *IDs {
	if keep <= 0 {
		keep = DefaultLearned
	}
	learned, err := lru.New[uuid.UUID, string](keep)
	if err != nil {
		panic(err) // the size is positive
	}
	return &IDs{learned}
}

// Of returns the id of an event: the one that the server has named, or else one of version 5
// (RFC 9562). The event must have its key, or name the cause from which the log derives it.
func (ids *IDs) Of(e *runlogv1.EventWrite) string {
	own := derived(e)
	if id, ok := ids.learned.Get(own); ok {
		return id
	}
	return own.String()
}

// Learn takes the id in the server's answer to an event as its id.
func (ids *IDs) Learn(e *runlogv1.EventWrite, answer *runlogv1.AppendResult) {
	own := derived(e)
	if id := answer.GetEventId(); id != "" && id != own.String() {
		ids.learned.Add(own, id)
	}
}

// derived is the id of an event that has none from the server.
func derived(e *runlogv1.EventWrite) uuid.UUID {
	name := e.GetRunId() + "\x00" + e.GetIdempotencyKey()
	if e.GetIdempotencyKey() == "" {
		name += "\x00" + e.GetEventType() + "\x00" + e.GetStepId() + "\x00" + e.GetCausedBySignalId()
	}
	return uuid.NewSHA1(space, []byte(name))
}
