package window

import (
	"bytes"
	"sync/atomic"
	"time"

	"runlog/storage"
)

const (
	// laneEvents bounds what a lane keeps in memory.
	laneEvents = 256
	// eventBytes is about what an event takes in addition to its payload.
	eventBytes = 1 << 10
)

// Event is a stored event that matches the subscription. The windows of many subscriptions share
// what it leads to: nothing of it changes.
type Event struct {
	Run    *storage.Run
	Record *storage.Record
}

// Alone returns an event that shares no memory with the records that were decoded with it, which it
// would keep for as long as it is in a window.
func Alone(run *storage.Run, r *storage.Record) *Event {
	own := *r
	own.Payload, own.Extensions = bytes.Clone(r.Payload), bytes.Clone(r.Extensions)
	return &Event{run, &own}
}

// bytes is about what the event takes in memory.
func (e *Event) bytes() int64 { return int64(len(e.Record.Payload)) + eventBytes }

// Source reads events of a run again.
type Source interface {
	// Load returns at most n events that match, with a runSeq above after, that lie at or before a
	// position. more: there may be others behind them.
	Load(runID string, after uint64, through storage.Position, n int) (list []*Event, more bool, err error)
	// Letter returns an event that became a dead letter, whether or not it still matches; nil: the
	// log has none.
	Letter(runID string, seq uint64) (*Event, error)
}

// Settings of a subscription that the window follows.
type Settings struct {
	MaxInFlight int
	// MaxLanes bounds the runs that owe events, but for those that one entry adds.
	MaxLanes      int
	Memory        *Memory
	RetryInitial  time.Duration
	RetryMax      time.Duration
	MaxAttempts   uint32
	HoldRun       bool // OnDeadLetter is HOLD_RUN
	AckTimeout    time.Duration
	MaxLetters    uint64
	Paused        bool
	RandomBackoff func(most time.Duration) time.Duration
	// OnPark is called when an event becomes a dead letter. It must not call the window. Optional.
	OnPark func(*Parked)
}

// Memory bounds what the events of windows take, in bytes. Every window may have one event at
// least.
type Memory struct {
	One, All int64 // of one window, and of all
	used     atomic.Int64
}

// Window is what one subscription owes. One goroutine at a time uses it.
type Window struct {
	settings Settings
	source   Source
	lanes    map[string]*lane
	fresh    list // lanes whose next event may be handed out
	retries  list // such lanes whose last attempt has failed
	timers   timers
	delayed  int // lanes among timers that wait for their next attempt
	failures int // attempts that have failed since the last acknowledgement

	probe   *lane // one that is under way while the sink counts as down; nil: none is
	probes  int   // that have failed since the last acknowledgement
	probeAt int64 // when the next one may come; 0: at once

	readTo   storage.Position // everything up to it is in lanes, or settled
	events   int              // in memory
	bytes    int64
	inFlight int
	retried  int // of these, the ones that had failed before
	// freshLast: the last one that was handed out had not failed.
	freshLast bool
	handed    int    // since the last Slow
	squeezed  bool   // Spill was called, and not all was handed out that it has dropped
	unread    int    // events dropped by the last Spill, and those that a pause has dropped since
	letters   uint64 // parked, as the store and the next settlement have it

	acknowledged uint64 // since the last settlement
	parked       []Parked
	delivered    []Place
	flushed      storage.Position // readTo at the last settlement
	settled      storage.Position // the cursor in the store
}

// Place names an event.
type Place struct {
	RunID string
	Seq   uint64
}

// Parked is an event that has used up its attempts.
type Parked struct {
	Place
	EventID, EventType string
	Attempts           uint32
	Error              string

	again bool             // it was redriven
	at    storage.Position // otherwise
}

// Delivery is an event that is handed out.
type Delivery struct {
	*Event
	Attempt uint32 // from 1
}

