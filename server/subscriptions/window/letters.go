package window

import "slices"

// Letters sets the dead letters of the store: the number of all, and by run. It replaces what was
// set before. What the next settlement has to say of them counts already.
func (w *Window) Letters(all uint64, runs map[string]RunLetters) {
	w.letters = all
	// A letter that is redriven no more was discarded: nothing is to be said of it.
	w.delivered = slices.DeleteFunc(w.delivered, func(p Place) bool { return !slices.Contains(runs[p.RunID].Redriven, p.Seq) })
	w.parked = slices.DeleteFunc(w.parked, func(p Parked) bool { return p.again && !slices.Contains(runs[p.RunID].Redriven, p.Seq) })
	for _, p := range w.delivered {
		r := runs[p.RunID]
		r.Count--
		w.letters--
		r.Redriven = without(r.Redriven, p.Seq)
		runs[p.RunID] = r
	}
	for i := range w.parked {
		p := &w.parked[i]
		r := runs[p.RunID]
		if !p.again {
			r.Count++
			w.letters++
		}
		r.Redriven = without(r.Redriven, p.Seq)
		runs[p.RunID] = r
	}
	for id, l := range w.lanes {
		if _, ok := runs[id]; !ok && l.letters > 0 {
			w.setLetters(l, RunLetters{})
		}
	}
	for id, r := range runs {
		w.setLetters(w.lane(id), r)
	}
}

// Recount sets the number of dead letters in the store. An event that is parked again, because the
// cursor was moved back, has counted twice until then.
func (w *Window) Recount(all uint64) {
	w.letters = all - uint64(len(w.delivered))
	for i := range w.parked {
		if !w.parked[i].again {
			w.letters++
		}
	}
}

// RunLetters are the dead letters of a run.
type RunLetters struct {
	Count    int
	Redriven []uint64 // in order
}

func without(list []uint64, seq uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(list), func(s uint64) bool { return s == seq })
}

func (w *Window) setLetters(l *lane, r RunLetters) {
	l.letters, l.again = r.Count, r.Redriven
	if l.redriven != nil && !slices.Contains(r.Redriven, l.redriven.Record.RunSeq) {
		w.drop(l.redriven)
		w.end(l)
		l.redriven, l.againAttempts = nil, 0
		w.remove(l)
	}
	w.arrange(l)
}

// redelivered takes a redriven letter out of the lane.
func (w *Window) redelivered(l *lane, seq uint64) {
	l.again, l.againAttempts = without(l.again, seq), 0
	l.letters--
	w.letters--
	w.delivered = append(w.delivered, Place{l.runID, seq})
}
