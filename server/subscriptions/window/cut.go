package window

import (
	"cmp"
	"maps"
	"slices"

	"runlog/storage"
)

// letterKey tells parked events apart: one may be parked, redriven and parked again.
type letterKey struct {
	Place
	again bool
}

func (p *Parked) key() letterKey { return letterKey{p.Place, p.again} }

// About what the parts of a settlement take when they are encoded.
func (o *Owed) bytes() int { return len(o.RunID) + 24 }

func (p *Parked) bytes() int {
	return len(p.RunID) + len(p.EventID) + len(p.EventType) + len(p.Error) + 40
}

func (p *Place) bytes() int { return len(p.RunID) + 16 }

func (s *Settlement) bytes() (n int) {
	for i := range s.Owed {
		n += s.Owed[i].bytes()
	}
	for i := range s.Parked {
		n += s.Parked[i].bytes()
	}
	for i := range s.Delivered {
		n += s.Delivered[i].bytes()
	}
	for _, id := range s.Paid {
		n += len(id) + 8
	}
	return n
}

// Size is about how many bytes the settlement takes.
func (s *Settlement) Size() int { return s.bytes() }

// need is something without which the cursor cannot pass a position: what the rows of the store do
// not cover yet.
type need struct {
	at    storage.Position
	bytes int
}

// cut makes a part of a settlement that has found no room. The cursor stops where the needs of the
// positions up to there fill half of the room. The rest is for rows that the store has: they may
// say longer that a run owes more than it does, so that events repeat and none is skipped.
func (w *Window) cut(s *Settlement, most int) {
	room := most / 2
	needs := w.needs(s)
	for i, n := range needs {
		if room -= n.bytes; room < 0 && n.at > needs[0].at {
			s.Position = max(w.settled, needs[i].at-1)
			break
		}
	}
	*s = Settlement{Position: s.Position, Delivered: s.Delivered, Acknowledged: s.Acknowledged, readTo: s.readTo}
	w.record(s)
	w.choose(s, most, func(*unit) bool { return true })
	s.Part = true
}

// needs returns what a settlement cannot leave out, by position.
func (w *Window) needs(s *Settlement) (list []need) {
	for i := range s.Owed {
		if l := w.lanes[s.Owed[i].RunID]; !l.recorded {
			list = append(list, need{l.at(), s.Owed[i].bytes()})
		}
	}
	for i := range s.Parked {
		if p := &s.Parked[i]; w.needed(p) {
			list = append(list, need{p.at, p.bytes()})
		}
	}
	slices.SortFunc(list, func(a, b need) int { return cmp.Compare(a.at, b.at) })
	return list
}

// needed reports whether the cursor cannot pass a parked event without it. If the store says that
// its run owes, that covers the event.
func (w *Window) needed(p *Parked) bool {
	l := w.lanes[p.RunID]
	return !p.again && (l == nil || !l.recorded)
}

// at is where the first event lies that the lane owes.
func (l *lane) at() storage.Position {
	if len(l.queue) > 0 {
		return l.queue[0].Record.Position
	}
	return l.fromAt
}

// unit is what a settlement says of a run that the store says to owe: all of it or nothing.
type unit struct {
	owed   []Owed // at most one
	paid   bool
	parked []Parked
}

// choose leaves out of a settlement what has no room, of what can be left out: first the units that
// take does not take.
func (w *Window) choose(s *Settlement, most int, take func(*unit) bool) {
	units := map[string]*unit{}
	of := func(runID string) *unit {
		if units[runID] == nil {
			units[runID] = &unit{}
		}
		return units[runID]
	}
	all := *s
	s.Owed, s.Paid, s.Parked, s.Delivered = nil, nil, nil, nil
	var again []Parked
	for _, o := range all.Owed {
		if w.lanes[o.RunID].recorded {
			of(o.RunID).owed = []Owed{o}
		} else {
			s.Owed = append(s.Owed, o)
		}
	}
	for _, id := range all.Paid {
		of(id).paid = true
	}
	for i := range all.Parked {
		switch p := &all.Parked[i]; {
		case p.again:
			again = append(again, *p)
		case w.needed(p):
			s.Parked = append(s.Parked, *p)
		default:
			of(p.RunID).parked = append(of(p.RunID).parked, *p)
		}
	}
	used := s.bytes()
	fits := func(n int) bool {
		ok := used == 0 || used+n <= most
		if ok {
			used += n
		}
		s.Part = s.Part || !ok
		return ok
	}
	for _, id := range slices.Sorted(maps.Keys(units)) {
		u := units[id]
		part := Settlement{Owed: u.owed, Parked: u.parked}
		if u.paid {
			part.Paid = []string{id}
		}
		if take(u) && fits(part.bytes()) {
			s.Owed, s.Paid, s.Parked = append(s.Owed, part.Owed...), append(s.Paid, part.Paid...), append(s.Parked, part.Parked...)
		}
	}
	for i := range again {
		if fits(again[i].bytes()) {
			s.Parked = append(s.Parked, again[i])
		}
	}
	for i := range all.Delivered {
		if !fits(all.Delivered[i].bytes()) {
			break
		}
		s.Delivered = all.Delivered[:i+1]
	}
}