// lane has the events of a run. Invariant: it is in w.lanes; it is in at most one of fresh,
// retries and timers.
type lane struct {
	runID    string
	queue    []*Event         // by runSeq; the first may be under way
	from     uint64           // what is behind the queue has a higher runSeq, if it was spilled
	fromAt   storage.Position // what is behind from lies there or behind it
	oldest   int64            // no event that was spilled has an earlier stamp; 0: none is known
	spilled  bool             // there may be more in the store
	dropped  int              // events that are known to be there, about
	attempts uint32           // failed ones, of the first event

	again         []uint64 // redriven dead letters, which come first
	redriven      *Event   // the one that is handed out, or waits
	againAttempts uint32
	letters       int // of the run: parked or redriven ones

	busy    bool
	retried bool  // what is under way had failed before
	timer   int64 // when busy ends, or the next attempt comes; 0: none
	index   int   // in timers
	next    *lane // in fresh or retries
	is      collection

	recorded     bool // the store says that the run owes
	recordedSeq  uint64
	recordedFail uint32
}

// collection is the one that a lane is in.
type collection uint8

const (
	nowhere collection = iota
	isFresh
	isRetry
	isTimed   // among timers: an event is under way
	isDelayed // among timers: for its next attempt
)

// New returns the window of a subscription whose cursor is at a position.
func New(settings Settings, source Source, cursor storage.Position) *Window {
	return &Window{
		settings: settings, source: source, lanes: map[string]*lane{},
		readTo: cursor, flushed: cursor, settled: cursor,
	}
}

// Set replaces the settings.
func (w *Window) Set(s Settings) {
	unheld := w.settings.HoldRun && !s.HoldRun
	w.settings = s
	w.trust() // The sink may be another one.
	if s.Paused {
		w.Spill()
	}
	if unheld {
		for _, l := range w.lanes {
			w.arrange(l)
		}
	}
}

func (w *Window) lane(runID string) *lane {
	l := w.lanes[runID]
	if l == nil {
		l = &lane{runID: runID}
		w.lanes[runID] = l
	}
	return l
}

// Owe adds what the store says of a run: its events from a runSeq on, up to the cursor, are owed.
func (w *Window) Owe(runID string, nextSeq uint64, attempts uint32) {
	l := w.lane(runID)
	l.from, l.fromAt, l.spilled, l.attempts = nextSeq-1, 0, true, attempts
	l.recorded, l.recordedSeq, l.recordedFail = true, nextSeq, attempts
	w.arrange(l)
}

// ReadTo is how far the log was read.
func (w *Window) ReadTo() storage.Position { return w.readTo }

// Full reports whether the window wants no more events for now. A paused window keeps none, but
// takes as many as others, and counts them.
func (w *Window) Full() bool {
	switch {
	case w.settings.Paused:
		return len(w.lanes) >= w.settings.MaxLanes || w.unread >= 2*w.settings.MaxInFlight
	case w.squeezed && w.waiting():
		return true
	}
	return len(w.lanes) >= w.settings.MaxLanes || w.events >= 2*w.settings.MaxInFlight || w.events > 0 && w.over()
}

// Room returns how many more events the window wants, by their number alone and not by their bytes.
func (w *Window) Room() int { return max(0, 2*w.settings.MaxInFlight-w.events) }

// Wants reports whether the window has room for many events.
func (w *Window) Wants() bool {
	return !w.Full() && (w.events == 0 || w.events < w.settings.MaxInFlight && w.bytes < w.settings.Memory.One/2)
}

// Ready reports whether Take may hand out an event.
func (w *Window) Ready() bool {
	return w.next() != nil && w.inFlight < w.settings.MaxInFlight && !w.settings.Paused && !w.blocked()
}

// Push adds the next events of the log that match: all of them that lie behind ReadTo, up to a
// position. There may be none.
func (w *Window) Push(to storage.Position, events ...*Event) {
	for _, e := range events {
		w.push(e)
	}
	w.readTo = max(w.readTo, to)
}

func (w *Window) push(e *Event) {
	l := w.lane(e.Run.RunID)
	if l.spilled || len(l.queue) >= laneEvents || w.holds(l) || w.settings.Paused {
		if !l.spilled {
			l.spilled, l.from, l.fromAt, l.oldest = true, e.Record.RunSeq-1, e.Record.Position, e.Record.PersistedAt
		}
		l.dropped++
		w.unread++
		w.arrange(l)
		return
	}
	l.queue = append(l.queue, e)
	w.keep(e)
	if len(l.queue) == 1 {
		w.arrange(l)
	}
}

