package temporal

import (
	"encoding/json"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"runlog/engine/plan"
	"runlog/proto/contract"
)

// SignalName is that of all signals in Temporal. Channels of several names would have no order.
const SignalName = "runlog"

// Limits of signals in Temporal (SIG-5). What the log has accepted is not lost by them.
const (
	maxSignalBytes = 64 << 10
	maxBells       = 60 // in a minute
)

// bells are the signals that come in Temporal. Each says that the log may have accepted others.
type bells struct {
	channel workflow.ReceiveChannel
	// rung: the log is to be read.
	rung bool
	// cancelled is the reason of an adapter's CancelRun; nil: there is none.
	cancelled *string
	// signals are those that the log has accepted, and that are not obeyed yet.
	signals []Signal
	// since and reads count how often the log was read in a minute.
	since time.Time
	reads int
	// timer ends with the minute, if the log is to be read then; nil: it is not set.
	timer workflow.Future
}

func (b *bells) open(ctx workflow.Context) { b.channel = workflow.GetSignalChannel(ctx, SignalName) }

// drain takes the signals that have come. A continuation would lose what it does not take.
func (b *bells) drain() {
	for {
		var value converter.RawValue
		if !b.channel.ReceiveAsync(&value) {
			return
		}
		b.take(value)
	}
}

// take takes a signal of any form: the senders are anybody with access to the namespace.
func (b *bells) take(value converter.RawValue) {
	data := value.Payload().GetData()
	if len(data) > maxSignalBytes {
		return
	}
	b.rung = true
	var s Signal
	if json.Unmarshal(data, &s) == nil && s.Seq == 0 && s.Type == signalCancel && b.cancelled == nil {
		b.cancelled = &s.Reason
	}
}

// may reports whether the log may be read now, and counts it.
func (b *bells) may(now time.Time) bool {
	if now.Sub(b.since) >= time.Minute {
		b.since, b.reads = now, 0
	}
	b.reads++
	return b.reads <= maxBells
}

// add has a selector wait for a signal, or for the time to read the log.
func (b *bells) add(ctx workflow.Context, s workflow.Selector) {
	s.AddReceive(b.channel, func(c workflow.ReceiveChannel, _ bool) {
		var value converter.RawValue
		c.Receive(ctx, &value)
		b.take(value)
	})
	if b.rung && b.timer == nil {
		b.timer = workflow.NewTimer(ctx, time.Minute-workflow.Now(ctx).Sub(b.since))
	}
	if b.timer != nil {
		s.AddFuture(b.timer, func(workflow.Future) { b.timer = nil })
	}
}

// listen obeys the signals that the log has accepted.
func (w *interpreter) listen() error {
	for w.ended == "" {
		w.bells.drain()
		if reason := w.bells.cancelled; reason != nil && w.stop == nil {
			w.end(&ending{kind: contract.RunCancelled, payload: object("reason", *reason)})
		}
		if w.bells.rung && w.bells.may(workflow.Now(w.ctx)) {
			w.bells.rung = false
			if _, err := w.tell(false); err != nil {
				return err
			}
		}
		if len(w.bells.signals) == 0 {
			return nil
		}
		next := w.bells.signals[0]
		w.bells.signals = w.bells.signals[1:]
		if err := w.obey(next); err != nil {
			return err
		}
	}
	return nil
}

// obey does what a signal asks. The log has decided that it may; what has become pointless since
// has no effect.
func (w *interpreter) obey(s Signal) error {
	switch s.Type {
	case signalPause:
		return w.pause(s)
	case signalResume:
		if !w.cursor.Paused || w.stop != nil {
			return nil
		}
		return w.resume(s)
	case signalCancel, signalStop:
		why := &ending{kind: contract.RunCancelled, cause: s.ID, now: s.Type == signalStop}
		if s.Reason != "" {
			why.payload = object("reason", s.Reason)
		}
		w.end(why)
	case signalRetry:
		return w.retry(s)
	case signalSkip:
		w.leave(s)
	case signalParams: // Steps that start from now on get them.
		w.cursor.Params = max(w.cursor.Params, s.Seq)
	}
	return nil
}

// resume goes on with a run, for a RESUME, or for the RETRY_STEP of a run that a failed step holds.
func (w *interpreter) resume(s Signal) error {
	w.cursor.Paused = false
	w.show("RUNNING")
	_, err := w.tell(false, Event{Type: runResumed, Cause: s.ID})
	return err
}

func (w *interpreter) pause(s Signal) error {
	if w.cursor.Paused || w.stop != nil {
		return nil
	}
	w.cursor.Paused = true
	w.show("PAUSED")
	payload, err := json.Marshal(map[string]any{"draining": len(w.flights) > 0, "inFlight": len(w.flights)})
	if err != nil {
		panic(err)
	}
	if _, err := w.tell(false, Event{Type: runPaused, Cause: s.ID, Payload: payload}); err != nil {
		return err
	}
	if w.in.Settings.CancelOnPause {
		for _, f := range w.flights {
			f.paused = true
			f.cancel()
		}
	}
	return nil
}

// retry opens the next logical attempt of a step (SIG-7). The log may have its failure before
// Temporal has the answer of the activity: then it begins once the activity has ended.
func (w *interpreter) retry(s Signal) error {
	step := w.cursor.Steps[s.StepID]
	if s.Next <= step.attempt() || w.plan == nil || w.plan.Step(s.StepID) == nil {
		return nil
	}
	step.Retry, step.Cause = s.Next, s.ID
	w.cursor.Steps[s.StepID] = step.retried()
	if !w.cursor.Held || w.stop != nil {
		return nil
	}
	return w.resume(s)
}

// retried returns a step in its next attempt, if one was asked for and the last one has failed.
func (s Step) retried() Step {
	if s.Status != plan.Failed || s.Retry <= s.attempt() {
		return s
	}
	return Step{Attempt: s.Retry, Cause: s.Cause}
}

// leave skips a step. If it is under way it is cancelled, unless it ends before.
func (w *interpreter) leave(s Signal) {
	step := w.cursor.Steps[s.StepID]
	if step.Status != "" || w.plan == nil || w.plan.Step(s.StepID) == nil {
		return
	}
	step.Skip = s.ID
	w.cursor.Steps[s.StepID] = step
	for _, f := range w.flights {
		if f.step.ID == s.StepID {
			f.cancel()
		}
	}
}
