// Package writer is the write policy of an engine: each write has a budget of time. If the log does
// not answer within it, events that may come late wait in an outbox on this machine, and are sent
// later, in order. All others fail, and the engine fails the step.
//
//	Write ──▶ Appender, within the budget ──▶ stored
//	             │ over the budget
//	             ├─ StepStarted: outbox ──▶ parked ──▶ Appender, once the log answers again
//	             └─ StepCompleted, StepFailed, …: *BudgetError
//
// The events of a run keep their order. While a run has events in the outbox, further ones that may
// come late go straight there, and all others wait, within their budget, until it has none.
//
// After a long outage, the outbox is sent at the next try of the Appender. So MaxBackoff of
// client.Options must be well below Budget, as it is by default: else a run whose StepStarted was
// parked fails its next write, though the log answers.
package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"runlog/client"
	"runlog/client/events"
	"runlog/client/outbox"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// DefaultBudget is the time after which an engine goes on without the log.
	DefaultBudget = 3 * time.Second
	// parkTime is the part of the budget that is kept for the outbox, whose answer needs an fsync.
	// A disk that does not answer gets as long again.
	parkTime = 25 * time.Millisecond
	// drainWorkers is how many runs of the outbox are sent at a time.
	drainWorkers = 8
	// sendTime, and sendByte for each byte, bound the tries of one record: the log may not take
	// those of its run or tenant. A slow network is not the cause.
	sendTime = 10 * time.Second
	sendByte = 10 * time.Microsecond
	// pauseAfter is the wait after the log has refused the credentials, or the client was closed:
	// the Appender repeats everything else.
	pauseAfter = 5 * time.Second
)

// Appender is what a Writer needs of a client.Appender.
type Appender interface {
	AppendRequest(context.Context, *runlogv1.AppendEventsRequest) (client.Result, error)
}

// Options of a Writer. Outbox is required.
type Options struct {
	// Outbox takes what exceeds the budget. The caller closes it, after the Writer. One Writer at a
	// time may have it.
	Outbox *outbox.Outbox
	// Budget is the longest time of one Write, at least 100 ms. 0 means DefaultBudget.
	Budget time.Duration
	// FailOpen are the event types that may wait in the outbox. nil: StepStarted. StepCompleted and
	// StepFailed are never among them.
	FailOpen []string
	// IDs learns the ids in the answers. nil: nothing does.
	IDs *events.IDs
	// Logger is told when events begin to wait in the outbox, and when all are sent. nil: none.
	Logger *slog.Logger
}