func (w *Window) keep(e *Event) {
	w.events++
	w.bytes += e.bytes()
	w.settings.Memory.used.Add(e.bytes())
}

func (w *Window) drop(e *Event) {
	w.events--
	w.bytes -= e.bytes()
	w.settings.Memory.used.Add(-e.bytes())
}

// Close gives the memory of the window back. Nothing else is called after it.
func (w *Window) Close() { w.settings.Memory.used.Add(-w.bytes) }

// holds reports whether dead letters hold the later events of a run.
func (w *Window) holds(l *lane) bool { return w.settings.HoldRun && l.letters > 0 }

// arrange puts a lane into fresh or retries if it has an event to hand out, and forgets one that
// has nothing left.
func (w *Window) arrange(l *lane) {
	if l.busy || l.timer != 0 {
		return
	}
	if w.holds(l) && l.redriven == nil || w.settings.Paused {
		w.spill(l)
	}
	has := len(l.again) > 0 || !w.holds(l) && (len(l.queue) > 0 || l.spilled)
	switch {
	case has && l.is == nowhere:
		w.queue(l)
	case !has:
		w.forget(l)
	}
}

// forget drops a lane that nothing is left of.
func (w *Window) forget(l *lane) {
	if len(l.queue) == 0 && !l.spilled && len(l.again) == 0 && !w.holds(l) && !l.recorded && l.is == nowhere {
		delete(w.lanes, l.runID)
	}
}

// Take hands out at most n events. Each is under way until Ack, Fail or its deadline.
func (w *Window) Take(now int64, n int) (list []Delivery, err error) {
	if w.settings.Paused {
		return nil, nil
	}
	for len(list) < n && w.inFlight < w.settings.MaxInFlight && !w.blocked() {
		l := w.next()
		if l == nil {
			break
		}
		from := l.is
		w.unqueue(l)
		e, attempts, err := w.first(l)
		if err != nil {
			w.queue(l)
			return list, err
		}
		if e == nil {
			w.arrange(l)
			continue
		}
		w.begin(l, from)
		if w.settings.AckTimeout > 0 {
			w.wait(l, isTimed, now+int64(w.settings.AckTimeout))
		}
		list = append(list, Delivery{e, attempts + 1})
	}
	w.squeezed = w.squeezed && w.waiting()
	return list, nil
}

// first returns the event of a lane that comes next; nil: there is none.
func (w *Window) first(l *lane) (e *Event, attempts uint32, err error) {
	if l.redriven == nil && len(l.again) > 0 {
		e, err := w.source.Letter(l.runID, l.again[0])
		if err != nil {
			return nil, 0, err
		}
		if e == nil { // Nothing can be delivered.
			w.redelivered(l, l.again[0])
			return nil, 0, nil
		}
		l.redriven, l.againAttempts = e, 0
		w.keep(e)
	}
	if l.redriven != nil {
		return l.redriven, l.againAttempts, nil
	}
	if w.holds(l) {
		return nil, 0, nil
	}
	if len(l.queue) == 0 && l.spilled {
		if err := w.refill(l); err != nil {
			return nil, 0, err
		}
	}
	if len(l.queue) == 0 {
		return nil, 0, nil
	}
	return l.queue[0], l.attempts, nil
}

// refill reads what a lane has spilled.
func (w *Window) refill(l *lane) error {
	n := laneEvents
	if w.over() || l.attempts > 0 { // The next attempt may fail too, and drop all that was read.
		n = 1
	}
	list, more, err := w.source.Load(l.runID, l.from, w.readTo, n)
	if err != nil {
		return err
	}
	if len(list) == 0 || list[0].Record.RunSeq != l.from+1 {
		l.attempts = 0 // They were of an event that matches no more.
	}
	if len(list) > 0 {
		last := list[len(list)-1].Record
		l.from, l.fromAt = last.RunSeq, last.Position
	}
	for _, e := range list {
		w.keep(e)
	}
	l.queue, l.spilled, l.oldest, l.dropped = list, more, 0, max(0, l.dropped-len(list))
	switch {
	case !more:
		l.dropped = 0
	case len(list) > 0: // A run that is held is behind for as long as it does not read the rest.
		l.oldest = list[len(list)-1].Record.PersistedAt
	}
	return nil
}
