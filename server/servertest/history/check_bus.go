package history

import (
	"cmp"
	"slices"
	"time"
)

// settledWithin is how long an acknowledgement may take to become durable: the second of BUS-6, and
// what a simulated disk or network delays the commit by.
const settledWithin = int64(3 * time.Second)

// span is the time of a call; to is 0 if there was no answer.
type span struct{ from, to int64 }

// mayActAfter reports whether the call may have had its effect at a time or later.
func (s span) mayActAfter(at int64) bool { return s.to == 0 || s.to >= at }

// due is an event that a subscription wants, with what became of it.
type due struct {
	*recordRef
	acks, settled, parked, discards, redrives []span

	listed bool // in any list of dead letters
	left   bool // in the last one
}

// delivered is what the history has of a subscription.
type delivered struct {
	*Subscription
	runs       map[string][]*due // in the order of runSeq
	deliveries []*Act
	resets     []reset
}

type reset struct {
	span
	position int64 // Act.From
}

// checkBus checks what the receivers of subscriptions saw. Each rule assumes of a call without an
// answer what suits the cluster best.
func (c *checker) checkBus() {
	var interruptions []int64
	for i := range c.h.Acts {
		if c.h.Acts[i].Kind == Interrupted {
			interruptions = append(interruptions, c.h.Acts[i].Call)
		}
	}
	slices.Sort(interruptions)
	for i := range c.h.Subscriptions {
		d := c.delivered(&c.h.Subscriptions[i])
		for _, act := range d.deliveries {
			e := d.find(act.Places[0])
			if e == nil {
				c.undelivered(d, act.Places[0], "was delivered, and is not stored or does not match")
				continue
			}
			c.checkTurn(d, e, act)
			c.checkRepeat(d, e, act, interruptions)
		}
		c.checkSkipped(d)
		c.report.count("deliveries", len(d.deliveries))
		c.report.count("subscriptions", 1)
	}
}

func (c *checker) undelivered(d *delivered, p Place, format string, args ...any) {
	c.report.Add(DeliveredInOrder, p.Run, nil, "%s: runSeq %d "+format, append([]any{d.Name, p.RunSeq}, args...)...)
}

// delivered collects what the history has of a subscription.
func (c *checker) delivered(s *Subscription) *delivered {
	d := &delivered{Subscription: s, runs: map[string][]*due{}}
	for _, r := range c.witness.records {
		if r.TenantID == s.Tenant && slices.Contains(s.Types, r.Type) {
			d.runs[r.Run] = append(d.runs[r.Run], &due{recordRef: r})
		}
	}
	for i := range c.h.Acts {
		if a := &c.h.Acts[i]; a.Subscription == s.Name {
			d.add(a)
		}
	}
	return d
}

func (d *delivered) add(a *Act) {
	at := span{a.Call, a.Return}
	switch a.Kind {
	case Reset:
		d.resets = append(d.resets, reset{at, a.From})
		return
	case Delivered:
		d.deliveries = append(d.deliveries, a)
		return
	case Letters:
		d.each(func(e *due) { e.left = false })
	}
	for _, p := range a.Places {
		e := d.find(p)
		if e == nil {
			continue
		}
		switch a.Kind {
		case Acked:
			e.acks = append(e.acks, at)
			if a.Settled {
				e.settled = append(e.settled, at)
			}
		case Parked:
			e.parked = append(e.parked, at)
		case Discarded:
			e.discards = append(e.discards, at)
		case Redriven:
			e.redrives = append(e.redrives, at)
		case Letters:
			e.listed, e.left = true, true
		}
	}
}

// find returns an event that the subscription wants; nil: it wants none such.
func (d *delivered) find(p Place) *due {
	list := d.runs[p.Run]
	i, ok := slices.BinarySearchFunc(list, p.RunSeq, func(e *due, seq uint64) int { return cmp.Compare(e.RunSeq, seq) })
	if !ok {
		return nil
	}
	return list[i]
}

func (d *delivered) each(do func(*due)) {
	for _, run := range sortedKeys(d.runs) {
		for _, e := range d.runs[run] {
			do(e)
		}
	}
}

