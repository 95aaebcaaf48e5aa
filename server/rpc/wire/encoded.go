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
	// drainTimeout is how long a paused run has the substatus DRAINING (PRJ-9).
	drainTimeout func(runID string) time.Duration

	mu    sync.Mutex
	queue []encoding
	bytes int // in queue
}

// NewSnapshots makes a cache with a limit in bytes. The substatus DRAINING of a paused run ends
// after its drainTimeout (PRJ-9).
func NewSnapshots(limit int, drainTimeout func(runID string) time.Duration) *Snapshots {
	return &Snapshots{limit: limit, drainTimeout: drainTimeout}
}

// Page returns a page of a snapshot, and the place where the next page begins; nil: it is the last
// one. The first page also says what depends on the moment of the request (PRJ-9), and the metadata
// of the run where no event has said the same (PRJ-16); nil: the run has none. The caller owns the
// message.
//
// The shared bytes of a snapshot that is one page are in unknown fields, which are sent as they are
// (https://protobuf.dev/programming-guides/proto3/#unknowns).
func (e *Snapshots) Page(s *run.Snapshot, md *storage.Metadata, now time.Time, q PageOfSnapshot) (*runlogv1.RunSnapshot, *Place) {
	passing := new(runlogv1.RunSnapshot)
	if q.From == (Place{}) {
		passing = e.passing(s, md, now)
	}
	room := q.Bytes - proto.Size(passing)
	place := s.Encoded()
	if q.From != (Place{}) || q.Steps > 0 && s.Steps.Len() > q.Steps {
		place = nil // It is not the whole snapshot.
	}
	if place != nil {
		if data := place.Load(); data != nil && len(*data) <= room {
			passing.ProtoReflect().SetUnknown(*data)
			return passing, nil
		}
	}
	m, next := encodePage(s, q, room)
	if place != nil && next == nil {
		e.keep(place, m)
	}
	proto.Merge(m, passing)
	return m, next
}

// passing returns what a snapshot says that is not in the fold.
func (e *Snapshots) passing(s *run.Snapshot, md *storage.Metadata, now time.Time) *runlogv1.RunSnapshot {
	m := new(runlogv1.RunSnapshot)
	m.Substatus, m.Message = e.substatus(s.RunID, s.Drain(), now)
	if md == nil {
		return m
	}
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
	if s.TriggeredBy == "" && md.TriggeredBy != "" {
		m.TriggeredBy = &md.TriggeredBy
		m.FromMetadata = append(m.FromMetadata, "triggeredBy")
	}
	if s.TriggerSource == "" && md.TriggerSource != "" {
		m.TriggerSource = &md.TriggerSource
		m.FromMetadata = append(m.FromMetadata, "triggerSource")
	}
	m.Labels = md.Labels
	return m
}

// Mark returns the watermark of a run as of a moment (WATCH-1).
func (e *Snapshots) Mark(m *watch.Mark, now time.Time, lag time.Duration) *runlogv1.Watermark {
	substatus, message := e.substatus(m.RunID, m.Drain, now)
	return &runlogv1.Watermark{
		RunId:        m.RunID,
		LastEventSeq: m.LastEventSeq,
		Status:       runlogv1.RunStatus_Value(m.Status),
		Substatus:    substatus,
		Message:      message,
		PersistedAt:  OptionalTime(m.PersistedAt),
		LagMs:        lag.Milliseconds(),
	}
}

// Run converts a run and its projection, as of a moment. Where the metadata does not say it, the
// plan, the engine's type and the trigger are those of the events.
func (e *Snapshots) Run(r *storage.Run, s *run.Summary, now time.Time) *runlogv1.Run {
	m := runOf(r, s)
	m.Substatus, m.Message = e.substatus(r.RunID, s.Drain, now)
	return m
}

// substatus returns what a run says in addition to its status. Only one that drains has a timeout
// to look up.
func (e *Snapshots) substatus(runID string, d run.Drain, now time.Time) (substatus, message *string) {
	if d.Running == 0 {
		return nil, nil
	}
	is, says := d.Substatus(now, e.drainTimeout(runID))
	return Optional(is), Optional(says)
}

// Drains tells whether a snapshot has a substatus at a moment.
func (e *Snapshots) Drains(s *run.Snapshot, now time.Time) bool {
	substatus, _ := e.substatus(s.RunID, s.Drain(), now)
	return substatus != nil
}

type encoding struct {
	place *atomic.Pointer[[]byte]
	data  *[]byte
}

// keep stores the encoding of a snapshot, unless it is too large.
func (e *Snapshots) keep(place *atomic.Pointer[[]byte], m *runlogv1.RunSnapshot) {
	data, err := proto.Marshal(m)
	if err != nil || len(data) > e.limit/16 { // Sending it returns the error.
		return
	}
	one := encoding{place, &data}
	if !place.CompareAndSwap(nil, one.data) {
		return
	}
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
