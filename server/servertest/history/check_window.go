package history

import (
	"cmp"
	"fmt"
	"slices"
)

// checkWindows compares answers about windows with the log (I5). Closed answers that equal the log
// equal each other.
func (c *checker) checkWindows() {
	w := &windowChecker{c: c, known: map[string]*windowWant{}}
	w.byStamp = slices.Clone(c.witness.records)
	slices.SortStableFunc(w.byStamp, func(a, b *recordRef) int { return cmp.Compare(a.PersistedAt, b.PersistedAt) })
	for i := range c.h.Ops {
		if win := c.h.Ops[i].Window; win != nil {
			w.check(win, c.h.Ops[i].Node, []int{i})
		}
	}
	for _, l := range c.logs {
		for i := range l.final.Windows {
			w.check(&l.final.Windows[i], l.node, nil)
		}
	}
	c.checkThrough()
}

type windowChecker struct {
	c       *checker
	byStamp []*recordRef
	known   map[string]*windowWant
}

// windowWant is a window as the log has it: events by id, and the digest up to each.
type windowWant struct {
	records []*recordRef
	digests []Digest // one more: the first is that of no event
}

func (w *windowChecker) want(win *Window) *windowWant {
	name := fmt.Sprintf("%d %d %q", win.From, win.To, [...]any{
		win.Filter.TenantID, win.Filter.ProjectID, win.Filter.EnvironmentID, win.Filter.PlanID, win.Filter.RunID, win.Filter.StepID, win.Filter.Types,
	})
	if have := w.known[name]; have != nil {
		return have
	}
	have := &windowWant{digests: []Digest{{}}}
	w.known[name] = have
	first, _ := slices.BinarySearchFunc(w.byStamp, win.From, func(r *recordRef, at int64) int { return cmp.Compare(r.PersistedAt, at) })
	for _, r := range w.byStamp[first:] {
		if r.PersistedAt >= win.To {
			break
		}
		if win.Filter.Match(r.Record) {
			have.records = append(have.records, r)
			have.digests = append(have.digests, windowDigest(have.digests[len(have.digests)-1], r.Record))
		}
	}
	return have
}

func (w *windowChecker) check(win *Window, node string, ops []int) {
	if win.Status != Acknowledged {
		return
	}
	fault := func(format string, args ...any) {
		about := fmt.Sprintf("window [%d, %d) of node %s: ", win.From, win.To, node)
		w.c.report.Add(WindowsClose, win.Filter.RunID, ops, "%s", about+fmt.Sprintf(format, args...))
	}
	w.c.report.count("windows", 1)
	if win.Closed {
		w.c.report.count("windows closed", 1)
	}
	if win.Closed != (win.To <= win.CompleteThrough) {
		fault("closed is %t, and it is complete through %d", win.Closed, win.CompleteThrough)
	}
	want := w.want(win)
	// The log has the events in commit order: a missing one shows as another one in its place.
	for i, id := range win.Events {
		if i == len(want.records) {
			fault("event %d with id %s is not in the log's, which has %d", i, id, len(want.records))
			return
		}
		if r := want.records[i]; id != r.EventID {
			fault("event %d has id %s, where the log has %s %d with id %s", i, id, r.Run, r.RunSeq, r.EventID)
			return
		}
	}
	n := len(win.Events)
	if n < len(want.records) {
		if r := want.records[n]; win.Closed || r.PersistedAt <= win.CompleteThrough {
			fault("has %d events, is complete through %d, and lacks %s %d, stamped %d", n, win.CompleteThrough, r.Run, r.RunSeq, r.PersistedAt)
			return
		}
	}
	if win.Count != uint64(n) || win.Digest != want.digests[n] {
		fault("has %d events, count %d and digest %s; the log's come to %s", n, win.Count, win.Digest, want.digests[n])
	}
}

// checkThrough requires that no event is stamped at or before a completeThrough that was answered
// before the event was sent, for any filter (READ-4).
func (c *checker) checkThrough() {
	type told struct {
		answer, through int64
		op              int
	}
	var all []told
	for i := range c.h.Ops {
		if w := c.h.Ops[i].Window; w != nil && w.Status == Acknowledged {
			all = append(all, told{c.h.Ops[i].Return, w.CompleteThrough, i})
		}
	}
	slices.SortStableFunc(all, func(a, b told) int { return cmp.Compare(a.answer, b.answer) })
	for i := 1; i < len(all); i++ { // Each with the furthest up to it.
		if all[i-1].through > all[i].through {
			all[i].through, all[i].op = all[i-1].through, all[i-1].op
		}
	}
	for _, r := range c.witness.records {
		if len(r.by) == 0 {
			continue
		}
		n, _ := slices.BinarySearchFunc(all, r.call, func(t told, at int64) int { return cmp.Compare(t.answer, at) })
		if n > 0 && r.PersistedAt <= all[n-1].through {
			c.report.Add(WindowsClose, r.Run, []int{all[n-1].op, r.by[0].op},
				"runSeq %d is stamped %d, though all was complete through %d before it was sent", r.RunSeq, r.PersistedAt, all[n-1].through)
		}
	}
}