// EnsureDefaults returns o with defaults in place of zero values.
func (o Options) EnsureDefaults() Options {
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.FailOpen == nil {
		o.FailOpen = []string{contract.StepStarted}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every fault of o, which must have its defaults.
func (o Options) Validate() error {
	var faults []error
	if o.Outbox == nil {
		faults = append(faults, errors.New("writer: Outbox is missing"))
	}
	if o.Budget < 4*parkTime {
		faults = append(faults, fmt.Errorf("writer: Budget is %v, want %v or more", o.Budget, 4*parkTime))
	}
	for _, never := range []string{contract.StepCompleted, contract.StepFailed} {
		if slices.Contains(o.FailOpen, never) {
			faults = append(faults, fmt.Errorf("writer: %s may not be in FailOpen: the engine must know whether it is stored", never))
		}
	}
	return errors.Join(faults...)
}

// Writer writes events within a budget. It is safe for concurrent use.
type Writer struct {
	opts   Options
	log    Appender
	end    context.CancelFunc
	served sync.WaitGroup

	mu     sync.Mutex
	parked map[string]*backlog // by run
	// refused is the error of the last try to send the outbox. nil: it succeeded, or none has
	// ended.
	refused error
}

// backlog has the records of one run in the outbox.
type backlog struct {
	records int
	puts    int           // under way, of these
	gone    chan struct{} // closed when there are none
}

// Result is the outcome of a Write without an error.
type Result struct {
	client.Result
	// Parked: the events are in the outbox, on stable storage, and not in the log yet. The rest of
	// the Result is empty.
	Parked bool
}

// BudgetError means that the log did not answer within the budget, and the events may not wait. The
// engine fails the step. Its cause is the *client.Error of the last try, or says that earlier
// events of the run still wait in the outbox; these events were not sent then.
type BudgetError struct {
	Budget time.Duration
	Cause  error
}

// Error names the budget and the cause.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("the log did not answer within the write budget of %v; fail the step: %v", e.Budget, e.Cause)
}

// Unwrap returns the cause.
func (e *BudgetError) Unwrap() error { return e.Cause }

// New starts a Writer. It begins to send what the outbox has from before.
func New(log Appender, opts Options) (*Writer, error) {
	if log == nil {
		return nil, errors.New("writer: the Appender is missing")
	}
	opts = opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	w := &Writer{opts: opts, log: log, parked: make(map[string]*backlog)}
	for r, err := range opts.Outbox.Pending() {
		if err != nil && !errors.Is(err, outbox.ErrUnreadable) {
			return nil, fmt.Errorf("writer: %w", err)
		}
		if err == nil {
			w.park(r.Request.GetRunId(), 0)
		}
	}
	ctx, end := context.WithCancel(context.Background())
	w.end = end
	w.served.Go(func() { w.reconcile(ctx) })
	return w, nil
}

// Close ends the sending. What is in the outbox stays there for the next Writer, or for "runlog
// outbox drain". The caller ends its Writes before.
func (w *Writer) Close() {
	w.end()
	w.served.Wait()
}

// Write stores events of one run, or parks them in the outbox if all of them may wait. The events
// name their run. Events that may wait are parked after any failure but a final one (Error.Final):
// at once, if the log refuses the credentials.
//
// An error means that neither was done, as far as is known. It is a *BudgetError, the *client.Error
// of a refusal, an error of the outbox, such as outbox.ErrFull, or the error of ctx. After an
// *outbox.UnsettledError the events may be parked.
func (w *Writer) Write(ctx context.Context, events ...*runlogv1.EventWrite) (Result, error) {
	req := &runlogv1.AppendEventsRequest{Events: events}
	if len(events) > 0 {
		req.RunId = events[0].GetRunId()
	}
	return w.WriteRequest(ctx, req)
}

// WriteRequest is Write for a request, which may have a fence.
func (w *Writer) WriteRequest(ctx context.Context, req *runlogv1.AppendEventsRequest) (Result, error) {
	began := time.Now()
	late := w.mayWait(req)
	if late && w.backlogOf(req.GetRunId()) != nil {
		return w.putBy(ctx, req, began.Add(w.opts.Budget), nil)
	}
	bounded, cancel := context.WithDeadline(ctx, began.Add(w.opts.Budget-parkTime))
	defer cancel()
	if !late { // A record that was parked meanwhile is no earlier one.
		if err := w.await(bounded, req.GetRunId()); err != nil {
			return Result{}, w.failed(ctx, err)
		}
	}
	res, err := w.log.AppendRequest(bounded, req)
	if err == nil {
		w.learn(req, res)
		return Result{Result: res}, nil
	}
	if late && ctx.Err() == nil && !final(err) {
		return w.putBy(ctx, req, began.Add(w.opts.Budget), err)
	}
	return Result{}, w.failed(ctx, err)
}

// mayWait reports whether all events of a request may wait in the outbox. A condition on the run's
// last runSeq may not: it is about now.
func (w *Writer) mayWait(req *runlogv1.AppendEventsRequest) bool {
	late := len(req.GetEvents()) > 0 && req.ExpectedLastSeq == nil
	for _, e := range req.GetEvents() {
		late = late && slices.Contains(w.opts.FailOpen, e.GetEventType())
	}
	return late
}

// final reports whether the log has refused the events for good.
func final(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Final()
}

// holds reports whether the log, which answers, does not take the events of a run or a tenant now.
func holds(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && (e.Code == codes.PermissionDenied || e.Code == codes.ResourceExhausted)
}

// failed is the error of a write that is not stored as far as is known.
func (w *Writer) failed(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return &BudgetError{w.opts.Budget, err}
	}
	return err
}

func (w *Writer) learn(req *runlogv1.AppendEventsRequest, res client.Result) {
	if w.opts.IDs == nil {
		return
	}
	for i, e := range req.GetEvents() {
		w.opts.IDs.Learn(e, res.Events[i])
	}
}

// putBy parks a request. cause is why it was not stored; nil: earlier events of its run are parked.
func (w *Writer) putBy(ctx context.Context, req *runlogv1.AppendEventsRequest, deadline time.Time, cause error) (Result, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(parkTime))
	defer cancel()
	if err := client.NameEvents(req.GetEvents()); err != nil {
		return Result{}, err
	}
	// Before the record is in the outbox: it may be sent at once.
	b, first := w.park(req.GetRunId(), 1)
	if first {
		w.opts.Logger.WarnContext(ctx, "the log does not store events; they wait in the outbox", "path", w.opts.Outbox.Path(), "err", cause)
	}
	_, err := w.opts.Outbox.Put(ctx, req)
	if unsettled, ok := errors.AsType[*outbox.UnsettledError](err); ok {
		// The record may be there: until the outbox tells, which it does before its Close returns,
		// later events of the run stay behind it.
		run := req.GetRunId()
		go func() { w.placed(b, run, <-unsettled.Outcome) }()
		return Result{}, unparked("writer: the events may be in the outbox, and be sent later", err, cause)
	}
	if w.placed(b, req.GetRunId(), err); err == nil {
		return Result{Parked: true}, nil
	}
	return Result{}, unparked("writer: the events are neither in the log nor in the outbox", err, cause)
}

