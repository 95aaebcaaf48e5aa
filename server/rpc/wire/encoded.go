package wire

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/projector/run"
	"runlog/projector/watch"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// Snapshots is a cache of encoded snapshots, for readers and watchers of a run that does not change
// meanwhile. To make and encode the message of 50 steps takes many times as long as copying its
// bytes. An encoding is stored with its snapshot and is freed with it. Above the limit the oldest
// encodings are dropped.
type Snapshots struct {
	limit int // bytes
	// drainTimeout ends the substatus DRAINING of a paused run (PRJ-9).
	drainTimeout time.Duration

	mu    sync.Mutex
	queue []encoding
	bytes int // in queue
}

// NewSnapshots makes a cache with a limit in bytes. The substatus DRAINING of a paused run ends
// after drainTimeout (PRJ-9).
func NewSnapshots(limit int, drainTimeout time.Duration) *Snapshots {
	return &Snapshots{limit: limit, drainTimeout: drainTimeout}
}

// At returns the message of a snapshot as of a moment (PRJ-9), with the metadata of its run where
// no event has said the same (PRJ-16); nil: the run has none. The caller may add to it.
func (e *Snapshots) At(s *run.Snapshot, md *storage.Metadata, now time.Time) *runlogv1.RunSnapshot {
	substatus, message := s.Substatus(now, e.drainTimeout)
	m := e.Message(s)
	m.Substatus, m.Message = Optional(substatus), Optional(message)
	if md == nil {
		return m
	}
	// The shared bytes of the message have these fields if the snapshot has them.
	if s.PlanRef == nil && md.PlanRef != nil {
		m.PlanRef = planRef(md.PlanRef)
		m.FromMetadata = append(m.FromMetadata, "planRef")
	}
	if s.EngineType == "" && md.EngineType != "" {
		m.EngineType = &md.EngineType
		m.FromMetadata = append(m.FromMetadata, "engineType")
	}
	if s.EngineRunRef == "" && md.EngineRunRef != "" {
		m.EngineRunRef = &md.EngineRunRef
		m.FromMetadata = append(m.FromMetadata, "engineRunRef")
	}
	m.Labels = md.Labels
	return m
}

// Mark returns the watermark of a run as of a moment (WATCH-1).
func (e *Snapshots) Mark(m *watch.Mark, now time.Time, lag time.Duration) *runlogv1.Watermark {
	return &runlogv1.Watermark{
		RunId:        m.RunID,
		LastEventSeq: m.LastEventSeq,
		Status:       runlogv1.RunStatus_Value(m.Status),
		Substatus:    Optional(m.Substatus(now, e.drainTimeout)),
		PersistedAt:  OptionalTime(m.PersistedAt),
		LagMs:        lag.Milliseconds(),
	}
}

type encoding struct {
	place *atomic.Pointer[[]byte]
	data  *[]byte
}

// Message returns the snapshot's message. The caller owns it and may add to it. The shared bytes
// are in unknown fields, which are sent as they are
// (https://protobuf.dev/programming-guides/proto3/#unknowns).
func (e *Snapshots) Message(s *run.Snapshot) *runlogv1.RunSnapshot {
	place := s.Encoded()
	if place == nil {
		return encodeSnapshot(s)
	}
	data := place.Load()
	if data == nil {
		m := encodeSnapshot(s)
		encoded, err := proto.Marshal(m)
		if err != nil || len(encoded) > e.limit/16 {
			return m // Sending it returns the error.
		}
		data = &encoded
		if place.CompareAndSwap(nil, data) {
			e.keep(encoding{place, data})
		}
	}
	m := new(runlogv1.RunSnapshot)
	m.ProtoReflect().SetUnknown(*data)
	return m
}

func (e *Snapshots) keep(one encoding) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, one)
	e.bytes += len(*one.data)
	for e.bytes > e.limit {
		first := e.queue[0]
		e.queue[0] = encoding{}
		e.queue = e.queue[1:]
		first.place.CompareAndSwap(first.data, nil)
		e.bytes -= len(*first.data)
	}
}
