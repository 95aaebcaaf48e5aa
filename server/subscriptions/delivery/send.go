package delivery

import (
	"errors"
	"strings"
	"time"

	"runlog/server/rpc"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/window"
	"runlog/storage/machine/subscription"
)

const (
	// sendBatch is how many events one step sends.
	sendBatch = 256
	// maxErrorBytes bounds how long the text of a failed attempt is, in bytes.
	maxErrorBytes = 1 << 10
)

// sends reports whether there is something to hand to the sink.
func (s *subscriber) sends() bool { return !s.pull() && s.window.Ready() && !s.overdue() }

// sendSome hands events that are ready to the sink.
func (s *subscriber) sendSome() (sent bool, err error) {
	to, err := s.openSink()
	if err != nil {
		s.noteError(err)
		return false, err
	}
	list, err := s.window.Take(s.term.now(), sendBatch)
	from := origin{s.window, s.changes}
	for i := range list {
		s.send(to, from, &list[i])
	}
	return len(list) > 0, err
}

// origin is the state of a subscriber in which an attempt began.
type origin struct {
	window  *window.Window
	changes uint64
}

// send hands an event to the sink.
func (s *subscriber) send(to Sink, from origin, d *window.Delivery) {
	p := window.Place{RunID: d.Run.RunID, Seq: d.Record.RunSeq}
	e := &cloudevent.Event{Record: d.Record, Cluster: s.term.opts.Cluster, Position: rpc.FormatPosition(s.term.opts.Node.Store().Incarnation(), d.Record.Position)}
	to.Send(s.term.ctx, e, func(err error) {
		s.post(func() { s.done(from, p, err) })
	})
}

// done settles an attempt of a sink.
func (s *subscriber) done(from origin, p window.Place, err error) {
	if err != nil && s.term.ctx.Err() != nil {
		return // The next leader delivers it.
	}
	if s.closed || from.window != s.window {
		return // The subscription was deleted, or its cursor was moved.
	}
	switch {
	case err == nil:
		s.window.Ack(p)
		s.lastError = ""
	case errors.Is(err, attempt.ErrClosed): // It has not failed: another sink takes over.
		s.window.Return(p)
	default:
		s.noteError(err)
		after := time.Duration(-1)
		if busy, ok := errors.AsType[*attempt.BusyError](err); ok {
			// Sooner than others, an event would have used up its attempts within a short outage.
			after = max(busy.After, s.window.Backoff(p))
		}
		_, permanent := errors.AsType[*attempt.PermanentError](err)
		s.window.Fail(p, clip(err.Error()), permanent, after, s.term.now())
		if _, gone := errors.AsType[*attempt.GoneError](err); gone && from.changes == s.changes {
			s.pause()
		}
	}
	s.dirty()
	s.nudged = true
}

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "") }

func (s *subscriber) noteError(err error) {
	s.lastError, s.lastErrorAt = clip(err.Error()), s.term.opts.Clock().UnixNano()
}

func (s *subscriber) openSink() (Sink, error) {
	if s.sink != nil {
		return s.sink, nil
	}
	to, err := s.term.opts.OpenSink(s.row.Name.Tenant, s.row.Settings.Delivery, int(s.row.Settings.MaxInFlight))
	s.sink = to
	return to, err
}

func (s *subscriber) closeSink() {
	if to := s.sink; to != nil {
		s.sink = nil
		s.term.owners.Go(func() { s.term.ignore(to.Close()) })
	}
}

// pause stops a subscription whose sink wants nothing more. Many answers may say so at a time: one
// pause is enough, and those behind it could undo a resume. So could an attempt that began before
// the resume.
func (s *subscriber) pause() {
	if s.pausing {
		return
	}
	s.pausing = true
	t, name := s.term, s.row.Name
	t.owners.Go(func() {
		op, err := subscription.Pause(name, true)
		if err == nil {
			_, err = t.execute(t.ctx, op)
		}
		if err != nil && t.ctx.Err() == nil {
			t.log.Error("cannot pause a subscription whose endpoint is gone", "subscription", name, "err", err)
			s.post(func() { s.pausing = false }) // The next answer tries again.
			return
		}
		t.log.Warn("subscription paused", "subscription", name, "cause", "its endpoint answered 410 Gone")
	})
}
