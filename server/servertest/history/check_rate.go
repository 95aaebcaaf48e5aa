package history

import (
	"cmp"
	"slices"
)

const (
	// slewShare is the part of elapsed time by which stamps may advance more, or less, as a
	// divisor.
	slewShare = 10
	// sameInstant bounds the nanoseconds that proposals of one instant of fake time are stamped
	// apart.
	sameInstant = 1000
)

// paced is an event that was stored at a moment between two times.
type paced struct {
	from, to int64
	stamp    int64
	op       int
}

// CheckRate adds to a report where stamps do not advance as much as has elapsed, give or take a
// tenth (APP-5). It compares the events that one leader has stored: those whose calls lie between
// two acts of the kind Interrupted, which the caller has recorded for each begin and each end of a
// leadership. Times of the history must advance as the monotonic clocks of the nodes do.
func CheckRate(h *History, report *Report) {
	var changes []int64
	for i := range h.Acts {
		if h.Acts[i].Kind == Interrupted {
			changes = append(changes, h.Acts[i].Call)
		}
	}
	slices.Sort(changes)
	terms := map[int][]paced{}
	for i := range h.Ops {
		op := &h.Ops[i]
		n, exact := slices.BinarySearch(changes, op.Call)
		if exact || n == 0 || op.Return == 0 || n < len(changes) && changes[n] <= op.Return {
			continue
		}
		for k := range op.Appends {
			for _, r := range op.Appends[k].Results {
				if !r.Idempotent {
					terms[n] = append(terms[n], paced{op.Call, op.Return, r.PersistedAt, i})
				}
			}
		}
	}
	for _, n := range sortedKeys(terms) {
		checkTerm(terms[n], report)
	}
}

// checkTerm compares each event of one leader with all that are stamped before it: with the one
// that allows for the least time since, and with the one that requires the most.
func checkTerm(all []paced, report *Report) {
	slices.SortStableFunc(all, func(a, b paced) int { return cmp.Compare(a.stamp, b.stamp) })
	base := all[0]
	fastest, slowest := all[0], all[0]
	// What a stamp is ahead of a time, at a rate in parts of slewShare. Numbers that count from
	// 1970 would be too large.
	ahead := func(stamp, at, rate int64) int64 { return slewShare*(stamp-base.stamp) - rate*(at-base.from) }
	for _, e := range all[1:] {
		report.count("stamps compared with elapsed time", 1)
		most := ahead(e.stamp, e.to, slewShare+1) - ahead(fastest.stamp, fastest.from, slewShare+1)
		if most > slewShare*sameInstant {
			report.Add(Paced, "", []int{fastest.op, e.op}, "stamps advance by %d ns from #%d to #%d, which are at most %d ns apart",
				e.stamp-fastest.stamp, fastest.op, e.op, e.to-fastest.from)
		}
		least := ahead(e.stamp, e.from, slewShare-1) - ahead(slowest.stamp, slowest.to, slewShare-1)
		if least < -slewShare*sameInstant {
			report.Add(Paced, "", []int{slowest.op, e.op}, "stamps advance by %d ns from #%d to #%d, which are at least %d ns apart",
				e.stamp-slowest.stamp, slowest.op, e.op, e.from-slowest.to)
		}
		if ahead(e.stamp, e.from, slewShare+1) < ahead(fastest.stamp, fastest.from, slewShare+1) {
			fastest = e
		}
		if ahead(e.stamp, e.to, slewShare-1) > ahead(slowest.stamp, slowest.to, slewShare-1) {
			slowest = e
		}
	}
}