// unparked is the error of a Put. cause is why the events were not stored before; nil: they were
// not tried.
func unparked(what string, err, cause error) error {
	err = fmt.Errorf("%s: %w", what, err)
	if cause != nil {
		err = fmt.Errorf("%w; the log: %w", err, cause)
	}
	return err
}

// placed notes the outcome of a Put for a backlog, that of a run.
func (w *Writer) placed(b *backlog, run string, err error) {
	w.mu.Lock()
	b.puts--
	w.mu.Unlock()
	if err != nil {
		w.unpark(run)
	}
}

// park counts a record of a run, which is there after so many Puts. It returns the run's backlog,
// and reports whether the record is the first one of all.
func (w *Writer) park(run string, puts int) (b *backlog, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b = w.parked[run]
	if b == nil {
		b = &backlog{gone: make(chan struct{})}
		w.parked[run] = b
	}
	b.records++
	b.puts += puts
	return b, len(w.parked) == 1 && b.records == 1
}

// unpark is for a record that is no longer in the outbox. It reports whether it was the last one.
func (w *Writer) unpark(run string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.parked[run]
	if b == nil {
		return false // damage hid it when the Writer began
	}
	if b.records--; b.records == 0 {
		close(b.gone)
		delete(w.parked, run)
	}
	return len(w.parked) == 0
}

func (w *Writer) backlogOf(run string) *backlog {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parked[run]
}

// await waits until the outbox has no record of a run.
func (w *Writer) await(ctx context.Context, run string) error {
	for b := w.backlogOf(run); b != nil; b = w.backlogOf(run) {
		select {
		case <-b.gone:
		case <-ctx.Done():
			if refused := w.blocked(); refused != nil {
				return fmt.Errorf("earlier events of run %q wait in the outbox, which cannot be sent (%w): %w", run, refused, ctx.Err())
			}
			return fmt.Errorf("earlier events of run %q wait in the outbox: %w", run, ctx.Err())
		}
	}
	return nil
}

func (w *Writer) blocked() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

func (w *Writer) setBlocked(refused error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = refused
}

// reconcile sends what is in the outbox, whenever there is something.
func (w *Writer) reconcile(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-w.opts.Outbox.Ready():
			if !open {
				return
			}
		}
		for {
			err := w.opts.Outbox.Drain(ctx, drainWorkers, w.send)
			if ctx.Err() != nil {
				return
			}
			if errors.Is(err, outbox.ErrUnreadable) { // All others are sent.
				w.opts.Logger.ErrorContext(ctx, "a record of the outbox cannot be read", "path", w.opts.Outbox.Path(), "err", err)
				w.forget()
				err = nil
			}
			if w.setBlocked(err); err == nil {
				break
			}
			w.opts.Logger.WarnContext(ctx, "the outbox cannot be sent; trying again", "path", w.opts.Outbox.Path(), "err", err)
			var more <-chan struct{} // Other runs than those that are held need not wait.
			if _, held := errors.AsType[*outbox.HoldError](err); held {
				more = w.opts.Outbox.Ready()
			}
			select {
			case <-ctx.Done():
				return
			case <-more:
			case <-time.After(pauseAfter):
			}
		}
	}
}

// forget lets those runs go on of which the outbox has unreadable records alone: nothing sends
// them.
func (w *Writer) forget() {
	stuck := map[string]int{} // records by run
	w.mu.Lock()
	for run, b := range w.parked {
		if b.puts == 0 {
			stuck[run] = b.records
		}
	}
	w.mu.Unlock()
	for r, err := range w.opts.Outbox.Pending() {
		if err != nil && !errors.Is(err, outbox.ErrUnreadable) {
			return
		}
		delete(stuck, r.Request.GetRunId())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for run, records := range stuck {
		if b := w.parked[run]; b != nil && b.puts == 0 && b.records == records {
			close(b.gone)
			delete(w.parked, run)
		}
	}
}

// send sends a record of the outbox. The Appender repeats it until the log answers, or for
// sendTime.
func (w *Writer) send(ctx context.Context, r outbox.Record) error {
	bounded, cancel := context.WithTimeout(ctx, sendTime+sendByte*time.Duration(proto.Size(r.Request)))
	defer cancel()
	res, err := w.log.AppendRequest(bounded, r.Request)
	switch {
	case err == nil:
		w.learn(r.Request, res)
	case final(err):
		w.opts.Logger.ErrorContext(ctx, "the log refuses a record of the outbox for good",
			"path", w.opts.Outbox.Path(), "record", r.ID, "run", r.Request.GetRunId(), "err", err)
		err = &outbox.RefusedError{Reason: err.Error()}
	case holds(err):
		return &outbox.HoldError{Cause: err}
	default:
		return err
	}
	if w.unpark(r.Request.GetRunId()) {
		w.opts.Logger.InfoContext(ctx, "the outbox is sent", "path", w.opts.Outbox.Path())
	}
	return err
}
