package window

// Used is about what all windows take, in bytes.
func (m *Memory) Used() int64 { return m.used.Load() }

// Spent reports whether the windows take as much memory as they may.
func (m *Memory) Spent() bool { return m.used.Load() >= m.All }

// over reports whether the window has no memory for events but the one that every window may have.
func (w *Window) over() bool { return w.bytes >= w.settings.Memory.One || w.settings.Memory.Spent() }

// Spill drops the events from memory that are not under way. They are read again when their turn
// comes, and the window wants no others before that.
func (w *Window) Spill() {
	w.squeezed, w.unread = true, 0
	for _, l := range w.lanes {
		w.spill(l)
		w.unread += l.dropped
	}
}

// spill drops the events of a lane from memory, but for one that is under way.
func (w *Window) spill(l *lane) {
	kept := 0
	if l.busy && l.redriven == nil {
		kept = 1
	}
	if len(l.queue) <= kept {
		return
	}
	first := l.queue[kept].Record
	l.spilled, l.from, l.fromAt = true, first.RunSeq-1, first.Position
	if kept == 0 {
		l.oldest = first.PersistedAt
	}
	for _, e := range l.queue[kept:] {
		w.drop(e)
	}
	l.dropped += len(l.queue) - kept
	l.queue = append([]*Event(nil), l.queue[:kept]...)
}

// blocked reports whether the next event has to be read, and there is no memory for it before one
// that is under way is settled, or another window needs less.
func (w *Window) blocked() bool {
	l := w.next()
	return l != nil && w.inFlight > 0 && l.redriven == nil && (len(l.queue) == 0 || len(l.again) > 0) && w.over()
}

// Starves reports whether the window has less than it wants because of what the others take.
func (w *Window) Starves() bool {
	return !w.settings.Paused && w.settings.Memory.Spent() && (w.events > 0 || w.blocked())
}

// Slow reports whether the window has handed out little since the last call, compared with what it
// keeps in memory.
func (w *Window) Slow() bool {
	handed := w.handed
	w.handed = 0
	return w.events > w.inFlight && handed*slowness < w.events-w.inFlight
}

// A window is slow if it hands out less than one part in slowness of what it keeps, between two
// calls of Slow.
const slowness = 8
