package list

import (
	"encoding/binary"
	"time"

	"runlog/projector/run"
)

// appendListRow appends a row of the list (see the package comment).
func appendListRow(b []byte, t *traits, s *run.Summary) []byte {
	b = append(b, byte(t.status))
	for _, text := range t.texts {
		b = appendSized(b, text)
	}
	b = appendTime(b, s.StartedAt)
	b = appendTime(b, s.CompletedAt)
	b = appendTime(b, s.LastEventAt)
	if b = append(b, 0); s.HasDuration {
		b[len(b)-1] = 1
		b = binary.AppendVarint(b, s.TotalDurationMs)
	}
	b = binary.AppendUvarint(b, uint64(s.FailedSteps))
	b = binary.AppendUvarint(b, uint64(s.StepCount))
	b = binary.AppendUvarint(appendTime(b, s.Drain.PausedAt), uint64(s.Drain.Running))
	for _, text := range [...]string{s.CurrentStep, s.EngineType, s.TriggeredBy, s.TriggerSource} {
		b = appendSized(b, text)
	}
	return appendSized(b, string(run.AppendPlanRef(nil, s.PlanRef)))
}

func appendSized(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// appendTime appends a time as nanoseconds and 1, a uvarint, and seconds since 1970, a varint; an
// absent time is 0.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(t.Nanosecond())+1)
	return binary.AppendVarint(b, t.Unix())
}

// listRow is a parsed row of the list. Its texts point into the row.
type listRow struct {
	status run.Status
	texts  [textColumns][]byte
	rest   []byte // what a filter does not ask for first
}

func parseListRow(b []byte) (e listRow, ok bool) {
	r := rowReader{b: b}
	e.status = run.Status(r.byte())
	for i := range e.texts {
		e.texts[i] = r.sized()
	}
	e.rest = r.b
	return e, !r.bad
}

// summary parses the rest of a row.
func (e *listRow) summary() (s run.Summary, ok bool) {
	r := rowReader{b: e.rest}
	s.Status, s.StartedAt, s.CompletedAt, s.LastEventAt = e.status, r.time(), r.time(), r.time()
	if r.byte() == 1 {
		s.HasDuration, s.TotalDurationMs = true, r.varint()
	}
	s.FailedSteps, s.StepCount = uint32(r.uvarint()), uint32(r.uvarint())
	s.Drain = run.Drain{PausedAt: r.time(), Running: uint32(r.uvarint())}
	for _, text := range [...]*string{&s.CurrentStep, &s.EngineType, &s.TriggeredBy, &s.TriggerSource} {
		*text = string(r.sized())
	}
	s.PlanRef = run.ParsePlanRef(r.sized())
	return s, !r.bad && len(r.b) == 0
}

// match reports whether a row has the values that a filter asks for.
func (e *listRow) match(want *traits, f *run.Filter) bool {
	for i, text := range want.texts {
		if text != "" && text != string(e.texts[i]) {
			return false
		}
	}
	if !f.Statuses.Match(e.status) {
		return false
	}
	r := rowReader{b: e.rest}
	return f.StartedAfter == 0 && f.StartedBefore == 0 || f.Started(r.time())
}

// rowReader reads the parts of a row. At the first fault it is bad, and all else is empty.
type rowReader struct {
	b   []byte
	bad bool
}

func (r *rowReader) fail() { r.b, r.bad = nil, true }

func (r *rowReader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	first := r.b[0]
	r.b = r.b[1:]
	return first
}

func (r *rowReader) uvarint() uint64 {
	n, w := binary.Uvarint(r.b)
	if w <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[w:]
	return n
}

func (r *rowReader) varint() int64 {
	n, w := binary.Varint(r.b)
	if w <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[w:]
	return n
}

func (r *rowReader) sized() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	text := r.b[:n]
	r.b = r.b[n:]
	return text
}

func (r *rowReader) time() time.Time {
	nanos := r.uvarint()
	if nanos == 0 {
		return time.Time{}
	}
	seconds := r.varint()
	if nanos > uint64(time.Second) {
		r.fail()
		return time.Time{}
	}
	return time.Unix(seconds, int64(nanos-1)).UTC()
}
