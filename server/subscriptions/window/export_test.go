package window

// Lanes counts the runs of which the window keeps something.
func (w *Window) Lanes() int { return len(w.lanes) }
