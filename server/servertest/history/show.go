package history

import (
	"fmt"
	"strings"
	"time"
)

// shownEvents is how many events of an operation a report names.
const shownEvents = 3

// String returns the op on one line, for a report.
func (o *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s ", o.Client)
	if o.Node != "" {
		fmt.Fprintf(&b, "at %s ", o.Node)
	}
	fmt.Fprintf(&b, "[%s", clockTime(o.Call))
	if o.Mark == nil {
		b.WriteString(", ")
		if o.Return != 0 {
			b.WriteString(clockTime(o.Return))
		}
	}
	b.WriteString("] ")
	switch {
	case o.Read != nil:
		o.Read.show(&b)
	case o.Snapshot != nil:
		o.Snapshot.show(&b)
	case o.Mark != nil:
		fmt.Fprintf(&b, "is told that run %s is at %d", o.Mark.Run, o.Mark.LastEventSeq)
	case o.Window != nil:
		o.Window.show(&b)
	default:
		for i := range o.Appends {
			if i > 0 {
				b.WriteString("; ")
			}
			o.Appends[i].show(&b)
		}
	}
	return b.String()
}

func clockTime(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000000000") }

func (a *Append) show(b *strings.Builder) {
	fmt.Fprintf(b, "append to %s", a.Run)
	if a.Expected != nil {
		fmt.Fprintf(b, " behind %d", *a.Expected)
	}
	for i := range a.Events[:min(shownEvents, len(a.Events))] {
		e := &a.Events[i]
		fmt.Fprintf(b, " %s", short(e.Key))
		if e.EventID != "" {
			fmt.Fprintf(b, " (%s)", short(e.EventID))
		}
	}
	if n := len(a.Events) - shownEvents; n > 0 {
		fmt.Fprintf(b, " and %d more", n)
	}
	a.showEnd(b)
	for i := range a.Results[:min(shownEvents, len(a.Results))] {
		r := &a.Results[i]
		fmt.Fprintf(b, " %d=%s@%d", r.RunSeq, short(r.EventID), r.PersistedAt)
		if r.Idempotent {
			b.WriteString(" duplicate")
		}
		if r.Diverged {
			b.WriteString(" diverged")
		}
	}
	if a.LastSeq != 0 {
		fmt.Fprintf(b, " last %d", a.LastSeq)
	}
}

func (r *Read) show(b *strings.Builder) {
	fmt.Fprintf(b, "%sread of %s after %d", local(r.Local), r.Run, r.AfterSeq)
	r.showEnd(b)
	fmt.Fprintf(b, " %d events, last %d", len(r.Events), r.LastSeq)
}

func (s *Snapshot) show(b *strings.Builder) {
	fmt.Fprintf(b, "%ssnapshot of %s", local(s.Local), s.Run)
	if s.AsOfSeq != 0 {
		fmt.Fprintf(b, " as of %d", s.AsOfSeq)
	}
	s.showEnd(b)
	fmt.Fprintf(b, " at %d, %s, digest %s", s.LastEventSeq, s.RunStatus, short(s.Digest.String()))
}

func (w *Window) show(b *strings.Builder) {
	fmt.Fprintf(b, "window [%d, %d)", w.From, w.To)
	if name := fmt.Sprintf("%+v", w.Filter); name != fmt.Sprintf("%+v", Filter{}) {
		fmt.Fprintf(b, " of %s", name)
	}
	w.showEnd(b)
	fmt.Fprintf(b, " %d events, digest %s, complete through %d", w.Count, short(w.Digest.String()), w.CompleteThrough)
	if w.Closed {
		b.WriteString(", closed")
	}
}

func (o *Outcome) showEnd(b *strings.Builder) {
	b.WriteString(": ")
	if o.Status == Unknown {
		b.WriteString("unknown")
	} else {
		b.WriteString(string(o.Status))
	}
	if o.Reason != "" {
		fmt.Fprintf(b, " %s", o.Reason)
	}
}

func local(is bool) string {
	if is {
		return "local "
	}
	return ""
}

// short keeps enough of a key, id or digest to find it by.
func short(s string) string {
	const keep = 12
	if len(s) <= keep {
		return s
	}
	return s[:keep] + "…"
}
