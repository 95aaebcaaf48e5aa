package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector"
	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// Moment is a moment of the log that a request names (TR-7). A time and a position are moments of
// all runs, a runSeq is one of its run.
type Moment struct {
	Kind MomentKind
	// Field is that of the request; empty: none.
	Field string
	// At is Always where Kind is MomentNow.
	At projector.AsOf
}

// MomentKind says how a request names a moment.
type MomentKind byte

// The kinds of moments.
const (
	MomentNow MomentKind = iota // the request names none
	MomentSeq
	MomentTime
	MomentPosition
)

// MomentFields is a request that names a moment in fields of their own.
type MomentFields interface {
	GetAsOfTime() *timestamppb.Timestamp
	GetAsOfPosition() string
}

// AsOf returns the moment that the fields of a request name. seq is its asOfSeq, if it has one.
func AsOf(req MomentFields, seq *uint64, in storage.Incarnation) (m Moment, err error) {
	timed, placed := req.GetAsOfTime() != nil, req.GetAsOfPosition() != ""
	switch {
	case placed && (timed || seq != nil):
		return m, Invalid("asOfPosition", "is set together with another moment; set one of them")
	case timed && seq != nil:
		return m, Invalid("asOfTime", "is set together with asOfSeq; set one of them")
	case seq != nil:
		return momentOfSeq("asOfSeq", *seq), nil
	case timed:
		at, err := Bound("asOfTime", req.GetAsOfTime())
		return momentOfTime("asOfTime", at), err
	case placed:
		return momentOfPosition("asOfPosition", req.GetAsOfPosition(), in)
	}
	return Moment{At: projector.Always}, nil
}

// ParseMoment parses the moment in a field of a request: a runSeq, a time of RFC 3339, or a
// position. An empty text is MomentNow. No text is of two kinds: a runSeq has digits alone, and the
// incarnation of a position has no hyphen where a time has one.
func ParseMoment(field, text string, in storage.Incarnation) (Moment, error) {
	if text == "" {
		return Moment{Field: field, At: projector.Always}, nil
	}
	if seq, err := strconv.ParseUint(text, 10, 64); err == nil && strconv.FormatUint(seq, 10) == text {
		return momentOfSeq(field, seq), nil
	}
	if at, _, ok := jsontext.Time([]byte(text)); ok {
		ns, err := Bound(field, timestamppb.New(at))
		return momentOfTime(field, ns), err
	}
	if _, _, ok := within(text); ok {
		return momentOfPosition(field, text, in)
	}
	return Moment{}, Invalid(field, "is "+contract.Quote(text)+", which is no moment: send a runSeq, such as 12, a time of RFC 3339, "+
		"such as 2026-02-11T10:30:00Z, or a position of an answer")
}

func momentOfSeq(field string, seq uint64) Moment {
	return Moment{Kind: MomentSeq, Field: field, At: projector.AsOfSeq(seq)}
}

func momentOfTime(field string, at int64) Moment {
	m := Moment{Kind: MomentTime, Field: field, At: projector.Always}
	m.At.Time = at
	return m
}

func momentOfPosition(field, text string, in storage.Incarnation) (Moment, error) {
	p, err := ParsePosition(field, text, in)
	m := Moment{Kind: MomentPosition, Field: field, At: projector.Always}
	m.At.Position = p
	return m, err
}

// MomentNode is the part of the replica that moments need.
type MomentNode interface {
	CloseThrough(ctx context.Context, at int64) (storage.Position, int64, error)
	Await(ctx context.Context, p storage.Position) error
	Waiting(ctx context.Context) (context.Context, context.CancelFunc)
	Store() *storage.Store
}

// Reach returns once the node has everything up to the moment, and refuses one that lies ahead. The
// read has been made as consistent as it asks. Unless it is LOCAL, the leader closes a time, so
// that the same question has the same answer forever (READ-4).
func (m *Moment) Reach(ctx context.Context, node MomentNode, level runlogv1.Consistency_Level, clock func() time.Time) error {
	applied := node.Store().Applied()
	switch {
	case m.Kind == MomentTime && m.At.Time > applied.PersistedAt:
		if m.At.Time > clock().UnixNano() {
			return Invalid(m.Field, "is in the future")
		}
		if level == runlogv1.Consistency_LOCAL {
			return nil
		}
		position, _, err := node.CloseThrough(ctx, m.At.Time)
		if err != nil {
			return err
		}
		if err := node.Await(ctx, position); err != nil {
			return err
		}
		// The leader closes no time that its own clock has not reached.
		if node.Store().Applied().PersistedAt < m.At.Time {
			return Invalid(m.Field, "is in the future of the leader's clock")
		}
		return nil
	case m.Kind == MomentPosition && m.At.Position > applied.Position():
		if level != runlogv1.Consistency_LOCAL {
			return Invalid(m.Field, fmt.Sprintf("is ahead of the log, which is at %s: pass on a position as you got it",
				FormatPosition(applied.Incarnation, applied.Position())))
		}
		ctx, cancel := node.Waiting(ctx)
		defer cancel()
		err := node.Await(ctx, m.At.Position)
		if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return &contract.Error{Reason: contract.ReasonNotReached,
				Message: "this node has not applied the position in " + m.Field + " yet: retry, ask another node, or leave out consistency=LOCAL"}
		}
		return err
	}
	return nil
}

// In checks the moment against a run that the node has, and reports whether it is before the run
// was created.
func (m *Moment) In(r *storage.Run) (before bool, err error) {
	if m.Kind == MomentSeq && m.At.Seq > r.LastSeq {
		return false, Invalid(m.Field, fmt.Sprintf("is %d, and the run is at %d; minSeq waits for it", m.At.Seq, r.LastSeq))
	}
	return m.At.Time < r.CreatedAt || m.At.Position < r.CreatedPosition, nil
}

// Now returns the time at the moment: what depends on the time of a request is as it was then. last
// is persistedAt of the run's last event at the moment; zero: none.
func (m *Moment) Now(store *storage.Store, last, now time.Time) (time.Time, error) {
	switch m.Kind {
	case MomentSeq:
		if !last.IsZero() {
			return last, nil
		}
	case MomentTime:
		return time.Unix(0, m.At.Time).UTC(), nil
	case MomentPosition:
		stamp, err := store.StampUpTo(m.At.Position)
		return time.Unix(0, stamp).UTC(), err
	}
	return now, nil
}

// Before is the error about a run that had not been created yet at a moment.
func (m *Moment) Before(r *storage.Run) *contract.Error {
	created := r.Created().Format(time.RFC3339Nano)
	return &contract.Error{Reason: contract.ReasonRunNotFound,
		Message:  fmt.Sprintf("run %s did not exist yet at the moment in %s: it began at %s", contract.Quote(r.RunID), m.Field, created),
		Metadata: map[string]string{"run_id": r.RunID, "created_at": created}}
}
