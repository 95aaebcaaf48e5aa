package history

import (
	"cmp"
	"slices"
)

// queued is an acknowledged append that went through a queue.
type queued struct {
	op        int
	call      int64
	low, high uint64 // of the runSeqs of events that no other append has sent
}

// checkQueues requires that the appends to a run that went through one queue are stored in the
// order of their calls. Events that other appends have sent too show nothing: the other one may
// have stored them.
func (c *checker) checkQueues() {
	type line struct{ queue, run string }
	lines := map[line][]queued{}
	var names []line
	c.appends(func(at request, a *Append) {
		if a.Queue == "" || a.Status != Acknowledged {
			return
		}
		q := queued{op: at.op, call: c.h.Ops[at.op].Call}
		for i := range min(len(a.Results), len(a.Events)) {
			others := c.attempts[eventKey{a.Run, a.Events[i].Key}]
			if slices.ContainsFunc(others, func(o attempt) bool { return o.request != at }) {
				continue
			}
			seq := a.Results[i].RunSeq
			if q.high = max(q.high, seq); q.low == 0 || seq < q.low {
				q.low = seq
			}
		}
		if q.high == 0 {
			return
		}
		l := line{a.Queue, a.Run}
		if lines[l] == nil {
			names = append(names, l)
		}
		lines[l] = append(lines[l], q)
	})
	for _, l := range names {
		c.checkQueue(l.run, lines[l])
	}
}

// checkQueue checks one queue of a run. Calls at the same time have no order.
func (c *checker) checkQueue(run string, all []queued) {
	slices.SortStableFunc(all, func(a, b queued) int { return cmp.Compare(a.call, b.call) })
	var highest queued // of the calls before
	for from := 0; from < len(all); {
		to := from
		for ; to < len(all) && all[to].call == all[from].call; to++ {
			if q := all[to]; q.low <= highest.high {
				c.report.Add(Queued, run, []int{highest.op, q.op}, "#%d was queued before #%d, and has runSeq %d, behind %d",
					highest.op, q.op, highest.high, q.low)
			}
		}
		c.report.count("queued appends", to-from)
		for _, q := range all[from:to] {
			if q.high > highest.high {
				highest = q
			}
		}
		from = to
	}
}