// checkTurn requires that the earlier events of the run were acknowledged, parked or discarded when
// an event was delivered (BUS-3). If dead letters hold a run, those that are parked are not enough
// (BUS-4).
func (c *checker) checkTurn(d *delivered, e *due, act *Act) {
	begun := func(list []span) bool {
		return slices.ContainsFunc(list, func(s span) bool { return s.from <= act.Return })
	}
	floor := int64(0) // No cursor was moved further by then.
	for _, r := range d.resets {
		if r.from <= act.Return {
			floor = max(floor, r.position)
		}
	}
	for _, before := range d.runs[e.Run] {
		if before.RunSeq >= e.RunSeq {
			return
		}
		if before.PersistedAt < floor || begun(before.acks) || begun(before.discards) || !d.HoldRun && begun(before.parked) {
			continue
		}
		c.undelivered(d, Place{e.Run, e.RunSeq}, "was delivered at %d, before runSeq %d was settled", act.Return, before.RunSeq)
		return
	}
}

// checkRepeat requires that an event is handed out again after an acknowledgement was taken only if
// the leader ended before that was durable, or an operator wanted it (BUS-6).
func (c *checker) checkRepeat(d *delivered, e *due, act *Act, interruptions []int64) {
	if e.listed && len(d.resets) > 1 {
		return // It may be due twice: behind a cursor that was moved back, and as a dead letter.
	}
	for _, ack := range e.settled {
		wanted := func(s span) bool { return s.from <= act.Return && s.mayActAfter(ack.from) }
		if ack.to >= act.Call || slices.ContainsFunc(e.redrives, wanted) ||
			slices.ContainsFunc(d.resets, func(r reset) bool { return wanted(r.span) }) ||
			c.interrupted(d, ack, interruptions) {
			continue
		}
		c.undelivered(d, Place{e.Run, e.RunSeq}, "was delivered at %d, and an acknowledgement was taken at %d", act.Return, ack.to)
		return
	}
}

// interrupted reports whether the leader may have ended before it recorded an acknowledgement. It
// may have been unable to record anything for long. Then, from when it should have, it has handed
// out nothing more, and has stored nothing.
func (c *checker) interrupted(d *delivered, ack span, interruptions []int64) bool {
	i, _ := slices.BinarySearch(interruptions, ack.from)
	if i == len(interruptions) {
		return false
	}
	at, due := interruptions[i], ack.to+settledWithin
	if at <= due {
		return true
	}
	wentOn := slices.ContainsFunc(d.deliveries, func(a *Act) bool { return a.Call > due && a.Return < at })
	return !wentOn && !slices.ContainsFunc(c.h.Ops, func(op Op) bool {
		return op.Call > due && op.Return != 0 && op.Return < at-settledWithin && slices.ContainsFunc(op.Appends, stores)
	})
}

// stores reports whether an append has stored an event, and not only found it.
func stores(a Append) bool {
	return a.Status == Acknowledged && slices.ContainsFunc(a.Results, func(r Result) bool { return !r.Idempotent })
}

// checkSkipped requires that in the end every event is settled that was not passed over: it was
// acknowledged or discarded since the cursor was moved the last time, or is a dead letter (BUS-6).
func (c *checker) checkSkipped(d *delivered) {
	if len(d.resets) == 0 {
		return // It may never have been there.
	}
	last := d.resets[0].from // when the last move that was answered was called
	for _, r := range d.resets {
		if r.to != 0 {
			last = max(last, r.from)
		}
	}
	floor := int64(0)
	for _, r := range d.resets {
		if r.mayActAfter(last) {
			floor = max(floor, r.position)
		}
	}
	since := func(s span) bool { return s.mayActAfter(last) }
	d.each(func(e *due) {
		if e.PersistedAt >= floor {
			c.report.count("events due", 1)
			if !e.left && !slices.ContainsFunc(e.acks, since) && !slices.ContainsFunc(e.discards, since) {
				c.undelivered(d, Place{e.Run, e.RunSeq}, "was neither acknowledged nor parked")
			}
		}
	})
}
