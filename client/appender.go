package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"

	"runlog/client/internal/wire"
	runlogv1 "runlog/proto/runlog/v1"
)

// Defaults of AppenderOptions.
const (
	DefaultStreams     = 2
	DefaultMaxBytes    = 64 << 20
	DefaultMaxInFlight = 512
)

// AppenderOptions configure an Appender. The zero value works.
type AppenderOptions struct {
	// Streams is the number of AppendStreams that share the runs. 0 means DefaultStreams.
	Streams int
	// MaxBytes bounds the encoded events that have no answer yet. Append waits for room. 0 means
	// DefaultMaxBytes.
	MaxBytes int64
	// MaxInFlight bounds the messages of one stream that have no answer yet. 0 means
	// DefaultMaxInFlight.
	MaxInFlight int
}

// EnsureDefaults returns o with defaults in place of zero values.
func (o AppenderOptions) EnsureDefaults() AppenderOptions {
	if o.Streams == 0 {
		o.Streams = DefaultStreams
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
	return o
}

// Validate reports every fault of o, which must have its defaults.
func (o AppenderOptions) Validate() error {
	var faults []error
	if o.Streams < 0 {
		faults = append(faults, fmt.Errorf("client: Streams is %d, want 0 or more", o.Streams))
	}
	if o.MaxBytes < 0 {
		faults = append(faults, fmt.Errorf("client: MaxBytes is %d, want 0 or more", o.MaxBytes))
	}
	if o.MaxInFlight < 0 {
		faults = append(faults, fmt.Errorf("client: MaxInFlight is %d, want 0 or more", o.MaxInFlight))
	}
	return errors.Join(faults...)
}

// ErrClosed is within the error of a call on a Client or an Appender that was closed.
var ErrClosed = errors.New("client: closed")

// Appender appends events for any number of goroutines over a few streams. Its methods look like
// unary calls. Calls that wait for the same run share a message, so that many small appends cost
// little more than one large one.
//
//	Append ─▶ queue of its run ─▶ one message in flight for each run ─▶ stream ─▶ answers
//	               ▲                                                      │
//	               └── refused for now, or the stream broke: first again ─┘
//
// The events of one run are stored in the order of the calls, also when streams break, leaders
// change and servers restart; a call that begins after another one of its run has returned comes
// after it. Events of different runs have no order.
//
// An Appender is safe for concurrent use.
type Appender struct {
	client *Client
	opts   AppenderOptions
	room   *semaphore.Weighted
	ctx    context.Context // of the streams
	end    context.CancelFunc
	lanes  []*lane
	served sync.WaitGroup // the lanes

	queue
}

// Result is the answer to an append.
type Result struct {
	// Events has one result for each event, in order.
	Events []*runlogv1.AppendResult
	// LastSeq is the highest runSeq of the run when these events were stored, or later.
	LastSeq uint64
	// Position is an opaque place in the commit order at which all of the events are visible. It is
	// refused after a restore or a recovery of the cluster (READ-7).
	Position string
}

// NewAppender starts an Appender. Shutdown or Close ends it, and so does Close of the Client.
func (c *Client) NewAppender(opts AppenderOptions) (*Appender, error) {
	opts = opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	a := newAppender(c, opts)
	for range opts.Streams {
		l := &lane{a: a}
		a.lanes = append(a.lanes, l)
		a.served.Go(l.run)
	}
	if !c.appenders.add(a) { // from here on, Close of the Client waits for the lanes
		a.Close()
		return nil, fmt.Errorf("%w: an Appender needs an open Client", ErrClosed)
	}
	return a, nil
}

// newAppender returns an Appender without lanes.
func newAppender(c *Client, opts AppenderOptions) *Appender {
	a := &Appender{client: c, opts: opts, room: semaphore.NewWeighted(opts.MaxBytes)}
	a.ctx, a.end = context.WithCancel(context.Background())
	a.init()
	return a
}

// Append stores 1 to 1,000 events of one run, all or none (APP-3), and returns when their outcome
// is known or ctx ends. The events name their run; one without an eventId gets one.
//
// If ctx ends while the events are on their way, the error is OUTCOME_UNKNOWN, and they may still
// be stored; if they were never sent, it says that nothing was stored.
func (a *Appender) Append(ctx context.Context, events ...*runlogv1.EventWrite) (Result, error) {
	switch {
	case len(events) == 0:
		return Result{}, invalid("events", "is empty; send 1 to 1,000 events")
	case events[0].GetRunId() == "":
		return Result{}, invalid("events[0].runId", "is missing; name the run in the events, or use AppendRequest")
	}
	return a.AppendRequest(ctx, &runlogv1.AppendEventsRequest{RunId: events[0].GetRunId(), Events: events})
}

// AppendRequest is Append for a request, which may have a fence (QUE-8) or an expected last runSeq
// (APP-4).
func (a *Appender) AppendRequest(ctx context.Context, req *runlogv1.AppendEventsRequest) (Result, error) {
	if t := a.client.opts.Timeout; t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	ctx, done := a.client.opts.Observer.Append(ctx, req.GetRunId(), len(req.GetEvents()))
	res, failure := a.append(ctx, req)
	if failure != nil {
		done(failure.Name())
		return res, failure
	}
	done("ok")
	return res, nil
}

func (a *Appender) append(ctx context.Context, req *runlogv1.AppendEventsRequest) (Result, *Error) {
	switch {
	case ctx.Err() != nil:
		return Result{}, unsent(ctx)
	case len(req.GetEvents()) == 0:
		return Result{}, invalid("events", "is empty; send 1 to 1,000 events")
	case req.GetRunId() == "":
		return Result{}, invalid("runId", "is missing; name the run of the events")
	}
	if refusal := nameEvents(req.GetEvents()); refusal != nil {
		return Result{}, refusal
	}
	size, err := wire.Size(req, a.opts.MaxBytes)
	if err != nil {
		return Result{}, unencoded(err)
	}
	if a.room.Acquire(ctx, int64(size)) != nil { // before there is a copy of the events
		return Result{}, unsent(ctx)
	}
	encoded, err := wire.Encode(req, size)
	if err != nil {
		a.room.Release(int64(size))
		return Result{}, unencoded(err)
	}
	c := a.newPending(req, encoded, size)
	if !a.add(c) {
		a.release(c)
		return Result{}, closedError()
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if failure := a.abandon(ctx, c); failure != nil {
			return Result{}, failure
		}
		<-c.done // its outcome came first
	}
	res, failure := c.res, c.failure
	a.free(c)
	return res, failure
}

// release gives back the room of an append that has ended.
func (a *Appender) release(c *pending) { a.room.Release(c.room) }

// Shutdown refuses new appends, waits until those under way have ended, and closes the Appender. If
// ctx ends first, it closes the Appender at once, as Close does, and returns the error of ctx.
func (a *Appender) Shutdown(ctx context.Context) error {
	var err error
	select {
	case <-a.refuse():
	case <-ctx.Done():
		err = ctx.Err()
	}
	a.Close()
	return err
}

// Close ends the Appender and every append that is under way. Those that are on their way to a
// server fail with OUTCOME_UNKNOWN.
func (a *Appender) Close() {
	a.refuse()
	a.fail(closedError())
	a.end()
	a.served.Wait()
	a.client.appenders.remove(a)
}

// unencoded refuses on this side what a server cannot be sent.
func unencoded(err error) *Error {
	if e, ok := errors.AsType[*wire.EventError](err); ok {
		return invalid(fmt.Sprintf("events[%d]", e.Index), e.Error())
	}
	e := invalid("events", err.Error())
	e.Reason, e.Violations[0].Reason = ReasonPayloadTooLarge, ReasonPayloadTooLarge
	return e
}

// unsent is the failure of an append whose context ended before any of it was sent.
func unsent(ctx context.Context) *Error {
	e := &Error{Code: codes.Canceled, Message: "the context ended before the events were sent; nothing was stored", causes: []error{ctx.Err()}}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code = codes.DeadlineExceeded
	}
	return e
}

func closedError() *Error {
	return &Error{Code: codes.Canceled, Message: "the Appender is closed; nothing was stored", causes: []error{ErrClosed}}
}

// appenders of a Client, which end with it.
type appenders struct {
	mu     sync.Mutex
	open   map[*Appender]struct{}
	closed bool
}

func (s *appenders) add(a *Appender) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.open == nil {
		s.open = make(map[*Appender]struct{})
	}
	s.open[a] = struct{}{}
	return true
}

func (s *appenders) remove(a *Appender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, a)
}

func (s *appenders) close() {
	s.mu.Lock()
	s.closed = true
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for a := range open {
		a.Close()
	}
}
