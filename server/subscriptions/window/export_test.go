package window

// Used is about what all windows take, in bytes.
func (m *Memory) Used() int64 { return m.used.Load() }

// Lanes counts the runs of which the window keeps something.
func (w *Window) Lanes() int { return len(w.lanes) }
